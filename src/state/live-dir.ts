import { randomBytes } from "node:crypto";
import { existsSync, type FSWatcher, mkdirSync, rmSync, watch, writeFileSync } from "node:fs";
import { appendFile, mkdir, readdir, readFile, rename, rm, rmdir, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { z } from "zod";
import { detachMountsBelow } from "../files/host/descriptor.ts";
import { removeTree } from "../files/host/system-program.ts";
import { parseJson } from "../json/parse-json.ts";
import { nullFor } from "../platform/errno.ts";
import { writeAtomically } from "../platform/write-file.ts";
import { formatOwner, isDead, type Owner, parseOwner } from "./owner.ts";

/** A line that was cut by the end of its process, or by a full disk, has no line break of its own: one ends it, two follow a whole line. */
const WHOLE = /(?<=\n)[^\n]+(?=\n(?:\n|$))/g;

/** The whole lines of a file of the state directory that only grows; none if it does not exist. Lines that were cut do not count. */
export async function appendedLines(path: string, maxBytes: number): Promise<string[]> {
  const found = await stat(path).catch(nullFor("ENOENT"));
  if (found === null) return [];
  if (found.size > maxBytes) throw new Error(`${path} is larger than Corral writes it`);
  return (await readFile(path, "utf8")).match(WHOLE) ?? [];
}

/** The line break before it keeps it apart from a line that was cut. */
export async function appendLine(path: string, line: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  await appendFile(path, `\n${line}\n`, { mode: 0o600 });
}

export async function removeLines(path: string): Promise<void> {
  await rm(path, { force: true });
}

/** In each owner's directory, an empty file for each of its root runs. To remove it is to stop the run. */
const RUNS_DIR = "runs";
const RUN_ID = /^[0-9a-f]{12}$/;
/** If the directory cannot be watched, because the kernel has no watches left. */
const POLL_MS = 500;

/** The root runs of this process that every process of this user can stop: no process is signalled, so none can be mistaken. */
export class LiveRuns implements Disposable {
  readonly #dir: string;
  readonly #runs = new Map<string, AbortController>();
  #watching: Disposable | null = null;

  constructor(ownerDir: string) {
    this.#dir = join(ownerDir, RUNS_DIR);
  }

  /** The signal is aborted when the run is stopped. Throws if the disk refuses it. */
  add(run: string): AbortSignal {
    if (!RUN_ID.test(run)) throw new RangeError("that is not the id of a run");
    if (this.#watching === null) {
      mkdirSync(this.#dir, { recursive: true, mode: 0o700 });
      this.#watching = watchNames(this.#dir, () => this.#stopRemoved());
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
    if (this.#watching === null) return;
    this.#watching[Symbol.dispose]();
    this.#watching = null;
    rmSync(this.#dir, { recursive: true, force: true });
  }

  #stopRemoved(): void {
    for (const [run, stop] of this.#runs)
      if (!existsSync(join(this.#dir, run))) stop.abort(new Error("it was stopped with `corral runs stop`"));
  }
}

/** Calls back when a name comes to a directory or leaves it. Until it is disposed of. */
export function watchNames(dir: string, onChange: () => void): Disposable {
  let watcher: FSWatcher | null = null;
  let timer: NodeJS.Timeout | undefined;
  const poll = (): void => {
    timer ??= setInterval(onChange, POLL_MS).unref();
  };
  try {
    watcher = watch(dir, { persistent: false }, (event) => event === "rename" && onChange());
    watcher.on("error", poll);
  } catch {
    poll();
  }
  return {
    [Symbol.dispose]() {
      watcher?.close();
      clearInterval(timer);
    },
  };
}

/** Asks the process that runs it to stop a run; false if no living process of the state directory does. */
export async function stopLiveRun(liveDir: string, self: Owner, run: string): Promise<boolean> {
  if (!RUN_ID.test(run)) return false;
  for (const ownerDir of await livingOwnerDirs(liveDir, self)) {
    if (await rm(join(ownerDir, RUNS_DIR, run)).then(() => true, nullFor("ENOENT"))) return true;
  }
  return false;
}

/** In each owner's directory, the file that identifies it. */
const OWNER_FILE = "owner";
/** More orchestrators than any machine runs; the rest is not read. */
const MAX_OWNERS = 10_000;

/**
 * Makes a temporary directory below `liveDir` for the sockets of an orchestrator's runs. Each call makes another one,
 * because one process may open several projects and close them one by one. Its name is short, because the path of a Unix
 * socket has at most 107 bytes. No other user can enter the state directory above; in the cell its files must be reachable.
 */
export async function makeOwnerDir(liveDir: string, owner: Owner): Promise<string> {
  const dir = join(liveDir, randomBytes(5).toString("hex"));
  await mkdir(dir, { recursive: true, mode: 0o755 });
  await writeFile(join(dir, OWNER_FILE), formatOwner(owner));
  return dir;
}

/** Also detaches views that are still mounted in it, because their runs did not end in order. */
export async function removeOwnerDir(dir: string): Promise<void> {
  await detachMountsBelow(dir);
  if (!(await removedAtOnce(dir))) await removeTree(dir);
}

/** Most directories have nothing left but the owner. To start a program for that would take most of the time of an end. */
async function removedAtOnce(dir: string): Promise<boolean> {
  try {
    const names = await readdir(dir);
    if (names.some((name) => name !== OWNER_FILE)) return false;
    await rm(join(dir, OWNER_FILE), { force: true });
    await rmdir(dir);
    return true;
  } catch {
    return false;
  }
}

/** The names of the directories that were removed, and why others could not be. */
export interface ReapedDirs {
  readonly removed: readonly string[];
  readonly failed: readonly { readonly name: string; readonly error: unknown }[];
}

/** The end of the name of a file in an owner's directory: what is moved out of it if the owner dies. */
const KEPT = ".keep";
const Moves = z.array(z.tuple([z.string(), z.string()])).max(1000);

/**
 * Has directories moved out of that of an owner if it dies, in this order: from each first path to the second, both absolute and of Corral's own. Until
 * {@link keepNothing}, or the next list of this name.
 */
export async function keepAfterDeath(ownerDir: string, name: string, moves: z.infer<typeof Moves>): Promise<void> {
  await writeAtomically(join(ownerDir, `${name}${KEPT}`), JSON.stringify(moves));
}

export async function keepNothing(ownerDir: string, name: string): Promise<void> {
  await rm(join(ownerDir, `${name}${KEPT}`), { force: true });
}

/** A list whose directories are not all there is broken off: what comes last says what the others are. */
async function moveKept(dir: string): Promise<void> {
  for (const name of (await readdir(dir)).filter((one) => one.endsWith(KEPT))) {
    const parsed = parseJson(await readFile(join(dir, name), "utf8"));
    const moves = parsed.ok ? (Moves.safeParse(parsed.value).data ?? []) : [];
    for (const [from, to] of moves) {
      // Another process may do the same.
      const isMoved = await rename(from, to).then(() => true, nullFor("ENOENT", "ENOTEMPTY", "EEXIST"));
      if (isMoved === null && (await stat(to).catch(nullFor("ENOENT"))) === null) break;
    }
  }
}

/** Removes the directories of owners that are certainly dead. One that cannot be removed does not stop the removal of the others. */
export async function reapLiveDirs(liveDir: string, self: Owner): Promise<ReapedDirs> {
  const removed: string[] = [];
  const failed: { name: string; error: unknown }[] = [];
  for (const { name, owner } of await ownerDirs(liveDir)) {
    if (!isDead(owner, self)) continue;
    try {
      // What is still mounted may still be written.
      if (await detachMountsBelow(join(liveDir, name))) await moveKept(join(liveDir, name));
      await removeOwnerDir(join(liveDir, name));
      removed.push(name);
    } catch (error) {
      failed.push({ name, error });
    }
  }
  return { removed, failed };
}

/** The directories of all owners, of dead ones too. Absolute if `liveDir` is. */
export async function allOwnerDirs(liveDir: string): Promise<string[]> {
  return (await ownerDirs(liveDir)).map(({ name }) => join(liveDir, name));
}

/** The directories of owners that are not certainly dead. Absolute if `liveDir` is. */
export async function livingOwnerDirs(liveDir: string, self: Owner): Promise<string[]> {
  const living = (await ownerDirs(liveDir)).filter(({ owner }) => !isDead(owner, self));
  return living.map(({ name }) => join(liveDir, name));
}

/** The owners that are not certainly dead. */
export async function livingOwners(liveDir: string, self: Owner): Promise<Owner[]> {
  return (await ownerDirs(liveDir)).map(({ owner }) => owner).filter((owner) => !isDead(owner, self));
}

/** The names of the directories of owners that are certainly dead: what {@link reapLiveDirs} would remove. */
export async function deadOwnerDirs(liveDir: string, self: Owner): Promise<string[]> {
  return (await ownerDirs(liveDir)).filter(({ owner }) => isDead(owner, self)).map(({ name }) => name);
}

async function ownerDirs(liveDir: string): Promise<{ readonly name: string; readonly owner: Owner }[]> {
  const found: { name: string; owner: Owner }[] = [];
  const names = await readdir(liveDir).catch(() => [] as string[]);
  for (const name of names.slice(0, MAX_OWNERS)) {
    const owner = parseOwner(await readFile(join(liveDir, name, OWNER_FILE), "utf8").catch(() => ""));
    if (owner !== null) found.push({ name, owner });
  }
  return found;
}

/** In each owner's directory, an empty file for each fleet that it runs. */
const FLEETS_DIR = "fleets";

/** Announces a running fleet to all orchestrators of a state directory, until it is disposed. */
export async function announceFleet(ownerDir: string, id: string): Promise<AsyncDisposable> {
  const file = join(ownerDir, FLEETS_DIR, id);
  await mkdir(join(ownerDir, FLEETS_DIR), { recursive: true, mode: 0o700 });
  await writeFile(file, "", { mode: 0o600 });
  return { [Symbol.asyncDispose]: () => rm(file, { force: true }) };
}

/** The number of fleets of all orchestrators of a state directory, of any project, that are not certainly dead. */
export async function countLiveFleets(liveDir: string, self: Owner): Promise<number> {
  const dirs = await livingOwnerDirs(liveDir, self);
  const fleets = await Promise.all(dirs.map((dir) => readdir(join(dir, FLEETS_DIR)).catch(() => [])));
  return fleets.flat().length;
}

/** In each owner's directory, what it says of the session that it holds. */
const SESSION_FILE = "session.json";

/** Announces a session that this process holds to all processes of this user, until the directory of its owner is removed. */
export async function announceSession(ownerDir: string, about: object): Promise<void> {
  await writeFile(join(ownerDir, SESSION_FILE), JSON.stringify(about), { mode: 0o600 });
}

/** What owners that are not certainly dead have announced, with their directories. It is not checked. */
export async function announcedSessions(
  liveDir: string,
  self: Owner,
): Promise<{ readonly dir: string; readonly rawAbout: string }[]> {
  const dirs = await livingOwnerDirs(liveDir, self);
  const found = await Promise.all(
    dirs.map(async (dir) => ({ dir, rawAbout: await readFile(join(dir, SESSION_FILE), "utf8").catch(() => "") })),
  );
  return found.filter(({ rawAbout }) => rawAbout !== "");
}
