/** What a played model says in one answer. */
export interface ModelTurn {
  text?: string;
  /** Two and more are parallel calls; a call without an id gets one that no other call of the server has. */
  calls?: { name: string; input: unknown; id?: string }[];
  /** Tokens; `cached` is the part of `input` that was read from a cache. Without it: 12 and 5, none cached. */
  usage?: { input: number; output: number; cached?: number };
  /** True: usage is not told, also to those who ask for it. Only servers of chat completions have that. */
  uncounted?: boolean;
  /** Why the answer ends; without it `tool_calls` where there are calls, else `stop`. */
  finish?: "stop" | "length" | "content_filter" | "tool_calls";
  /** Stands for the arguments of every call, as it is: for arguments that are no JSON. */
  rawArguments?: string;
}

/** What a server does with one request. Events are counted as they are sent, a closing `[DONE]` among them. */
export type Behaviour =
  | { type: "turn"; turn: ModelTurn }
  /** An error of the API; without a body, the body that the API has for this status. */
  | { type: "status"; status: number; body?: unknown; headers?: Record<string, string> }
  /** The socket is destroyed after so many events. With 0 the head of the answer is sent and nothing else. */
  | { type: "cut"; after: number; turn: ModelTurn }
  /** The answer ends after so many events as if that were all: well-formed HTTP, and no word of why it ended. */
  | { type: "stop-short"; after: number; turn: ModelTurn }
  /** After so many events nothing more comes, and the connection stays. */
  | { type: "stall"; after: number; turn: ModelTurn }
  /** After so many events the API reports an error in the stream itself, under the status 200 that it has sent. */
  | { type: "stream-error"; after: number; turn: ModelTurn; code?: string; message?: string }
  /** The request is read and never answered. */
  | { type: "hang" }
  /** The request is read, and the socket destroyed before any answer. */
  | { type: "drop" }
  /** Status 200 with what is no answer: events that are no JSON, JSON of an unknown shape, or a page for people. */
  | { type: "garbage"; what?: "events" | "shape" | "page" }
  /** Sends back the key it was sent. `tool` (else the first one offered) is called with the key in `field` (else `text`). */
  | { type: "echo-key"; where: "text" | "call" | "error"; tool?: string; field?: string };

/** The events that are sent before a behaviour leaves its turn. */
export function eventsBefore(behaviour: Behaviour): number {
  return "after" in behaviour ? behaviour.after : Number.POSITIVE_INFINITY;
}
