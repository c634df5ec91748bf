import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { readdir, readFile, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { nullFor } from "../platform/errno.ts";
import { writeAtomically } from "../platform/write-file.ts";
import { livingOwnerDirs, watchNames } from "./live-dir.ts";
import type { Owner } from "./owner.ts";

/**
 * In each owner's directory: for each of its runs that can be granted more a file RUN, which names the root of its tree. A user gives it a
 * directory by a file RUN.ID.given, and the process of the run answers in RUN.ID.answer. Both are sealed.
 */
const GIVEN_DIR = "given";
const RUN = /^[0-9a-z-]{1,64}$/;
const GIVEN = /^([0-9a-z-]{1,64})\.([0-9a-f]{12})\.given$/;
/** A path, and a few words. */
const MAX_FILE_BYTES = 64 * 1024;
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
export type GivenAnswer =
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
export interface Taker {
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
