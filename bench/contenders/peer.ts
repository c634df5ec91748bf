import type { Plan } from "../../src/isolation/plan/plan.ts";
import type { OneRun } from "./one-run.ts";

/** Another program or project that runs one command isolated from the rest of the machine. */
export interface Peer extends AsyncDisposable {
  readonly name: string;
  /** What the others do and it does not, for a note below the tables. */
  readonly difference: string;
  run(plan: Plan, run: OneRun): Promise<void>;
  /** Absent if it runs no second command in a container. */
  readonly inside?: (plan: Plan) => Promise<Inside>;
}

/** A container that stays, for commands in it. Disposing ends it. */
export interface Inside extends AsyncDisposable {
  readonly name: string;
  exec(command: readonly string[]): Promise<void>;
}

export interface AbsentPeer {
  readonly name: string;
  readonly absent: string;
}

export type OpenedPeer = Peer | AbsentPeer;
