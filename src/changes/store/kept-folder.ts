import { readFileSync, statSync } from "node:fs";
import { mkdir, readdir, rename } from "node:fs/promises";
import { join } from "node:path";
import { removeTree } from "../../files/host/system-program.ts";
import { hasCode } from "../../platform/errno.ts";
import { sha256 } from "../../platform/sha256.ts";
import { writeAtomically } from "../../platform/write-file.ts";
import { present } from "../../text/present.ts";
import { shellWord } from "../../text/visible.ts";
import { type ApplicationOptions, applyChangeset, continueApplication } from "../apply/application.ts";
import type { ApplyLimits, Settled } from "../apply/fitness.ts";
import { type ChangeOutcome, type Changeset, only } from "../model/changeset.ts";
import { isChangesetId, type KeptOutcome, type KeptState, parseChangeset, parseState } from "./record.ts";

/** The end of a changeset of a fleet's item: what is not `applied` was discarded or refused. */
export interface EndedChangeset {
  readonly id: string;
  readonly state: KeptState;
}

const ENDED = ".ended-";

/**
 * Changesets of fleets' items that ended, in the same directory, until {@link EndedChangesets.forget}: a process may die before the
 * fleet's journal knows their end.
 */
export class EndedChangesets {
  readonly #root: string;

  constructor(root: string) {
    this.#root = root;
  }

