import fs from "node:fs";
import { chown, mkdir, readdir, readFile, rename, stat, utimes, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { z } from "zod";
import { Descriptor } from "../files/host/descriptor.ts";
import { removeTree } from "../files/host/system-program.ts";
import { hasCode } from "../platform/errno.ts";
import { CELL_USER_ID } from "../sandbox/policy.ts";
import { holdFile, isHeld } from "./file-lock.ts";
import { livingOwnerDirs } from "./live-dir.ts";
import { currentOwner, lockOwner, parseOwner } from "./owner.ts";
import { statePaths } from "./state-dir.ts";

export type ClosedTree =
  | { readonly ok: true; readonly bytes: number; readonly entries: number }
  /** `path` is from the tree; `reason` follows it. */
  | { readonly ok: false; readonly path: string; readonly reason: string };

const MAX_ENTRIES = 500_000;
const MAX_DEPTH = 100;
/** After so many names other work of the process gets a turn. */
const SLICE = 500;
const LINK_IN_TREE = /^(?:\.\.\/)*(?!\.\.?(?:\/|$))[^/]+(?:\/(?!\.\.?(?:\/|$))[^/]+)*\/?$/;

/**
 * Examines everything that a cell left in a tree, and closes it: every user may read it, and only Corral's user may write
 * it. What a package should never bring is refused: setuid and setgid, devices, FIFOs, sockets, links that may leave the tree.
 * Nothing runs that could change the tree meanwhile.
 */
export async function closeTree(dir: string, maxBytes: number): Promise<ClosedTree> {
  const walk = new Walk(maxBytes);
  using root = Descriptor.name(dir, true);
  const refused = await walk.folder(root, [], 0);
  return refused ?? { ok: true, bytes: walk.bytes, entries: walk.entries };
}

type Refused = Extract<ClosedTree, { ok: false }>;

class Walk {
  readonly #maxBytes: number;
  bytes = 0;
  entries = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  async folder(folder: Descriptor, names: readonly string[], depth: number): Promise<Refused | null> {
    for (const name of fs.readdirSync(folder.path(), { encoding: "buffer" })) {
      const path = [...names, name.toString()];
      const refuse = (reason: string): Refused => ({ ok: false, path: path.join("/"), reason });
      this.entries += 1;
      if (this.entries % SLICE === 0) await nextTurn();
      if (this.entries > MAX_ENTRIES) return refuse(`is one of more than ${MAX_ENTRIES} entries`);
      if (depth >= MAX_DEPTH) return refuse(`is deeper than ${MAX_DEPTH} folders`);
      const place = folder.path(name);
      const stats = fs.lstatSync(place);
      if (stats.isSymbolicLink()) {
        const text = fs.readlinkSync(place);
        // A link goes up first and then only down: so it stays in the tree, whatever other links it passes.
        const up = text.match(/^(?:\.\.\/)+/)?.[0].length ?? 0;
        const isInside = LINK_IN_TREE.test(text) && up / 3 <= depth;
        if (!isInside) return refuse("is a link that may lead out of it");
        ownedByCorral(place);
      } else if (stats.isDirectory()) {
        using inner = folder.child(name, true);
        fs.chmodSync(inner.path(), 0o700);
        const refused = await this.folder(inner, path, depth + 1);
        if (refused !== null) return refused;
        closed(inner.path(), 0o755);
      } else if (stats.isFile()) {
        if ((stats.mode & 0o6000) !== 0) return refuse("is setuid or setgid");
        this.bytes += stats.size;
        if (this.bytes > this.#maxBytes) return refuse(`is one of more than ${this.#maxBytes} bytes`);
        closed(place, (stats.mode & 0o100) === 0 ? 0o644 : 0o755);
      } else return refuse("is no file, folder or link");
    }
    if (depth === 0) closed(folder.path(), 0o755);
    return null;
  }
}

function closed(place: string | Buffer, mode: number): void {
  if (process.getuid?.() === 0) fs.chownSync(place, 0, 0);
  fs.chmodSync(place, mode);
}

function ownedByCorral(place: string | Buffer): void {
  if (process.getuid?.() === 0) fs.lchownSync(place, 0, 0);
}

/** Packages that were prepared once for cells. Everything that they depend on is in the digest. */
export interface StoredEnvironment {
  readonly digest: string;
  readonly kind: "pip" | "npm";
  /** For people: `pip:requirements.txt`. */
  readonly name: string;
  /** The mark of the project that had it prepared. Others with the same contents use it too. */
  readonly project: string;
  readonly sizeBytes: number;
  readonly entries: number;
  /** Milliseconds since 1970, of the last process that used it. */
  readonly usedAt: number;
  /** The directory that cells are shown. */
  readonly tree: string;
}

const Record = z.object({
  kind: z.enum(["pip", "npm"]),
  name: z.string(),
  project: z.string(),
  sizeBytes: z.number(),
  entries: z.number(),
});
export type EnvironmentRecord = z.infer<typeof Record>;

const DIGEST = /^[0-9a-f]{64}$/;
/** What is being prepared, or was when its process died. */
const UNFINISHED = ".new";
const RECORD = "record.json";
const TREE = "tree";
/** In an owner's directory: an empty file for each environment that the process uses. */
const USED_DIR = "environments";
/** Longer than a preparation may take. */
const MAX_WAIT_MS = 60 * 60_000;
const POLL_MS = 200;

/** All of them, the least recently used first. */
export async function storedEnvironments(stateDir: string): Promise<StoredEnvironment[]> {
  const { environments } = statePaths(stateDir);
  const names = await readdir(environments).catch((): string[] => []);
  const found = await Promise.all(names.filter((name) => DIGEST.test(name)).map((name) => find(environments, name)));
  return found.filter((one) => one !== null).sort((a, b) => a.usedAt - b.usedAt);
}

/**
 * The one with this digest, marked as used by the process of `ownerDir` until its end, so that it is not removed; null if there
 * is none. `ownerDir` null: only looks.
 */
export async function findEnvironment(
  stateDir: string,
  digest: string,
  ownerDir: string | null,
): Promise<StoredEnvironment | null> {
  const { environments } = statePaths(stateDir);
  if (ownerDir !== null) {
    await mkdir(join(ownerDir, USED_DIR), { recursive: true, mode: 0o700 });
    await writeFile(join(ownerDir, USED_DIR, digest), "", { mode: 0o600 });
  }
  const found = await find(environments, digest);
  if (found !== null && ownerDir !== null) await utimes(join(environments, digest, RECORD), new Date(), new Date());
  return found;
}

async function find(environments: string, digest: string): Promise<StoredEnvironment | null> {
  const dir = join(environments, digest);
  try {
    const file = join(dir, RECORD);
    const record = Record.parse(JSON.parse(await readFile(file, "utf8")));
    return { digest, ...record, usedAt: (await stat(file)).mtimeMs, tree: join(dir, TREE) };
  } catch (error) {
    // One that cannot be read is prepared again.
    if (hasCode(error, "ENOENT") || error instanceof SyntaxError || error instanceof z.ZodError) return null;
    throw error;
  }
}

export interface PreparationLock {
  readonly signal: AbortSignal;
  /** Called once, with its pid, if another process prepares the same. */
  readonly onWait: (pid: number) => void;
}

/**
 * Prepares one, unless another process did meanwhile: `fill` fills the empty directory that it is given and returns its record.
 * If it fails, nothing is left. Processes that want the same take turns.
 */
export async function prepareEnvironment(
  stateDir: string,
  digest: string,
  { signal, onWait }: PreparationLock,
  fill: (tree: string) => Promise<EnvironmentRecord>,
): Promise<void> {
  const { environments } = statePaths(stateDir);
  await mkdir(environments, { recursive: true, mode: 0o700 });
  await using _lock = await holdFile(join(environments, `${digest}.lock`), lockOwner(), {
    waitMs: MAX_WAIT_MS,
    longestPauseMs: POLL_MS,
    signal,
    onWait: (name) => onWait(parseOwner(name)?.pid ?? 0),
  });
  if ((await find(environments, digest)) !== null) return;
  const unfinished = join(environments, `${digest}${UNFINISHED}`);
  await removeTree(unfinished);
  await removeTree(join(environments, digest));
  try {
    await mkdir(join(unfinished, TREE), { recursive: true, mode: 0o700 });
    const record = await fill(join(unfinished, TREE));
    await writeFile(join(unfinished, RECORD), `${JSON.stringify(record)}\n`, { mode: 0o600 });
    await rename(unfinished, join(environments, digest));
  } finally {
    await removeTree(unfinished);
  }
}

/** False if a living process uses it, or is preparing it. What does not exist is removed already. */
export async function removeEnvironment(stateDir: string, digest: string): Promise<boolean> {
  const { environments, live } = statePaths(stateDir);
  const lock = join(environments, `${digest}.lock`);
  if (!DIGEST.test(digest) || (await isHeld(lock, lockOwner()))) return false;
  await using _lock = await holdFile(lock, lockOwner(), { waitMs: 0, longestPauseMs: 0 });
  if ((await usedDigests(live)).has(digest)) return false;
  const gone = join(environments, `${digest}${UNFINISHED}`);
  await removeTree(gone);
  // Removed under another name: a process that looks for it finds it whole or not at all.
  await rename(join(environments, digest), gone).catch((error: unknown) => {
    if (!hasCode(error, "ENOENT")) throw error;
  });
  await removeTree(gone);
  return true;
}

/** Directories of preparations whose process died; removes them. Returns their number. */
export async function removeUnfinished(stateDir: string): Promise<number> {
  const { environments } = statePaths(stateDir);
  let removed = 0;
  for (const name of await readdir(environments).catch((): string[] => [])) {
    const digest = basename(name, UNFINISHED);
    if (!name.endsWith(UNFINISHED) || !DIGEST.test(digest)) continue;
    if (await isHeld(join(environments, `${digest}.lock`), lockOwner())) continue;
    await removeTree(join(environments, name));
    removed += 1;
  }
  return removed;
}

async function usedDigests(live: string): Promise<ReadonlySet<string>> {
  const owners = await livingOwnerDirs(live, currentOwner());
  const used = await Promise.all(owners.map((dir) => readdir(join(dir, USED_DIR)).catch((): string[] => [])));
  return new Set(used.flat());
}

/**
 * Lets a cell write a directory of Corral's own, with these files in it. The plan takes the owner for the cell's user: as root
 * that is no user of the machine, else Corral's own.
 */
export async function lendTree(
  tree: string,
  files: readonly { readonly name: string; readonly content: Buffer }[],
): Promise<void> {
  for (const { name, content } of files) await writeFile(join(tree, name), content, { flag: "wx", mode: 0o644 });
  if (process.getuid?.() === 0) await chown(tree, CELL_USER_ID, CELL_USER_ID);
}
