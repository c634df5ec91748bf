import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { mkdir, open, readdir, readFile, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { hasCode, nullFor } from "../platform/errno.ts";
import { writeAtomically } from "../platform/write-file.ts";
import { livingOwnerDirs, watchNames } from "./live-dir.ts";
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
  #watching: Disposable | null = null;
  #made: Promise<unknown> | null = null;

  /** `onRemoved` may come too often, and never rejects. */
  constructor(ownerDir: string, onRemoved: () => void) {
    this.#dir = join(ownerDir, GRANTS_DIR);
    this.#onRemoved = onRemoved;
  }

  async add(grant: LiveGrant): Promise<void> {
    this.#made ??= mkdir(this.#dir, { recursive: true, mode: 0o700 });
    await this.#made;
    this.#watching ??= watchNames(this.#dir, this.#onRemoved);
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
    this.#watching?.[Symbol.dispose]();
    if (this.#made === null) return;
    await this.#made.catch(() => {});
    await rm(this.#dir, { recursive: true, force: true });
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

/**
 * In each owner's directory: for each of its runs that can be granted more a file RUN, which names the root of its tree. A user gives it a
 * directory by a file RUN.ID.given, and the process of the run answers in RUN.ID.answer. Both are sealed.
 */
const GIVEN_DIR = "given";
const RUN = /^[0-9a-z-]{1,64}$/;
const GIVEN = /^([0-9a-z-]{1,64})\.([0-9a-f]{12})\.given$/;
const LOOK_MS = 50;
/** For as long as the process of a run may take to answer: it may be at another change of its grants. */
const ANSWER_MS = 60_000;

/** What a user gives to a running worker. */
export interface GivenDirectory {
  /** As the worker would ask for it. */
  readonly path: string;
  readonly mode: "read" | "write";
  /** Who gives it. */
  readonly by: string;
}

/** `id`: of the grant; null: the worker already had it. */
type GivenAnswer =
  | { readonly granted: true; readonly id: string | null; readonly directory: string; readonly mode: "read" | "write" }
  | { readonly granted: false; readonly code: string; readonly message: string };

export type TakeGiven = (given: GivenDirectory) => Promise<GivenAnswer>;

/** The runs of this process to which every process of this user can give directories. */
export class GivenGrants implements Disposable {
  readonly #dir: string;
  readonly #key: () => Buffer;
  readonly #takers = new Map<string, TakeGiven>();
  #watching: Disposable | null = null;

  /** `key`: see `loadSealKey`. */
  constructor(ownerDir: string, key: () => Buffer) {
    this.#dir = join(ownerDir, GIVEN_DIR);
    this.#key = key;
  }

  /** `take` must not reject. */
  add(run: string, root: string, take: TakeGiven): void {
    mkdirSync(this.#dir, { recursive: true, mode: 0o700 });
    this.#watching ??= watchNames(this.#dir, () => this.#look());
    writeFileSync(join(this.#dir, run), root, { mode: 0o600 });
    this.#takers.set(run, take);
  }

  remove(run: string): void {
    if (!this.#takers.delete(run)) return;
    if (this.#takers.size === 0) this[Symbol.dispose]();
    else rmSync(join(this.#dir, run), { force: true });
  }

  [Symbol.dispose](): void {
    if (this.#watching === null) return;
    this.#watching[Symbol.dispose]();
    this.#watching = null;
    rmSync(this.#dir, { recursive: true, force: true });
  }

  #look(): void {
    for (const name of namesIn(this.#dir)) {
      const [, run = "", id = ""] = GIVEN.exec(name) ?? [];
      const take = this.#takers.get(run);
      if (take !== undefined) void this.#take(name, `${run}.${id}.answer`, take).catch(() => {});
    }
  }

  async #take(name: string, answerName: string, take: TakeGiven): Promise<void> {
    const path = join(this.#dir, name);
    const { size } = statSync(path);
    const text = size > MAX_FILE_BYTES ? "" : readFileSync(path, "utf8");
    // At once, so that it is taken once.
    rmSync(path);
    const given = unsealed<GivenDirectory>(this.#key(), name, text);
    if (given === null) return;
    await writeAtomically(join(this.#dir, answerName), sealed(this.#key(), answerName, await take(given)));
  }
}

function namesIn(dir: string): string[] {
  try {
    return readdirSync(dir);
  } catch {
    return [];
  }
}

/** A running worker that can be granted more. */
interface Taker {
  readonly run: string;
  readonly root: string;
  readonly sinceMs: number;
  readonly dir: string;
}

/** Those of all orchestrators that are not certainly dead, the newest first. */
export async function takersIn(liveDir: string, self: Owner): Promise<Taker[]> {
  const found: Taker[] = [];
  for (const ownerDir of await livingOwnerDirs(liveDir, self)) {
    const dir = join(ownerDir, GIVEN_DIR);
    for (const run of await readdir(dir).catch(() => [] as string[])) {
      if (!RUN.test(run)) continue;
      const path = join(dir, run);
      const [root, at] = await Promise.all([readFile(path, "utf8"), stat(path)]).catch(() => ["", null] as const);
      if (at !== null) found.push({ run, root, sinceMs: at.mtimeMs, dir });
    }
  }
  return found.toSorted((a, b) => b.sinceMs - a.sinceMs);
}

/** Null: the run has ended, or its process does not answer. `key`: see `loadSealKey`. */
export async function giveDirectory(
  { run, dir }: Taker,
  given: GivenDirectory,
  key: Buffer,
): Promise<GivenAnswer | null> {
  const id = randomBytes(6).toString("hex");
  const [name, answerName] = [`${run}.${id}.given`, `${run}.${id}.answer`];
  const answerPath = join(dir, answerName);
  await writeAtomically(join(dir, name), sealed(key, name, given)).catch(nullFor("ENOENT"));
  try {
    for (let waited = 0; waited < ANSWER_MS; waited += LOOK_MS) {
      // Looked at before the answer is read: a run that ends may have answered just before.
      const isThere = await stat(join(dir, run)).then(() => true, nullFor("ENOENT"));
      const text = await readFile(answerPath, "utf8").catch(nullFor("ENOENT"));
      if (text !== null) return unsealed<GivenAnswer>(key, answerName, text);
      if (!isThere) return null;
      await sleep(LOOK_MS);
    }
    return null;
  } finally {
    await Promise.all([name, answerName].map((each) => rm(join(dir, each), { force: true })));
  }
}

function sealed(key: Buffer, name: string, value: GivenDirectory | GivenAnswer): string {
  const json = JSON.stringify(value);
  return `${sealFor(key, name, json)}\n${json}\n`;
}

/** Null: not exactly what a process with this key has written under this name. */
function unsealed<T extends GivenDirectory | GivenAnswer>(key: Buffer, name: string, text: string): T | null {
  const [, seal = "", json = ""] = /^([0-9a-f]{64})\n(.*)\n$/s.exec(text) ?? [];
  const [given, expected] = [Buffer.from(seal), Buffer.from(sealFor(key, name, json))];
  return given.length === expected.length && timingSafeEqual(given, expected) ? (JSON.parse(json) as T) : null;
}

function sealFor(key: Buffer, name: string, json: string): string {
  return createHmac("sha256", key).update(`given\0${name}\0${json}`).digest("hex");
}
