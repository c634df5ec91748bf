/** One server-sent event. */
interface StreamEvent {
  readonly id: string;
  readonly type: string;
  readonly data: string;
}

/** A worker's text is in JSON on one line, which is bounded by the log of the service. */
const MAX_PENDING_CHARS = 16 * 1024 ** 2;

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
