import type { IncomingMessage } from "node:http";
import { EventIdError, type EventLogs } from "../../state/service/event-log.ts";
import type { Answer } from "../http/answer.ts";
import { eventStream, HEARTBEAT_MS, lastEventId } from "../http/event-stream.ts";
import { ServiceFault } from "../http/fault.ts";

/** The events of a run or a fleet, after the last one that the client has. It ends with the last. */
export async function eventsOf(
  id: string,
  logs: EventLogs,
  {
    request,
    gone,
    over,
  }: { readonly request: IncomingMessage; readonly gone: AbortSignal; readonly over: AbortSignal },
): Promise<Answer> {
  if (!logs.has(id))
    throw new ServiceFault(409, "NO_EVENTS", "the service did not start it, or keeps its events no more");
  const from = lastEventId(request.headers["last-event-id"]);
  if (from === null) throw unknownEvent();
  const lines = logs.read(id, from, AbortSignal.any([gone, over]), HEARTBEAT_MS);
  // The first lines are looked for before the answer begins, which can then still say that the id is wrong.
  const first = await lines.next().catch((error: unknown) => {
    throw error instanceof EventIdError ? unknownEvent() : error;
  });
  if (first.done) return { status: 204 };
  async function* all() {
    if (!first.done) yield first.value;
    yield* lines;
  }
  return { status: 200, contentType: "text/event-stream; charset=utf-8", pieces: eventStream(all()) };
}

function unknownEvent(): ServiceFault {
  return new ServiceFault(400, "WRONG_REQUEST", "Last-Event-ID is the id of no event of this stream");
}
