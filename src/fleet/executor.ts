import type { Job } from "../run/model/job.ts";
import type { RunResult } from "../run/model/result.ts";

/** Runs items: each in its own cell, or many in one cell that is scrubbed between items. */
export interface ItemExecutor extends AsyncDisposable {
  /** Every outcome is a result; rejects only for bugs. */
  run(job: Job): Promise<RunResult>;
}
