import fs, { readFileSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import type { Server } from "node:http";
import { connect, type Socket } from "node:net";
import { setImmediate as nextTurn } from "node:timers/promises";
import { hasCode } from "../../platform/errno.ts";

/**
 * The connections of a Unix socket's server, in which a client can leave descriptors: while the server does not read, they
 * wait in its queue and keep files open that no process of the client has.
 */
export class HeldDescriptors {
  readonly #sockets = new Set<Socket>();

  constructor(server: Server) {
    server.on("connection", (socket: Socket) => {
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
    });
  }

  /** Ends every connection in which descriptors wait: no client of the protocol sends one. True if there was any. */
  end(): boolean {
    const holding = [...this.#sockets].filter(holds);
    for (const socket of holding) socket.destroy();
    return holding.length > 0;
  }
}

/** A kernel before 5.11 does not report it: there, a client that does not read its answers is suspected. */
function holds(socket: Socket): boolean {
  const { fd = -1 } = (socket as { _handle?: { fd?: number } | null })._handle ?? {};
  if (fd < 0) return false;
  const waiting = /^scm_fds:\s*(\d+)/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "latin1"))?.[1];
  return waiting === undefined ? socket.writableLength > 0 : waiting !== "0";
}

/** At most so many processes, and open or mapped files of each, are checked. */
const MAX_PROCESSES = 5000;
const MAX_FILES = 70_000;
/** How many are checked before the event loop has a turn. */
const SLICE = 500;
/** A block of `st_blocks` (stat(2)). */
const BLOCK_BYTES = 512;
/** `f_type` of what is in memory and not on a disk (statfs(2)). */
const TMPFS = 0x01021994;

/**
 * The bytes of deleted regular files and directories that processes still hold open or mapped, or are in: they take space, and no directory shows
 * them. A file that is in transit between two processes cannot be measured, and counts as infinite; one that no process
 * can receive any more is freed. `pids`: as this machine sees them. Each counts only if `counts` is still true after it
 * was checked.
 * Null if this user may not inspect them.
 */
export async function heldBytes(
  pids: readonly number[],
  counts: (pid: number) => Promise<boolean> = async () => true,
): Promise<number | null> {
  const held = new HeldFiles();
  for (const pid of pids.slice(0, MAX_PROCESSES)) {
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
      // A thread can have descriptors of its own, and live on when the first one, which the process shows, has ended.
      const threads = (await readdir(`/proc/${pid}/task`)).slice(0, MAX_PROCESSES);
      for (const thread of threads) await this.#lookIntoThread(`/proc/${pid}/task/${thread}`);
      await this.#addMaps(pid, threads);
      return true;
    } catch (error) {
      // A process that has ended holds no files.
      if (hasCode(error, "ENOENT", "ESRCH")) return true;
      if (hasCode(error, "EACCES", "EPERM")) return false;
      throw error;
    }
  }

  async #lookIntoThread(thread: string): Promise<void> {
    const names = await readdir(`${thread}/fd`).catch((error: unknown) => {
      if (hasCode(error, "ENOENT", "ESRCH")) return [];
      throw error;
    });
    for (const place of ["cwd", "root"]) unlessGone(() => void this.#addFile(`${thread}/${place}`));
    for (const name of names.slice(0, MAX_FILES)) {
      await this.#turn();
      unlessGone(() => this.#addOpen(thread, name));
    }
  }

  #addOpen(thread: string, name: string): void {
    const isSocket = this.#addFile(`${thread}/fd/${name}`).isSocket();
    // A Unix socket says whether descriptors wait in it.
    if (isSocket && /^scm_fds:\s*[1-9]/m.test(fs.readFileSync(`${thread}/fdinfo/${name}`, "latin1")))
      this.bytes = Number.POSITIVE_INFINITY;
  }

  /** What is mapped, and the program itself. Both are shown by the first thread alone: without it their size is not known. */
  async #addMaps(pid: number, threads: readonly string[]): Promise<void> {
    const maps = await readFile(`/proc/${pid}/maps`, "latin1");
    for (const range of deletedMaps(maps)) {
      await this.#turn();
      unlessGone(() => this.#addFile(`/proc/${pid}/map_files/${range}`));
    }
    unlessGone(() => this.#addFile(`/proc/${pid}/exe`));
    for (const thread of maps === "" ? threads : []) {
      const others = await readFile(`/proc/${pid}/task/${thread}/maps`, "latin1").catch(() => "");
      if (deletedMaps(others).length > 0) this.bytes = Number.POSITIVE_INFINITY;
      if (others !== "") return;
    }
  }

  #addFile(path: string): fs.Stats {
    const stats = fs.statSync(path);
    const file = `${stats.dev}:${stats.ino}`;
    if (this.#seen.has(file) || !isDeleted(path, stats) || fs.statfsSync(path).type === TMPFS) return stats;
    this.#seen.add(file);
    this.bytes += stats.blocks * BLOCK_BYTES;
    return stats;
  }

  async #turn(): Promise<void> {
    this.#looked += 1;
    if (this.#looked % SLICE === 0) await nextTurn();
  }
}

/** A directory keeps the blocks of the names that it once had. Its number of links says nothing on some file systems. */
function isDeleted(path: string, stats: fs.Stats): boolean {
  if (stats.isFile()) return stats.nlink === 0;
  return stats.isDirectory() && fs.readlinkSync(path).endsWith(" (deleted)");
}

/** The names in `map_files` of deleted files, without shared memory, which takes no disk space. */
function deletedMaps(maps: string): string[] {
  return maps
    .split("\n")
    .filter((line) => line.endsWith(" (deleted)") && !line.includes(" /memfd:"))
    .slice(0, MAX_FILES)
    .map((line) => line.split(" ", 1)[0]?.split("-") ?? [])
    .map((ends) => ends.map((end) => end.replace(/^0+(?=.)/, "")).join("-"));
}

/**
 * Sockets that only wait in each other's queues, with the files that wait beside them, belong to no process. The kernel
 * frees them when some Unix socket is closed.
 */
export async function collectSockets(): Promise<void> {
  await new Promise((closed) => connect(NO_SOCKET).on("error", closed));
}

const NO_SOCKET = "/proc/no-socket";

/** Files may be closed while they are checked: false. */
function unlessGone(look: () => void): boolean {
  try {
    look();
    return true;
  } catch (error) {
    if (!hasCode(error, "ENOENT", "ESRCH", "EBADF")) throw error;
    return false;
  }
}
