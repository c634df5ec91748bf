import { existsSync, type FSWatcher, mkdirSync, rmSync, watch, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { nullFor } from "../platform/errno.ts";
import { livingOwnerDirs } from "./live-dir.ts";
import type { Owner } from "./owner.ts";

/** In each owner's directory, an empty file for each of its root runs. To remove it is to stop the run. */
const RUNS_DIR = "runs";
const RUN_ID = /^[0-9a-f]{12}$/;
/** If the directory cannot be watched, because the kernel has no watches left. */
const POLL_MS = 500;

/** The root runs of this process that every process of this user can stop: no process is signalled, so none can be mistaken. */
export class LiveRuns implements Disposable {
  readonly #dir: string;
  readonly #runs = new Map<string, AbortController>();
  #watcher: FSWatcher | null = null;
  #timer: NodeJS.Timeout | null = null;
  #isMade = false;

  constructor(ownerDir: string) {
    this.#dir = join(ownerDir, RUNS_DIR);
  }

  /** The signal is aborted when the run is stopped. Throws if the disk refuses it. */
  add(run: string): AbortSignal {
    if (!RUN_ID.test(run)) throw new RangeError("that is not the id of a run");
    if (!this.#isMade) {
      mkdirSync(this.#dir, { recursive: true, mode: 0o700 });
      this.#isMade = true;
      this.#look();
    }
    writeFileSync(join(this.#dir, run), "", { mode: 0o600 });
    const stop = new AbortController();
    this.#runs.set(run, stop);
    return stop.signal;
  }

  remove(run: string): void {
    if (!this.#runs.delete(run)) return;
    if (this.#runs.size === 0) this[Symbol.dispose]();
    else rmSync(join(this.#dir, run), { force: true });
  }

  /** Leaves nothing behind. */
  [Symbol.dispose](): void {
    this.#watcher?.close();
    this.#watcher = null;
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
    if (this.#isMade) rmSync(this.#dir, { recursive: true, force: true });
    this.#isMade = false;
  }

  #look(): void {
    const poll = (): void => {
      this.#timer ??= setInterval(() => this.#stopRemoved(), POLL_MS).unref();
    };
    try {
      this.#watcher = watch(this.#dir, { persistent: false }, (event) => event === "rename" && this.#stopRemoved());
      this.#watcher.on("error", poll);
    } catch {
      poll();
    }
  }

  #stopRemoved(): void {
    for (const [run, stop] of this.#runs)
      if (!existsSync(join(this.#dir, run))) stop.abort(new Error("it was stopped with `corral runs stop`"));
  }
}

/** Asks the process that runs it to stop a run; false if no living process of the state directory does. */
export async function stopLiveRun(liveDir: string, self: Owner, run: string): Promise<boolean> {
  if (!RUN_ID.test(run)) return false;
  for (const ownerDir of await livingOwnerDirs(liveDir, self)) {
    if (await rm(join(ownerDir, RUNS_DIR, run)).then(() => true, nullFor("ENOENT"))) return true;
  }
  return false;
}