  /** `id`: only this one. */
  async *each(id: string | null): AsyncGenerator<EndedChangeset> {
    for (const name of id === null ? await namesIn(this.#root) : [`${ENDED}${id}`]) {
      const ended = name.startsWith(ENDED) ? name.slice(ENDED.length) : "";
      if (!isChangesetId(ended)) continue;
      const state = await new KeptFolder(join(this.#root, name)).readState().catch((error: unknown) => {
        // Another process has removed it meanwhile.
        if (error instanceof BrokenRecord) return null;
        throw error;
      });
      if (state !== null) yield { id: ended, state };
    }
  }

  /** Where the record of an ended one is. */
  folderOf(id: string): KeptFolder {
    return new KeptFolder(this.#of(id));
  }

  async add({ dir }: KeptFolder, { id }: KeptState): Promise<void> {
    await rename(dir, this.#of(id));
  }

  has(id: string): boolean {
    return isChangesetId(id) && isThere(this.#of(id));
  }

  async forget(id: string): Promise<void> {
    if (isChangesetId(id)) await removeTree(this.#of(id));
  }

  #of(id: string): string {
    return join(this.#root, `${ENDED}${id}`);
  }
}

/** An approval program may give a reason of any length. */
const MAX_REASON_CHARS = 1000;

/** The changes that a person can still apply: those that are not applied and not refused. */
function waitingIn({ changes }: Pick<Changeset, "changes">, state: KeptState): ReadonlySet<number> {
  const fit = new Set(changes.filter(({ refusal }) => refusal === null).map(({ index }) => index));
  return new Set(
    state.changes.filter((one) => one.outcome !== "applied" && fit.has(one.index)).map((one) => one.index),
  );
}

/**
 * The changes that were agreed to, and whose application had not begun when the process died: only these wait without a reason.
 * `keep` without a reason comes directly before an application.
 */
export function agreedIn({ changes }: KeptState): ReadonlySet<number> {
  const agreed = changes.filter(({ outcome, reason }) => outcome === "held" && reason === null);
  return new Set(agreed.map(({ index }) => index));
}

/** The first state of a kept changeset, with the reason why it waits. */
export function stateOf(changeset: Changeset, outcome: ChangeOutcome, reason: string | null): KeptState {
  const { version, id, run, worker, project, createdAt, changes, fleet } = changeset;
  const outcomes = changes.map(({ index, refusal }): KeptOutcome => {
    if (refusal !== null) return { index, outcome: "refused", reason: refusal };
    return { index, outcome, reason: reason === null ? null : reason.slice(0, MAX_REASON_CHARS) };
  });
  const of = present({ fleet });
  return { version, id, run, worker, project, createdAt, changes: outcomes, ...of };
}

/** The state with the new outcomes of some changes. */
export function withOutcomes(state: KeptState, fresh: readonly KeptOutcome[]): KeptState {
  const outcomes = new Map([...state.changes, ...fresh].map((one) => [one.index, one]));
  return { ...state, changes: [...outcomes.values()].sort((a, b) => a.index - b.index) };
}

export function outcomesOf(settled: readonly Settled[]): KeptOutcome[] {
  return settled.map(({ change: { index }, outcome, reason }) => ({ index, outcome, reason }));
}

/** A record that cannot be read. The message says why, in one line. */
export class BrokenRecord extends Error {}

const MAX_RECORD_BYTES = 256 * 1024 ** 2;

/** The directory of one kept changeset: its record, its state, the run's own versions, and the log of applying it. */
export class KeptFolder {
  readonly dir: string;

  constructor(dir: string) {
    this.dir = dir;
  }

  /** The directory of the run's own versions. The path in the record is not used, since the store may have moved. */
  content(mount: number): string {
    return join(this.dir, "content", String(mount));
  }

  /** There while changes are being applied, and afterwards where that was interrupted. */
  get applyLog(): string {
    return join(this.dir, "journal");
  }

  /** Locked by the process that works on the changeset. */
  get lock(): string {
    return join(this.dir, "owner");
  }

  /** False for one that was only made. */
  get isWritten(): boolean {
    return isThere(join(this.dir, "changeset.json"));
  }

  async readChangeset(): Promise<Changeset> {
    return this.located(await this.#read("changeset.json", parseChangeset));
  }

  /** The changeset with its content in this directory. */
  located(changeset: Changeset): Changeset {
    return {
      ...changeset,
      mounts: changeset.mounts.map((mount, index) => ({ ...mount, content: this.content(index) })),
    };
  }

  async read(): Promise<KeptChangeset> {
    const [changeset, state] = await Promise.all([this.readChangeset(), this.readState()]);
    return { changeset, state, waiting: waitingIn(changeset, state) };
  }

  async readState(): Promise<KeptState> {
    return await this.#read("state.json", parseState);
  }

  async writeChangeset(changeset: Changeset): Promise<void> {
    await this.#write("changeset.json", this.located(changeset));
  }

  async writeState(state: KeptState): Promise<void> {
    await this.#write("state.json", state);
  }

  /** Moves the run's own versions in. It is the same file system, so nothing is copied and no inode changes. */
  async takeContent({ mounts }: Pick<Changeset, "mounts">): Promise<void> {
    await mkdir(join(this.dir, "content"), { recursive: true, mode: 0o700 });
    for (const [index, mount] of mounts.entries()) await rename(mount.content, this.content(index));
  }

  async giveContentBack({ mounts }: Pick<Changeset, "mounts">): Promise<void> {
    for (const [index, mount] of mounts.entries()) await rename(this.content(index), mount.content);
  }

  /** At once: each step through Node's pool of threads takes longer than to read a small file, and a review of a fleet reads thousands. */
  async #read<T>(name: string, parse: (raw: unknown) => T): Promise<T> {
    const path = join(this.dir, name);
    try {
      if (statSync(path).size > MAX_RECORD_BYTES) throw new Error("it is too large");
      return parse(JSON.parse(readFileSync(path, "utf8")));
    } catch (cause) {
      throw new BrokenRecord(`${name}: ${whyBroken(cause)}`, { cause });
    }
  }

  async #write(name: string, value: unknown): Promise<void> {
    await writeAtomically(join(this.dir, name), JSON.stringify(value), { durable: true });
  }
}

function whyBroken(cause: unknown): string {
  if (hasCode(cause, "ENOENT")) return "it is missing";
  if (cause instanceof SyntaxError) return "it is not JSON";
  const { issues } = cause as { issues?: readonly { path: readonly PropertyKey[]; message: string }[] };
  const [first] = issues ?? [];
  if (first !== undefined) return `${first.path.map(String).join(".")}: ${first.message}`.replace(/^: /, "");
  return cause instanceof Error ? cause.message : String(cause);
}

/** Other errors are thrown: then it is not known. */
export function isThere(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch (error) {
    if (hasCode(error, "ENOTDIR")) return false;
    throw error;
  }
}

/** None if there is no such directory. */
export async function namesIn(dir: string): Promise<string[]> {
  return await readdir(dir).catch((error: unknown) => {
    if (hasCode(error, "ENOENT")) return [];
    throw error;
  });
}

export interface KeptChangeset {
  readonly changeset: Changeset;
  readonly state: KeptState;
  /** The indexes of the changes that can still be applied. */
  readonly waiting: ReadonlySet<number>;
}

/** One changeset in a list. */
export type Listed =
  | { readonly id: string; readonly ok: true; readonly state: KeptState; readonly applying: boolean }
  | { readonly id: string; readonly ok: false; readonly reason: string };

/**
 * Why nothing was done: the changeset does not exist, another process is working on it, its record cannot be read, or it is not
 * the one that was shown.
 */
export interface NotKept {
  readonly ok: false;
  readonly code: "missing" | "busy" | "broken" | "changed";
  readonly reason: string;
}

export type LoadedChangeset = ({ readonly ok: true } & KeptChangeset) | NotKept;
export type Applied = { readonly ok: true; readonly settled: readonly Settled[]; readonly left: number } | NotKept;
export type Discarded = { readonly ok: true } | NotKept;

/** An application that was interrupted because its process ended. */
export type Finished =
  | { readonly id: string; readonly ok: true; readonly changeset: Changeset; readonly settled: readonly Settled[] }
  | { readonly id: string; readonly ok: false; readonly reason: string };

export function missing(id: string): NotKept {
  const reason = isChangesetId(id) ? "there is no such changeset" : "that is not a changeset id";
  return { ok: false, code: "missing", reason };
}

/** `lock`: the file that it holds, if it cannot be seen from here whether it runs; else null. */
export function whyBusy(id: string, lock: string | null): string {
  const reason = `another process is working on changeset ${id}`;
  if (lock === null) return reason;
  const advice = `It runs, or ran, in another container or on another machine. If it has ended for good, remove its lock: rm ${shellWord(lock)}`;
  return `${reason}. ${advice}`;
}

export function changed(id: string): NotKept {
  return { ok: false, code: "changed", reason: `changeset ${id} is not what was shown any more: look at it again` };
}

/** A kept changeset whose application was completed. `settled`: what this call applied; null: nothing. */
export type Completed =
  | (Extract<LoadedChangeset, { ok: true }> & { readonly settled: readonly Settled[] | null })
  | NotKept;

/** A SHA-256 of what a person is shown of a changeset and what is applied: its directories and all its changes. */
export function changesetDigest({ id, project, mounts, changes }: Changeset): string {
  const places = mounts.map(({ path, target, targetIdentity, closed }) => [path, target, targetIdentity, closed]);
  return sha256(JSON.stringify([id, project, places, changes]));
}

/**
 * Records what was applied. It is called before the application is forgotten: if the process dies first, the one that finishes it records it.
 * `resumed`: it may be recorded already.
 */
export type RecordApplied = (
  changeset: Changeset,
  settled: readonly Settled[],
  how: { readonly resumed: boolean },
) => Promise<void>;

export interface KeptApplication extends ApplicationOptions {
  readonly limits?: ApplyLimits | undefined;
  readonly record?: RecordApplied | undefined;
}

/** Applies those of `which` that still wait. The outcomes are in the folder's state. */
export async function applyKept(
  folder: KeptFolder,
  { changeset, state, waiting }: KeptChangeset,
  which: ReadonlySet<number>,
  { record, ...options }: KeptApplication,
): Promise<Settled[]> {
  const agreed = changeset.changes.map(({ index }) => index).filter((index) => which.has(index) && waiting.has(index));
  const recorded = async (settled: readonly Settled[]) => await record?.(changeset, settled, { resumed: false });
  return await applyChangeset(changeset, agreed, { ...options, ...logIn(folder, state, recorded) });
}

/** Applies what was agreed to, after `before`. Null if nothing was. */
export async function applyAgreed(
  folder: KeptFolder,
  before: (agreed: Changeset) => Promise<void>,
  record: RecordApplied,
): Promise<readonly Settled[] | null> {
  const kept = await folder.read();
  const agreed = agreedIn(kept.state);
  if (agreed.size === 0) return null;
  await before(only(kept.changeset, agreed));
  return await applyKept(folder, kept, agreed, { record });
}

/** Continues an application whose process ended. Null if none was begun. */
export async function finishApplication(
  folder: KeptFolder,
  { signal, onStep, record }: KeptApplication,
): Promise<readonly Settled[] | null> {
  if (!isThere(folder.applyLog)) return null;
  const { changeset, state } = await folder.read();
  const recorded = async (settled: readonly Settled[]) => await record?.(changeset, settled, { resumed: true });
  return await continueApplication(changeset, { signal, onStep, ...logIn(folder, state, recorded) });
}

function logIn(
  folder: KeptFolder,
  state: KeptChangeset["state"],
  recorded: (settled: readonly Settled[]) => Promise<void>,
) {
  const onSettled = async (settled: readonly Settled[]): Promise<void> => {
    await folder.writeState(withOutcomes(state, outcomesOf(settled)));
    await recorded(settled);
  };
  return { logDir: folder.dir, onSettled };
}
