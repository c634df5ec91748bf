import fs from "node:fs";
import { sync } from "../../files/host/content.ts";
import type { Descriptor } from "../../files/host/descriptor.ts";
import { TEMPORARY_PREFIX } from "../../files/host/new-files.ts";
import { DiskFull, fullPlace, hasCode, isDiskFull } from "../../platform/errno.ts";
import { sha256 } from "../../platform/sha256.ts";
import { type Change, type Changeset, placeKey } from "../model/changeset.ts";
import { ApplyLog, type Intent, type Ready } from "./apply-log.ts";
import {
  APPLIED,
  type ApplyLimits,
  type ChangeVerdict,
  conflict,
  DEFAULT_LIMITS,
  fitness,
  impossible,
  isVerdict,
  refused,
  type Settled,
} from "./fitness.ts";
import {
  changeMode,
  isFolderThere,
  isOurs,
  type Made,
  makeFile,
  makeFolder,
  makeLink,
  NOT_OURS,
  place,
  remove,
} from "./make.ts";
import {
  type ChangeSlot,
  type CurrentEntry,
  currentEntry,
  OpenMounts,
  openContent,
  whyConflict,
} from "./open-mounts.ts";

/** The most changes that are flushed together. Each holds two descriptors open. */
const MAX_BATCH = 64;

/**
 * Groups consecutive changes that do not depend on each other: none needs a directory that another makes, or a name that
 * another frees. The order is kept.
 */
function* inBatches(changes: Iterable<Change>): Generator<readonly Change[]> {
  let batch: Change[] = [];
  let touched = new Set<string>();
  for (const change of changes) {
    const own = placeKey(change.mount, change.parts);
    if (
      batch.length === MAX_BATCH ||
      touched.has(own) ||
      touched.has(placeKey(change.mount, change.parts.slice(0, -1)))
    ) {
      yield batch;
      batch = [];
      touched = new Set();
    }
    batch.push(change);
    touched.add(own);
  }
  if (batch.length > 0) yield batch;
}

export interface ApplicationOptions {
  /** Changes that were not begun when it is aborted are `held`. */
  readonly signal?: AbortSignal | undefined;
  /** Called with the name of every step before it changes the disk. */
  readonly onStep?: ((step: string) => void) | undefined;
}

/** A change that is ready: its new entry is complete under a temporary name, or it needs none. */
interface Prepared {
  readonly change: Change;
  readonly slot: ChangeSlot;
  readonly temporary: string;
  readonly made: Made | null;
}

/**
 * Applies the approved changes of a log, from wherever the log ends. In batches: make everything ready, flush, log it, put it
 * in place, flush, log that. A step that was already done is recognized.
 */
export class Application implements Disposable {
  readonly #changeset: Changeset;
  readonly #log: ApplyLog;
  readonly #mounts: OpenMounts;
  readonly #unfit: (change: Change) => string | null;
  readonly #signal: AbortSignal | undefined;
  readonly #step: (step: string) => void;

  constructor(changeset: Changeset, log: ApplyLog, { signal, onStep }: ApplicationOptions) {
    this.#changeset = changeset;
    this.#log = log;
    this.#mounts = new OpenMounts(changeset);
    this.#unfit = fitness(changeset, new Set(log.intent.which), log.intent.limits);
    this.#signal = signal;
    this.#step = onStep ?? (() => {});
  }

