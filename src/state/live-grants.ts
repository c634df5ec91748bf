import { type FSWatcher, watch } from "node:fs";
import { mkdir, open, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { hasCode, nullFor } from "../platform/errno.ts";
import { writeAtomically } from "../platform/write-file.ts";
import { livingOwnerDirs } from "./live-dir.ts";
import type { Owner } from "./owner.ts";

/** In each owner's directory, a file for each of its grants. It is for people, so it contains host paths. */
const GRANTS_DIR = "grants";
const FILE = /^([0-9a-f]{12})\.json$/;
/** One grant in JSON, with a path and a few names, is far smaller. */
const MAX_FILE_BYTES = 64 * 1024;
/** More grants than any machine has; the rest is not read. */
const MAX_GRANTS = 10_000;

/** What a running worker was granted, as `corral grants` shows it. */
export type LiveGrant = LiveDirectoryGrant | LiveHostGrant;

interface Live {
  readonly id: string;
  readonly run: string;
  /** The root of its tree. */
  readonly root: string;
  readonly worker: string;
  /** The workers from the root run down to the one that requested it. */
  readonly through: readonly string[];
  /** ISO 8601. */
  readonly grantedAt: string;
}

export interface LiveDirectoryGrant extends Live {
  /** As the worker knows it. */
  readonly directory: string;
  /** On the host. */
  readonly host: string;
  readonly mode: "read" | "write";
  readonly scope: "tree" | "session";
}

export interface LiveHostGrant extends Live {
  /** `host:port`. */
  readonly to: string;
  /** `once`: until the run that asked has ended. */
  readonly scope: "once" | "tree" | "session";
}

/**
 * The grants of this process, as files that every process of this user can list. Removing a file revokes the grant: its
 * file is checked before each use, and watched.
 */
export class GrantFiles implements AsyncDisposable {
  readonly #dir: string;
  readonly #onRemoved: () => void;
  #watcher: FSWatcher | null = null;
  #made: Promise<unknown> | null = null;

  /** `onRemoved` may come too often, and never rejects. */
  constructor(ownerDir: string, onRemoved: () => void) {
    this.#dir = join(ownerDir, GRANTS_DIR);
    this.#onRemoved = onRemoved;
  }

  async add(grant: LiveGrant): Promise<void> {
    this.#made ??= mkdir(this.#dir, { recursive: true, mode: 0o700 });
    await this.#made;
    this.#watcher ??= this.#watch();
    // Other processes read it at any time.
    await writeAtomically(join(this.#dir, `${grant.id}.json`), `${JSON.stringify(grant)}\n`);
  }

  async remove(id: string): Promise<void> {
    await rm(join(this.#dir, `${id}.json`), { force: true });
  }

  /** The ids that are still valid. A directory that cannot be read has none. */
  async standing(): Promise<ReadonlySet<string>> {
    const names = await readdir(this.#dir).catch(() => [] as string[]);
    return new Set(names.flatMap((name) => FILE.exec(name)?.[1] ?? []));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#watcher?.close();
    if (this.#made === null) return;
    await this.#made.catch(() => {});
    await rm(this.#dir, { recursive: true, force: true });
  }

  /** Without a watcher a revocation is noticed at the next use. */
  #watch(): FSWatcher | null {
    try {
      const watcher = watch(this.#dir, { persistent: false }, (event) => event === "rename" && this.#onRemoved());
      return watcher.on("error", () => watcher.close());
    } catch {
      return null;
    }
  }
}

/** The grants of all orchestrators of a state directory that are not certainly dead, oldest first. */
export async function listLiveGrants(liveDir: string, self: Owner): Promise<LiveGrant[]> {
  const found: LiveGrant[] = [];
  for (const { path } of await grantFilesIn(liveDir, self)) {
    const grant = await readGrant(path);
    if (grant !== null) found.push(grant);
  }
  return found.toSorted((a, b) => (a.grantedAt < b.grantedAt ? -1 : 1));
}

/** Revokes a grant; false if there is no such grant. */
export async function revokeLiveGrant(liveDir: string, self: Owner, id: string): Promise<boolean> {
  const file = (await grantFilesIn(liveDir, self)).find((each) => each.id === id);
  if (file === undefined) return false;
  return (await rm(file.path).then(() => true, nullFor("ENOENT"))) ?? false;
}

async function grantFilesIn(liveDir: string, self: Owner): Promise<{ id: string; path: string }[]> {
  const files: { id: string; path: string }[] = [];
  for (const ownerDir of await livingOwnerDirs(liveDir, self)) {
    const dir = join(ownerDir, GRANTS_DIR);
    for (const entry of await readdir(dir).catch(() => [] as string[])) {
      const id = FILE.exec(entry)?.[1];
      if (id !== undefined && files.length < MAX_GRANTS) files.push({ id, path: join(dir, entry) });
    }
  }
  return files;
}

/** Null for a grant that was revoked meanwhile. */
async function readGrant(path: string): Promise<LiveGrant | null> {
  try {
    await using file = await open(path);
    const { size } = await file.stat();
    return size > MAX_FILE_BYTES ? null : (JSON.parse(await file.readFile("utf8")) as LiveGrant);
  } catch (error) {
    if (error instanceof SyntaxError || hasCode(error, "ENOENT")) return null;
    throw error;
  }
}
