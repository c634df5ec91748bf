import type { AgentEvent } from "../../agent/events.ts";
import type { Plan } from "../../isolation/plan/plan.ts";
import type { RunResult } from "./result.ts";

/** Which run an event is of, and where it stands in its tree. */
export interface RunPlace {
  readonly run: string;
  readonly root: string;
  readonly parent: string | null;
  readonly worker: string;
  /** Names of the attachments that its caller gave it. */
  readonly attachments: readonly string[];
}

/** What happens while a tree of runs goes on. Every run begins with `requested` and ends with `ended`. */
export type RunEvent =
  | ({ readonly type: "requested" } & RunPlace)
  | ({ readonly type: "started"; readonly plan: Plan } & RunPlace)
  | ({
      readonly type: "agent_started";
      readonly model: string;
      readonly tools: readonly string[];
      readonly policy: string;
      readonly mounts: readonly { readonly path: string; readonly mode: "ro" | "rw" }[];
    } & RunPlace)
  | ({ readonly type: "agent"; readonly act: AgentEvent } & RunPlace)
  | ({ readonly type: "output"; readonly stream: "stdout" | "stderr"; readonly chunk: Buffer } & RunPlace)
  /** What is for people to see and not for workers: it may hold host paths. */
  | ({ readonly type: "trouble"; readonly detail: string } & RunPlace)
  | ({ readonly type: "ended"; readonly result: RunResult } & RunPlace);

export type Emit = (event: RunEvent) => void;
