import { ApiError, type Client } from "./client.ts";

/** One server-sent event. */
export interface StreamEvent {
  readonly id: string;
  readonly type: string;
  readonly data: string;
}

/** A worker's text is in JSON on one line, which is bounded by the log of the service. */
const MAX_PENDING_CHARS = 16 * 1024 ** 2;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;

/** Takes server-sent events out of a text that comes in pieces. */
export class EventParser {
  #pending = "";

  /** The events that are whole after this piece. @throws RangeError for one that is too long */
  push(piece: string): StreamEvent[] {
    this.#pending += piece;
    const blocks = this.#pending.split("\n\n");
    this.#pending = blocks.pop() ?? "";
    if (this.#pending.length > MAX_PENDING_CHARS) throw new RangeError("an event is too long");
    return blocks.flatMap((block) => eventIn(block) ?? []);
  }
}

/** Null for a comment. */
function eventIn(block: string): StreamEvent | null {
  const fields = { id: "", event: "message", data: "" };
  for (const line of block.split("\n")) {
    const [, name, value = ""] = /^(id|event|data): ?(.*)$/s.exec(line) ?? [];
    if (name !== undefined) fields[name as keyof typeof fields] = value;
  }
  return fields.data === "" ? null : { id: fields.id, type: fields.event, data: fields.data };
}

/**
 * Follows a stream until its last event, also over connections that break: it continues after the last event that was seen, so none is
 * missed and none comes twice. `EventSource` of browsers cannot send the token, so this one is read with fetch.
 *
 * @throws ApiError if the service refuses it, and what `signal` is aborted with
 */
export async function followEvents(
  client: Client,
  path: string,
  {
    signal,
    see,
    onConnected = () => {},
  }: {
    readonly signal: AbortSignal;
    readonly see: (events: readonly StreamEvent[]) => void;
    readonly onConnected?: (isConnected: boolean) => void;
  },
): Promise<void> {
  let last = "";
  let pauseMs = FIRST_PAUSE_MS;
  while (!signal.aborted) {
    try {
      const response = await client.send("GET", path, {
        signal,
        headers: last === "" ? {} : { "last-event-id": last },
      });
      // All events were seen.
      if (response.status === 204 || response.body === null) return;
      onConnected(true);
      const parser = new EventParser();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const events = parser.push(value);
        if (events.length === 0) continue;
        last = events.findLast(({ id }) => id !== "")?.id ?? last;
        pauseMs = FIRST_PAUSE_MS;
        see(events);
      }
    } catch (error) {
      if (signal.aborted || (error instanceof ApiError && error.status !== 0 && error.status !== 503)) throw error;
    }
    onConnected(false);
    await pause(pauseMs, signal);
    pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
  }
  throw signal.reason;
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });
}
