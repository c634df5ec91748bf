import type { Plan } from "../../src/isolation/plan/plan.ts";
import type { OneRun } from "./one-run.ts";

/** Another project's way of running one command apart from the rest of the machine. */
export interface Peer extends AsyncDisposable {
  readonly name: string;
  /** What it does not do that the others do, for a note below the tables. */
  readonly difference: string;
  run(plan: Plan, run: OneRun): Promise<void>;
}

export type OpenedPeer = Peer | { readonly name: string; readonly absent: string };
