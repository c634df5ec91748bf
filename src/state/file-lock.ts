import { randomBytes } from "node:crypto";
import { constants } from "node:fs";
import { link, lstat, readdir, rm, unlink, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { nullFor } from "../platform/errno.ts";
import { openRegular } from "../platform/write-file.ts";

/** The process that takes a lock, and how it recognizes owners that have certainly ended. */
export interface LockOwner {
  /** One line that identifies a process among all that were or will be. */
  readonly name: string;
  readonly isDead: (name: string) => boolean;
}

/** How long to wait for a living owner. */
export interface LockWait {
  /** Milliseconds, from now. */
  readonly waitMs: number;
  /** Between two attempts, in milliseconds. */
  readonly longestPauseMs: number;
  /** Called once, with the owner's name, if there is a wait. */
  readonly onWait?: ((name: string) => void) | undefined;
  /** Ends the wait: `take` rejects with its reason. */
  readonly signal?: AbortSignal | undefined;
}

/** For locks that are held for a moment: an owner that keeps one for longer hangs. */
const A_MOMENT: LockWait = { waitMs: 10_000, longestPauseMs: 5 };
const NOT_AT_ALL: LockWait = { waitMs: 0, longestPauseMs: 0 };
/** How many processes may have died one after another, each while it took over from the one before. */
const MAX_TAKEOVERS = 8;

/** A living process held the lock for the whole wait. */
export class LockHeldError extends Error {
  override readonly name = "LockHeldError";
}

/** The content of a lock's file. `mark` belongs to one ticket, and so to one process. */
interface Held {
  readonly name: string | null;
  readonly mark: string;
}

/**
 * A lock among processes, as a file. A process takes it by linking a ticket to its name, so that the file is complete from
 * the first moment, and gives it back by removing that name.
 *
 * A dead owner's lock is removed under a second lock, named after the dead owner's ticket: only one process at a time may
 * remove it, and only if it is still that ticket's. A dead process takes no lock again, so a late process cannot remove
 * the lock of a living one.
 */
export class FileLock {
  readonly #path: string;
  readonly #owner: LockOwner;
  readonly #mark = randomBytes(8).toString("hex");
  readonly #ticket: string;
  #hasTicket = false;

  /** The directory of `path` must exist when the lock is taken. */
  constructor(path: string, owner: LockOwner) {
    this.#path = path;
    this.#owner = owner;
    this.#ticket = join(dirname(path), `ticket.${this.#mark}`);
  }

  /**
   * Resolves when the lock is held; disposing gives it back.
   *
   * @throws LockHeldError if a living process does not give it back in time.
   */
  async take(patience: LockWait = A_MOMENT): Promise<AsyncDisposable> {
    const first = !this.#hasTicket;
    if (first) await this.#makeTicket();
    await this.#takeAt(this.#path, waitOf(patience), 0);
    // A leftover that cannot be removed does no harm.
    if (first) await this.#sweep().catch(() => {});
    return { [Symbol.asyncDispose]: () => unlink(this.#path).catch((error) => void nullFor("ENOENT")(error)) };
  }

  /** Leaves nothing behind. */
  async close(): Promise<void> {
    if (this.#hasTicket) await rm(this.#ticket, { force: true });
    this.#hasTicket = false;
  }

  async #makeTicket(): Promise<void> {
    await writeFile(this.#ticket, `${this.#mark}\n${this.#owner.name}\n`, { mode: 0o600 });
    this.#hasTicket = true;
  }

  async #takeAt(path: string, wait: Wait, depth: number): Promise<void> {
    for (;;) {
      wait.signal?.throwIfAborted();
      if (await link(this.#ticket, path).then(() => true, nullFor("EEXIST"))) return;
      const held = await heldBy(path);
      if (held === null) continue;
      // A lock is complete while its owner lives; an incomplete one was left by a machine that stopped.
      if (held.name === null || this.#owner.isDead(held.name)) {
        if (depth >= MAX_TAKEOVERS)
          throw new Error(`${path} was left behind by a process that ended; remove it by hand`);
        await this.#removeDead(path, held, wait, depth);
        continue;
      }
      await wait.forLiving(path, held.name);
    }
  }

  async #removeDead(path: string, dead: Held, wait: Wait, depth: number): Promise<void> {
    const takeover = `${path}.${dead.mark}`;
    await this.#takeAt(takeover, wait, depth + 1);
    try {
      const now = await heldBy(path);
      if (now?.mark === dead.mark) await unlink(path);
    } finally {
      await unlink(takeover);
    }
  }

  /** Removes tickets of dead processes. The caller holds the lock. */
  async #sweep(): Promise<void> {
    const dir = dirname(this.#path);
    const lock = basename(this.#path);
    for (const name of await readdir(dir)) {
      if (!name.startsWith("ticket.") && !name.startsWith(`${lock}.`)) continue;
      const held = await heldBy(join(dir, name));
      if (held?.name != null && this.#owner.isDead(held.name)) await rm(join(dir, name), { force: true });
    }
  }
}

/** One wait, over any number of attempts. */
type Wait = ReturnType<typeof waitOf>;

function waitOf({ waitMs, longestPauseMs, onWait, signal }: LockWait) {
  // Monotonic: the wall clock may be set meanwhile.
  const until = performance.now() + waitMs;
  let pauseMs = 0;
  return {
    signal,
    async forLiving(path: string, name: string): Promise<void> {
      if (performance.now() >= until)
        throw new LockHeldError(`${path} is held by ${name}. If that process has ended for good, remove the file`);
      if (pauseMs === 0) onWait?.(name);
      pauseMs = Math.min(Math.max(pauseMs * 2, 1), longestPauseMs);
      await sleep(pauseMs * (0.5 + Math.random()), undefined, { signal });
    },
  };
}

/** Takes a lock that is used once, and leaves nothing behind when it is given back. */
export async function holdFile(path: string, owner: LockOwner, patience: LockWait): Promise<AsyncDisposable> {
  const lock = new FileLock(path, owner);
  try {
    const held = await lock.take(patience);
    return {
      async [Symbol.asyncDispose]() {
        await held[Symbol.asyncDispose]();
        await lock.close();
      },
    };
  } catch (error) {
    await lock.close();
    throw error;
  }
}

/** The same without waiting; null if a living process holds it. */
export async function tryHoldFile(path: string, owner: LockOwner): Promise<AsyncDisposable | null> {
  try {
    return await holdFile(path, owner, NOT_AT_ALL);
  } catch (error) {
    if (error instanceof LockHeldError) return null;
    throw error;
  }
}

/** True if a living process holds the lock at `path`. */
export async function isHeld(path: string, { isDead }: LockOwner): Promise<boolean> {
  const held = await heldBy(path);
  return held?.name != null && !isDead(held.name);
}

/** The name of the process that holds the lock at `path`; null if none does, or if it cannot be read. */
export async function holderOf(path: string): Promise<string | null> {
  return (await heldBy(path))?.name ?? null;
}

/** Null if no process holds it. */
async function heldBy(path: string): Promise<Held | null> {
  const found = await lstat(path, { bigint: true }).catch(nullFor("ENOENT"));
  if (found === null) return null;
  if (found.isDirectory()) throw new Error(`${path} is a directory, and must be Corral's lock. Remove it`);
  const beginning = found.isFile() ? await beginningOf(path) : "";
  // Given back meanwhile. It is no incomplete lock, which would be removed, perhaps after another process took its place.
  if (beginning === null) return null;
  const [mark, name, rest] = beginning.split("\n");
  if (/^[0-9a-f]{16}$/.test(mark ?? "") && name && rest === "") return { name, mark: mark ?? "" };
  return { name: null, mark: `unreadable-${found.ino}` };
}

/** Longer than any ticket. */
const MAX_TICKET_BYTES = 4096;

/** Null if it does not exist. */
async function beginningOf(path: string): Promise<string | null> {
  const handle = await openRegular(path, constants.O_RDONLY).catch(nullFor("ENOENT"));
  if (handle === null) return null;
  await using file = handle;
  const { buffer, bytesRead } = await file.read(Buffer.alloc(MAX_TICKET_BYTES), 0, MAX_TICKET_BYTES, 0);
  return buffer.toString("utf8", 0, bytesRead);
}
