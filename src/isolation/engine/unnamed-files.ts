import fs from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { setImmediate as nextTurn } from "node:timers/promises";
import type Docker from "dockerode";
import { z } from "zod";
import { hasCode } from "../../platform/errno.ts";
import { asked } from "./answers/asked.ts";

/** At most so many processes, and open or mapped files of each, are checked. */
const MAX_PROCESSES = 5000;
const MAX_FILES = 70_000;
/** How many are checked before the event loop has a turn. */
const SLICE = 500;
/** A block of `st_blocks` (stat(2)). */
const BLOCK_BYTES = 512;
/** `f_type` of what is in memory and not on a disk (statfs(2)). */
const TMPFS = 0x01021994;

const ProcessTable = z.object({ Titles: z.array(z.string()), Processes: z.array(z.array(z.string())) });

/**
 * The bytes of deleted regular files that a cell's processes still hold open or mapped: they take space, and no
 * directory shows them. A file that is in transit between two processes cannot be measured, and counts as infinite.
 * Null if this user may not inspect the cell's processes.
 */
export async function unnamedBytes(container: Docker.Container): Promise<number | null> {
  const table = await asked(() => container.top(), ProcessTable).catch(() => null);
  if (table === null) return null;
  const column = table.Titles.indexOf("PID");
  const pids = table.Processes.slice(0, MAX_PROCESSES).map((process) => Number(process[column]));
  // A process may have ended and its id been reused: files of the new process are not this cell's.
  const isItsOwn = async (pid: number): Promise<boolean> =>
    (await readFile(`/proc/${pid}/cgroup`, "latin1").catch(() => "")).includes(container.id);
  return await heldBytes(pids, isItsOwn);
}

/** The same for any processes, by their ids on this machine. Each counts only if `counts` is still true after it was checked. */
export async function heldBytes(
  pids: readonly number[],
  counts: (pid: number) => Promise<boolean> = async () => true,
): Promise<number | null> {
  const held = new HeldFiles();
  for (const pid of pids) {
    const before = held.bytes;
    const isAllowed = await held.lookInto(pid);
    if (!(await counts(pid))) held.bytes = before;
    else if (!isAllowed) return null;
  }
  return held.bytes;
}

class HeldFiles {
  readonly #seen = new Set<string>();
  #looked = 0;
  bytes = 0;

  /** False if that is not allowed. */
  async lookInto(pid: number): Promise<boolean> {
    try {
      for (const name of (await readdir(`/proc/${pid}/fd`)).slice(0, MAX_FILES)) {
        await this.#turn();
        unlessGone(() => this.#addOpen(pid, name));
      }
      for (const range of await this.#deletedMaps(pid)) {
        await this.#turn();
        unlessGone(() => this.#addFile(`/proc/${pid}/map_files/${range}`));
      }
      return true;
    } catch (error) {
      // A process that has ended holds no files.
      if (hasCode(error, "ENOENT", "ESRCH")) return true;
      if (hasCode(error, "EACCES", "EPERM")) return false;
      throw error;
    }
  }

  #addOpen(pid: number, name: string): void {
    const isSocket = this.#addFile(`/proc/${pid}/fd/${name}`).isSocket();
    // A Unix socket says whether descriptors wait in it.
    if (isSocket && /^scm_fds:\s*[1-9]/m.test(fs.readFileSync(`/proc/${pid}/fdinfo/${name}`, "latin1")))
      this.bytes = Number.POSITIVE_INFINITY;
  }

  #addFile(path: string): fs.Stats {
    const stats = fs.statSync(path);
    const file = `${stats.dev}:${stats.ino}`;
    if (!stats.isFile() || stats.nlink > 0 || this.#seen.has(file) || fs.statfsSync(path).type === TMPFS) return stats;
    this.#seen.add(file);
    this.bytes += stats.blocks * BLOCK_BYTES;
    return stats;
  }

  /** Their names in `map_files`, without shared memory, which takes no disk space. */
  async #deletedMaps(pid: number): Promise<string[]> {
    const lines = (await readFile(`/proc/${pid}/maps`, "latin1")).split("\n");
    return lines
      .filter((line) => line.endsWith(" (deleted)") && !line.includes(" /memfd:"))
      .slice(0, MAX_FILES)
      .map((line) => line.split(" ", 1)[0]?.split("-") ?? [])
      .map((ends) => ends.map((end) => end.replace(/^0+(?=.)/, "")).join("-"));
  }

  async #turn(): Promise<void> {
    this.#looked += 1;
    if (this.#looked % SLICE === 0) await nextTurn();
  }
}

/** Files may be closed while they are checked. */
function unlessGone(look: () => void): void {
  try {
    look();
  } catch (error) {
    if (!hasCode(error, "ENOENT", "ESRCH", "EBADF")) throw error;
  }
}
