import type { ModelTurn } from "./behaviour.ts";
import type { Json, RecordedRequest } from "./recorded-request.ts";

/** One server-sent event; without a name only its data are sent, as chat completions do. */
export interface SentEvent {
  name?: string;
  data: Json | "[DONE]";
}

/** A turn with everything decided that a turn may leave open. */
export interface ResolvedTurn {
  text: string;
  calls: { name: string; input: unknown; id: string; arguments: string }[];
  usage: { input: number; output: number; cached: number };
  uncounted: boolean;
  finish: NonNullable<ModelTurn["finish"]>;
  rawArguments: string | undefined;
}

/** What of a request one API reads in its own way. */
export type ReadRequest = Pick<RecordedRequest, "system" | "messages" | "tools" | "images">;

/** One HTTP API of a model, as pure functions: what its requests mean and how its answers are written. */
export interface ModelApi {
  path: string;
  read(body: Json): ReadRequest;
  /** Why the real API answers 400 to this request whatever the model would say; undefined when it does not. */
  objection(body: Json): string | undefined;
  /** The answer as a stream. `body` is the request's, `id` one that no other answer of the server has. */
  events(turn: ResolvedTurn, body: Json, id: string): SentEvent[];
  /** The answer in one piece. */
  whole(turn: ResolvedTurn, body: Json, id: string): Json;
  /** The body of an answer with an error's status. */
  errorBody(status: number, message: string): Json;
  /** An error within a stream of status 200; `code` is the API's own word, undefined for the one of an overload. */
  errorEvent(code: string | undefined, message: string): SentEvent;
  /** Headers that the API puts on every answer. */
  headers(id: string): Record<string, string>;
}

/** Decides what a turn leaves open; `id` makes the ids of its calls. */
export function resolveTurn(turn: ModelTurn, id: (at: number) => string): ResolvedTurn {
  const calls = (turn.calls ?? []).map((call, at) => ({
    name: call.name,
    input: call.input,
    id: call.id ?? id(at),
    arguments: turn.rawArguments ?? JSON.stringify(call.input),
  }));
  return {
    text: turn.text ?? "",
    calls,
    usage: { cached: 0, ...(turn.usage ?? { input: 12, output: 5 }) },
    uncounted: turn.uncounted ?? false,
    finish: turn.finish ?? (calls.length > 0 ? "tool_calls" : "stop"),
    rawArguments: turn.rawArguments,
  };
}

/** An id in an objection's wording, bounded as the APIs bound it. */
export function namedIds(ids: Iterable<string>): string {
  return [...ids].slice(0, 10).join(", ");
}
