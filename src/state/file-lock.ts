import { randomBytes } from "node:crypto";
import { link, lstat, readdir, readFile, rm, unlink, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { hasCode } from "../platform/errno.ts";

/** Who holds a lock, and who of those that ever held one is certainly gone, for good. */
export interface LockOwner {
  /** One line: a process, told apart from every other that was or will be. */
  readonly name: string;
  readonly isDead: (name: string) => boolean;
}

/** How long to wait for a living holder, and who is told. */
export interface Patience {
  /** Milliseconds, from now. */
  readonly waitMs: number;
  /** Between two looks, in milliseconds. */
  readonly longestPauseMs: number;
  /** Called once, with the holder's name, where somebody has to be waited for. */
  readonly onWait?: ((name: string) => void) | undefined;
  /** Ends the wait: `take` rejects with its reason. */
  readonly signal?: AbortSignal | undefined;
}

/** For what is held for a moment: whoever waits longer than this waits for a process that hangs. */
const A_MOMENT: Patience = { waitMs: 10_000, longestPauseMs: 5 };
const NOT_AT_ALL: Patience = { waitMs: 0, longestPauseMs: 0 };
/** A taker that died while it took over, and one that died while it took over from that one, and so on. */
const MAX_TAKEOVERS = 8;

/** A living process has the lock, and had it for as long as one would wait. */
export class LockHeldError extends Error {
  override readonly name = "LockHeldError";
}

/** What a lock's file says. `mark` is of one ticket alone, and so of one process alone. */
interface Held {
  readonly name: string | null;
  readonly mark: string;
}

/**
 * A lock among processes, as a file. It is taken by linking a ticket to its name, so that it is whole from its first
 * moment, and given back by removing that name.
 *
 * A dead holder's lock is removed under a lock of its own, named after the ticket that the dead one used: of all who
 * find it dead only one at a time may remove it, and only as long as it is that one. A dead holder takes no lock again, so
 * nobody who comes late can remove the lock of the living.
 */
export class FileLock {
  readonly #path: string;
  readonly #owner: LockOwner;
  readonly #mark = randomBytes(8).toString("hex");
  readonly #ticket: string;
  #hasTicket = false;

  /** The directory of `path` must be there when the lock is taken. */
  constructor(path: string, owner: LockOwner) {
    this.#path = path;
    this.#owner = owner;
    this.#ticket = join(dirname(path), `ticket.${this.#mark}`);
  }

  /**
   * Settles when it is held; disposing gives it back.
   *
   * @throws LockHeldError where a living process does not give it back in time.
   */
  async take(patience: Patience = A_MOMENT): Promise<AsyncDisposable> {
    const first = !this.#hasTicket;
    if (first) await this.#makeTicket();
    await this.#takeAt(this.#path, waitOf(patience), 0);
    // What cannot be removed is in nobody's way.
    if (first) await this.#sweep().catch(() => {});
    return { [Symbol.asyncDispose]: () => rm(this.#path, { force: true }) };
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
      if (await this.#linked(path)) return;
      const held = await heldBy(path);
      if (held === null) continue;
      // A lock is whole while its holder lives; one that is not was left by a machine that stopped.
      if (held.name === null || this.#owner.isDead(held.name)) {
        if (depth >= MAX_TAKEOVERS)
          throw new Error(`${path} was left behind by a process that ended; remove it by hand`);
        await this.#removeDead(path, held, wait, depth);
        continue;
      }
      await wait.forLiving(path, held.name);
    }
  }

  async #linked(path: string): Promise<boolean> {
    try {
      await link(this.#ticket, path);
      return true;
    } catch (error) {
      if (!hasCode(error, "EEXIST")) throw error;
      return false;
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

  /** Removes what dead processes left of their own; called by whoever holds the lock. */
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

/** One wait, over however many looks. */
interface Wait {
  readonly signal: AbortSignal | undefined;
  forLiving(path: string, name: string): Promise<void>;
}

function waitOf({ waitMs, longestPauseMs, onWait, signal }: Patience): Wait {
  const until = Date.now() + waitMs;
  let pauseMs = 0;
  return {
    signal,
    async forLiving(path, name) {
      if (Date.now() >= until)
        throw new LockHeldError(`${path} is held by ${name}; where that is gone for good, remove it`);
      if (pauseMs === 0) onWait?.(name);
      pauseMs = Math.min(Math.max(pauseMs * 2, 1), longestPauseMs);
      await sleep(pauseMs * (0.5 + Math.random()), undefined, { signal });
    },
  };
}

/** Takes a lock that is used this once, and leaves nothing behind when it is given back. */
export async function holdFile(path: string, owner: LockOwner, patience: Patience): Promise<AsyncDisposable> {
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

/** The same without a wait; null where a living process has it. */
export async function tryHoldFile(path: string, owner: LockOwner): Promise<AsyncDisposable | null> {
  try {
    return await holdFile(path, owner, NOT_AT_ALL);
  } catch (error) {
    if (error instanceof LockHeldError) return null;
    throw error;
  }
}

/** True where a living process has the lock at `path`. */
export async function isHeld(path: string, { isDead }: LockOwner): Promise<boolean> {
  const held = await heldBy(path);
  return held?.name != null && !isDead(held.name);
}

/** Null where nobody holds it. */
async function heldBy(path: string): Promise<Held | null> {
  try {
    const [mark, name, rest] = (await readFile(path, "utf8")).split("\n");
    if (/^[0-9a-f]{16}$/.test(mark ?? "") && name && rest === "") return { name, mark: mark ?? "" };
    const { ino } = await lstat(path, { bigint: true });
    return { name: null, mark: `unreadable-${ino}` };
  } catch (error) {
    if (hasCode(error, "ENOENT")) return null;
    throw error;
  }
}
