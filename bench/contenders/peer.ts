import type { Plan } from "../../src/isolation/plan/plan.ts";
import type { OneRun } from "./one-run.ts";

/** Another project that runs one command isolated from the rest of the machine. */
export interface Peer extends AsyncDisposable {
  readonly name: string;
  /** What the others do and it does not, for a note below the tables. */
  readonly difference: string;
  run(plan: Plan, run: OneRun): Promise<void>;
}

export type OpenedPeer = Peer | { readonly name: string; readonly absent: string };
