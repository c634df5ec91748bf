import { randomUUID } from "node:crypto";
import { link, readFile, rename, rm, writeFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { currentOwner, formatOwner, isDead, parseOwner } from "../../owner.ts";

const POLL_MS = 200;
/** Longer than building every image takes on a slow machine. */
const MAX_WAIT_MS = 30 * 60_000;

export interface LockOptions {
  readonly signal?: AbortSignal | undefined;
  /** Called once, when another process holds the lock. */
  readonly onWait?: (pid: number) => void;
}

/** Waits until no other process holds `file`, and holds it until disposed of. What a dead process left is taken over. */
export async function acquireLock(file: string, { signal, onWait }: LockOptions = {}): Promise<AsyncDisposable> {
  const self = currentOwner();
  const deadline = Date.now() + MAX_WAIT_MS;
  for (let told = false; Date.now() < deadline; ) {
    signal?.throwIfAborted();
    if (await claim(file, formatOwner(self))) return { [Symbol.asyncDispose]: () => rm(file, { force: true }) };
    const text = await readIfThere(file);
    if (text === null) continue;
    const owner = parseOwner(text);
    // A lock appears with its owner in it, so one that names nobody was not written by Corral, or by a machine that failed.
    if (owner === null || isDead(owner, self)) {
      await evict(file, text);
      continue;
    }
    if (!told) onWait?.(owner.pid);
    told = true;
    await sleep(POLL_MS, undefined, signal ? { signal } : {});
  }
  throw new Error(`another process has held ${file} for too long. If none is at work, remove that file.`);
}

/** A link fails where the name is taken, and makes the name and its content appear at once. */
async function claim(file: string, owner: string): Promise<boolean> {
  const draft = `${file}.${randomUUID()}`;
  await writeFile(draft, owner, { mode: 0o600, flag: "wx" });
  try {
    await link(draft, file);
    return true;
  } catch (error) {
    if (codeOf(error) === "EEXIST") return false;
    throw error;
  } finally {
    await rm(draft, { force: true });
  }
}

/** Moves a dead owner's lock away; one that a third process took in between is put back. */
async function evict(file: string, deadText: string): Promise<void> {
  const aside = `${file}.${randomUUID()}`;
  try {
    await rename(file, aside);
    if ((await readIfThere(aside)) !== deadText) await link(aside, file);
  } catch (error) {
    if (codeOf(error) !== "ENOENT" && codeOf(error) !== "EEXIST") throw error;
  } finally {
    await rm(aside, { force: true });
  }
}

async function readIfThere(file: string): Promise<string | null> {
  return readFile(file, "utf8").catch((error: unknown) => {
    if (codeOf(error) === "ENOENT") return null;
    throw error;
  });
}

function codeOf(error: unknown): string | undefined {
  return (error as NodeJS.ErrnoException).code;
}
