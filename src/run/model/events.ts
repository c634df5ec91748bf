import type { AgentEvent } from "../../agent/events.ts";
import type { DriverName, Plan } from "../../isolation/plan/plan.ts";
import type { ImageProgress } from "../../isolation/port/images.ts";
import type { DeniedTraffic, NetworkReport } from "../../sandbox/network/judge.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { type RunResult, refusedResult } from "./result.ts";

/** The run that an event is about, and its position in its tree. */
export interface RunIdentity {
  readonly run: string;
  readonly root: string;
  readonly parent: string | null;
  readonly worker: string;
  /** Names of the attachments that its caller gave it. */
  readonly attachments: readonly string[];
  /** The words of its command that a user gave, for the record; absent: none. */
  readonly arguments?: readonly string[];
  /** For an agent: the run whose conversation it continues. */
  readonly continues?: string;
  /** What it is beside the run `parent`: the service of this name. Absent: it is none. */
  readonly service?: string;
}

/** What is measured when it is over. `code`: why it failed or was refused; null if it did not. */
export type Measure = { readonly ms: number; readonly code: string | null } & (
  | { readonly what: "cell"; readonly driver: DriverName | "none"; readonly kind: CellUse }
  /** `tool`: as it was asked for; it may be no tool. */
  | { readonly what: "tool"; readonly tool: string }
  /** One request to a model. Tokens are null if the provider did not report them. */
  | { readonly what: "model"; readonly model: string; readonly input: number | null; readonly output: number | null }
  /** A connection that Corral made to an allowed host. `host` is null if only a wildcard allows it: the worker chose the name then. */
  | { readonly what: "connection"; readonly host: string | null; readonly port: number }
);

/** `command`: of a worker. `session`: of tools. `items`: one after another. `packages`: which are prepared for an image. `service`: beside a worker. */
export type CellUse = "command" | "session" | "items" | "packages" | "service";

/** The events of a tree of runs. Every run begins with `requested` and ends with `ended`. */
export type RunEvent =
  | ({ readonly type: "requested" } & RunIdentity)
  | ({ readonly type: "started"; readonly plan: Plan; readonly driver: DriverName } & RunIdentity)
  | ({
      readonly type: "agent_started";
      readonly model: string;
      readonly tools: readonly string[];
      readonly policy: string;
      readonly mounts: readonly { readonly path: string; readonly mode: "ro" | "rw" }[];
    } & RunIdentity)
  | ({ readonly type: "agent"; readonly act: AgentEvent } & RunIdentity)
  | ({ readonly type: "output"; readonly stream: "stdout" | "stderr"; readonly chunk: Buffer } & RunIdentity)
  /** A connection or a request did not leave the cell. Only the first of each kind, and only some of them: `network_used` has all. */
  | ({ readonly type: "network_denied"; readonly denied: DeniedTraffic } & RunIdentity)
  /** Once, when the network of a run is closed; not if nothing used it. */
  | ({ readonly type: "network_used"; readonly report: NetworkReport } & RunIdentity)
  /** The image of the run is made, or what is prepared on it. For people: it may hold what a build printed. */
  | ({ readonly type: "image"; readonly progress: ImageProgress } & RunIdentity)
  /** For people and not for workers: it may hold host paths. */
  | ({ readonly type: "trouble"; readonly detail: string } & RunIdentity)
  /** How long something took, for metrics and traces. It has no contents and no path. */
  | ({ readonly type: "measured"; readonly measure: Measure } & RunIdentity)
  | ({ readonly type: "ended"; readonly result: RunResult } & RunIdentity);

export type Emit = (event: RunEvent) => void;

/** Reports a run that was refused before there was a job, and returns its result. */
export function emitRefusal(emit: Emit, at: RunIdentity, violations: readonly Violation[]): RunResult {
  const result = refusedResult(at, violations);
  emit({ type: "requested", ...at });
  emit({ type: "ended", ...at, result });
  return result;
}
