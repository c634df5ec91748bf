import type { EventLine } from "../../state/service/event-log.ts";

/** A comment on an idle stream, so that proxies and clients know that it is alive. */
export const HEARTBEAT_MS = 15_000;

/** The lines as server-sent events. A line is JSON, in which a line break is escaped: no content can end an event. */
export async function* eventStream(
  lines: AsyncIterable<readonly EventLine[]>,
): AsyncGenerator<string, void, undefined> {
  yield ": events\n\n";
  for await (const some of lines) {
    if (some.length === 0) yield ": idle\n\n";
    for (const { id, json } of some) yield `id: ${id}\nevent: ${typeOf(json)}\ndata: ${json}\n\n`;
  }
}

/** Corral's own word for it, which the line has first. */
function typeOf(json: string): string {
  return /^\{"type":"([a-z_]{1,40})"/.exec(json)?.[1] ?? "message";
}

/** Where a client continues; 0: at the beginning. Null: no event has such an id. */
export function lastEventId(header: string | string[] | undefined): number | null {
  if (header === undefined || header === "") return 0;
  return typeof header === "string" && /^\d{1,15}$/.test(header) ? Number(header) : null;
}
