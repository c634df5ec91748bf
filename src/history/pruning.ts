import { appendFile, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { nullFor } from "../platform/errno.ts";
import { writeAtomically } from "../platform/write-file.ts";
import { makeClosedDir } from "../state/state-dir.ts";
import { type Keep, prune } from "./retention.ts";

/** One line with the time of the last pruning and the bytes that it left; then a line with the bytes of each run since. */
const TOTAL_FILE = "total";
const MAX_TOTAL_FILE_BYTES = 64 * 1024;
const EVERY_MS = 6 * 3_600_000;
/** A process that lives long looks again after any of these: runs that it began, bytes that they printed, and time. */
const LOOK_AGAIN = { runs: 100, bytes: 64 * 1024 ** 2, ms: 3_600_000 };
/** So many more than a project keeps are tolerated, so that not each run prunes. */
const TOLERANCE = 1.1;
/** Records that one run removes beside its own work. */
const MAX_REMOVED = 500;
/** A record without output. */
const LEAST_BYTES = 4096;

export interface PruningOptions {
  readonly runsDir: string;
  readonly keep: Keep;
  readonly maxBytes: number;
  readonly isDead: (owner: string) => boolean;
}

/** Keeps the history within its bounds, beside runs. What fails here is done by a later run. */
export class Pruning {
  readonly #options: PruningOptions;
  #working: Promise<void> = Promise.resolve();
  /** Since it looked last; null: it never has. */
  #since: { runs: number; bytes: number; readonly atMs: number } | null = null;

  constructor(options: PruningOptions) {
    this.#options = options;
  }

  /** A run begins. Prunes if it is time. `projectRuns`: the records of the project that runs something. */
  begin(projectRuns: string): void {
    const since = this.#since;
    if (since !== null) {
      since.runs += 1;
      const { runs, bytes, ms } = LOOK_AGAIN;
      // A clock that was set back is no reason to wait.
      if (since.runs < runs && since.bytes < bytes && Math.abs(Date.now() - since.atMs) < ms) return;
    }
    this.#since = { runs: 0, bytes: 0, atMs: Date.now() };
    this.#work(async () => {
      if (await this.#isDue(projectRuns)) await pruneNow(this.#options, MAX_REMOVED);
    });
  }

  /** So many bytes were added. */
  added(bytes: number): void {
    if (this.#since !== null) this.#since.bytes += LEAST_BYTES + bytes;
    this.#work(() => appendFile(join(this.#options.runsDir, TOTAL_FILE), `${LEAST_BYTES + bytes}\n`, { mode: 0o600 }));
  }

  async idle(): Promise<void> {
    await this.#working;
  }

  #work(act: () => Promise<unknown>): void {
    this.#working = this.#working.then(act).then(
      () => {},
      () => {},
    );
  }

  async #isDue(projectRuns: string): Promise<boolean> {
    const { runsDir, keep, maxBytes } = this.#options;
    const known = await readFile(join(runsDir, TOTAL_FILE), "utf8").catch(nullFor("ENOENT"));
    if (known === null || known.length > MAX_TOTAL_FILE_BYTES) return true;
    const [first = "", ...added] = known.split("\n");
    const [prunedMs = 0, bytes = 0] = first.split(" ").map(Number);
    const age = Date.now() - prunedMs;
    const total = added.reduce((sum, line) => sum + (Number(line) || 0), bytes);
    if (!(age >= 0 && age < EVERY_MS && total <= maxBytes)) return true;
    const names = (await readdir(projectRuns).catch(nullFor("ENOENT"))) ?? [];
    return names.length > keep.runs * TOLERANCE;
  }
}

async function pruneNow({ runsDir, maxBytes, isDead }: PruningOptions, limit: number): Promise<void> {
  const nowMs = Date.now();
  const { bytes } = await prune(runsDir, { maxBytes, isDead, nowMs, limit });
  await makeClosedDir(runsDir);
  await writeAtomically(join(runsDir, TOTAL_FILE), `${nowMs} ${bytes}\n`);
}