  async run(): Promise<Settled[]> {
    const agreed = new Set(this.#log.intent.which);
    const settled = new Map<number, Settled>();
    const open: Change[] = [];
    for (const change of this.#changeset.changes.filter(({ index }) => agreed.has(index))) {
      const done = this.#log.done(change.index);
      if (done === undefined) open.push(change);
      else settled.set(change.index, { change, ...done });
    }
    for (const batch of inBatches(open)) {
      for (const one of await this.#applyBatch(batch)) settled.set(one.change.index, one);
    }
    return this.#changeset.changes.flatMap(({ index }) => settled.get(index) ?? []);
  }

  async #applyBatch(changes: readonly Change[]): Promise<Settled[]> {
    const prepared: Prepared[] = [];
    const settled: Settled[] = [];
    let isNoted = false;
    try {
      for (const change of changes) {
        const result = await this.#prepare(change);
        if (isVerdict(result)) settled.push({ change, ...result });
        else prepared.push(result);
      }
      const whole = await this.#synced(prepared, settled);
      this.#step("note what is ready");
      await this.#log.noteReady(whole.map(({ change: { index }, made }) => ({ index, inode: made?.inode ?? "" })));
      isNoted = true;
      for (const one of whole) settled.push({ change: one.change, ...this.#put(one) });
      await syncFolders(whole);
      this.#step("note what is done");
      this.#log.noteDone(settled);
      return settled;
    } catch (error) {
      if (!isDiskFull(error)) throw error;
      // What is not noted is made again when the application continues, and takes room until then.
      if (!isNoted) for (const { slot, temporary } of prepared) this.#sweep(slot, temporary);
      const targets = changes.map(({ mount }) => this.#changeset.mounts[mount]?.target ?? "/");
      throw new DiskFull(fullPlace(targets) ?? targets[0] ?? "/", { cause: error });
    } finally {
      for (const { made, slot } of prepared) {
        made?.descriptor[Symbol.dispose]();
        slot[Symbol.dispose]();
      }
    }
  }

  async #prepare(change: Change): Promise<Prepared | ChangeVerdict> {
    if (this.#signal?.aborted) return STOPPED;
    const unfit = this.#unfit(change);
    if (unfit !== null) return refused(unfit);
    try {
      const slot = this.#mounts.target(change.mount, change.parts);
      if (isVerdict(slot)) return this.#isGoneByUs(change, slot) ? APPLIED : slot;
      const result = await this.#prepareIn(slot, change);
      if (isVerdict(result)) slot[Symbol.dispose]();
      return result;
    } catch (error) {
      return impossible(error);
    }
  }

  /** A deletion that was ready when the process was killed may be done, and its parent directory deleted too. */
  #isGoneByUs({ index, kind }: Change, { outcome }: ChangeVerdict): boolean {
    return kind === "delete" && outcome === "conflict" && this.#log.ready(index) !== undefined;
  }

  async #prepareIn(slot: ChangeSlot, change: Change): Promise<Prepared | ChangeVerdict> {
    const temporary = temporaryName(this.#log.token, change.index);
    const now = currentEntry(slot.folder, slot.name);
    const ready = this.#log.ready(change.index);
    const resumed = ready === undefined ? null : this.#resume({ change, slot, temporary, now, ready });
    if (resumed !== null) return resumed;
    const planted = this.#sweep(slot, temporary);
    if (planted !== null) return planted;
    if (isFolderThere(change, now)) return APPLIED;
    const reason = whyConflict(change, now);
    if (reason !== null) return conflict(reason);
    if (!brings(change)) return { change, slot, temporary, made: null };
    const made = await this.#make(change, slot, temporary);
    return isVerdict(made) ? made : { change, slot, temporary, made };
  }

  /** Continues a change that was ready when the process was killed: in place, still under its temporary name, or lost (null). */
  #resume(of: Omit<Prepared, "made"> & { now: CurrentEntry; ready: Ready }): Prepared | ChangeVerdict | null {
    const { change, slot, temporary, now, ready } = of;
    if (change.kind === "delete") return now === null ? APPLIED : null;
    if (!brings(change)) return null;
    if (isOurs(now, change, ready.inode)) {
      this.#sweep(slot, temporary);
      return APPLIED;
    }
    if (!isOurs(currentEntry(slot.folder, temporary), change, ready.inode)) return null;
    const made = { inode: ready.inode, descriptor: slot.folder.child(temporary), unsynced: false };
    return { change, slot, temporary, made };
  }

  async #make(change: Change, slot: ChangeSlot, temporary: string): Promise<Made | ChangeVerdict> {
    const { next, type, linkText = "" } = change;
    const found = openContent(change, this.#mounts);
    if (isVerdict(found)) return found;
    using _ = found;
    const content = { ...found, ...this.#mounts.owner(change.mount, slot) };
    if (next === null) throw new RangeError("a deletion brings nothing");
    this.#step(`make ${change.index}`);
    try {
      let made: Made | ChangeVerdict;
      if (type === "link") made = makeLink(linkText, content, slot.folder, temporary);
      else if (type === "directory") made = makeFolder(next, content, slot.folder, temporary);
      else made = await makeFile(next, content, slot.folder, temporary, this.#signal);
      if (isVerdict(made)) this.#sweep(slot, temporary);
      return made;
    } catch (error) {
      this.#sweep(slot, temporary);
      if (this.#signal?.aborted) return STOPPED;
      throw error;
    }
  }

  /** Flushes new content. The system may report only now that the disk is full. */
  async #synced(prepared: readonly Prepared[], settled: Settled[]): Promise<Prepared[]> {
    const results = await Promise.allSettled(
      prepared.map(({ made }) => (made?.unsynced ? sync(made.descriptor) : Promise.resolve())),
    );
    return prepared.filter(({ change, slot, temporary }, at) => {
      const result = results[at];
      if (result?.status !== "rejected") return true;
      this.#sweep(slot, temporary);
      settled.push({ change, ...impossible(result.reason) });
      return false;
    });
  }

  #put({ change, slot, temporary, made }: Prepared): ChangeVerdict {
    this.#step(`put ${change.index}`);
    if (change.kind === "delete") return remove(change, slot);
    if (made === null) return changeMode(change, slot);
    const verdict = place(change, slot, temporary, made.inode);
    this.#sweep(slot, temporary);
    return verdict;
  }

  #sweep({ folder }: ChangeSlot, temporary: string): ChangeVerdict | null {
    return sweep(folder, temporary, () => this.#step("sweep"));
  }

  [Symbol.dispose](): void {
    this.#mounts[Symbol.dispose]();
  }
}

const STOPPED: ChangeVerdict = { outcome: "held", reason: "applying was stopped before this change" };

/** True if the change puts a new entry in place. */
function brings({ kind, type }: Change): boolean {
  return kind === "create" || (kind === "modify" && type !== "directory");
}

/** Flushes each folder once, so that the new names survive a crash of the machine. */
async function syncFolders(prepared: readonly Prepared[]): Promise<void> {
  const seen = new Set<string>();
  for (const { slot } of prepared) {
    const { dev, ino } = slot.folder.stat();
    if (seen.has(`${dev}:${ino}`)) continue;
    seen.add(`${dev}:${ino}`);
    try {
      using folder = slot.folder.again().reopenFolder();
      await sync(folder);
    } catch (error) {
      // A folder may be writable but not readable, and some file systems cannot flush a folder.
      if (!hasCode(error, "EACCES", "EINVAL")) throw error;
    }
  }
}

/** Always the same for one application and change, so that a leftover is found. Workers cannot guess it. */
export function temporaryName(token: string, index: number): string {
  return `${TEMPORARY_PREFIX}${sha256(`${token}:${index}`).slice(0, 32)}`;
}

/** Deletes what has the name of a temporary file, whether it is a leftover or was planted. A link is not followed. */
function sweep(folder: Descriptor, temporary: string, onStep: () => void): ChangeVerdict | null {
  const path = folder.path(temporary);
  const stats = fs.lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return null;
  onStep();
  try {
    if (stats.isDirectory()) fs.rmdirSync(path);
    else fs.unlinkSync(path);
  } catch (error) {
    if (hasCode(error, "ENOENT")) return null;
    if (hasCode(error, "ENOTEMPTY", "EISDIR", "ENOTDIR", "EPERM")) return NOT_OURS;
    throw error;
  }
  return null;
}

export interface LoggedApplicationOptions extends ApplicationOptions {
  /** A directory of Corral's own, for this changeset alone; created if it is missing. */
  readonly logDir: string;
  readonly limits?: ApplyLimits | undefined;
  /** Stores the verdicts before the log is removed. */
  readonly onSettled?: ((settled: readonly Settled[]) => Promise<void>) | undefined;
}

/**
 * Applies the approved changes of a changeset (`which`, by index), in order, and returns a verdict for each. A change is
 * applied whole or not at all, and only if its target is as the run found it. No link is followed.
 *
 * If the process is killed, {@link continueApplication} continues from the log. Rejects with {@link DiskFull} if there is no room: it can be
 * continued then too. Rejects if the log cannot be written.
 */
export async function applyChangeset(
  changeset: Changeset,
  which: Iterable<number>,
  { limits = DEFAULT_LIMITS, ...options }: LoggedApplicationOptions,
): Promise<Settled[]> {
  const intent = { id: changeset.id, which: [...which], limits };
  using log = ApplyLog.open(options.logDir) ?? begun(intent, options);
  if (!isSame(intent, log.intent)) throw new Error(`changeset ${changeset.id} is already being applied`);
  return await applied(changeset, log, options);
}

/** Continues an interrupted application with the changes that were approved then. Null if there is none. */
export async function continueApplication(
  changeset: Changeset,
  options: Omit<LoggedApplicationOptions, "limits">,
): Promise<Settled[] | null> {
  using log = ApplyLog.open(options.logDir);
  if (log === null) return null;
  if (log.intent.id !== changeset.id) throw new Error(`the log does not belong to changeset ${changeset.id}`);
  return await applied(changeset, log, options);
}

async function applied(
  changeset: Changeset,
  log: ApplyLog,
  { logDir, onSettled, ...options }: Omit<LoggedApplicationOptions, "limits">,
): Promise<Settled[]> {
  using application = new Application(changeset, log, options);
  const settled = await application.run();
  await onSettled?.(settled);
  options.onStep?.("forget");
  ApplyLog.forget(logDir);
  return settled;
}

function begun(intent: Intent, { logDir, onStep }: LoggedApplicationOptions): ApplyLog {
  onStep?.("begin");
  return ApplyLog.begin(logDir, intent);
}

function isSame(a: Intent, b: Intent): boolean {
  return a.id === b.id && JSON.stringify([a.which, a.limits]) === JSON.stringify([b.which, b.limits]);
}
