import type { StreamName } from "../history/kept-stream.ts";
import type { RunRecord } from "../history/run-record.ts";
import type { ProjectPlace } from "../operations/audit.ts";
import { type OutputPiece, runOutput } from "../operations/run-output.ts";
import {
  listRuns,
  type RunFilter,
  type RunsToRemove,
  removeRuns,
  type StoppedRun,
  showRun,
  stopRun,
} from "../operations/runs.ts";

/** How what a run printed is read. */
export interface LogOptions {
  /** Absent: both, standard output first. */
  readonly stream?: StreamName;
  /** Only the last lines of each stream. */
  readonly lines?: number;
  /** Until the run has ended. */
  readonly follow?: boolean;
  readonly signal?: AbortSignal;
}

/**
 * The history of the project's runs and sessions; items of fleets are in `fleets`. Methods that take an id, a prefix of it or
 * `latest` throw a `RequestError`: `UNKNOWN_RUN`, `AMBIGUOUS_ID`.
 */
export class ProjectRuns {
  readonly #place: ProjectPlace;

  constructor(place: ProjectPlace) {
    this.#place = place;
  }

  /** The newest first, at most 50 if no other `limit` is given. */
  async list(filter: RunFilter = {}): Promise<readonly RunRecord[]> {
    return (await listRuns(this.#place, filter)).runs;
  }

  async show(id: string): Promise<RunRecord> {
    return await showRun(this.#place, id);
  }

  /** What it printed, in pieces. Of a long stream the first 512 KiB and at least the last 512 KiB are kept. */
  async logs(id: string, { stream, ...options }: LogOptions = {}): Promise<AsyncGenerator<OutputPiece, void>> {
    const streams = stream === undefined ? (["stdout", "stderr"] as const) : [stream];
    return await runOutput(this.#place, id, { ...options, streams });
  }

  /** Stops a run of any process of this user, and waits up to 15 s until it has ended. */
  async stop(id: string): Promise<StoppedRun> {
    return await stopRun(this.#place, id);
  }

  /** Removes runs that have ended from the history. Answers with their ids. @throws RequestError RUN_NOT_ENDED */
  async remove(which: RunsToRemove): Promise<string[]> {
    return await removeRuns(this.#place, which);
  }
}
