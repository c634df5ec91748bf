import { randomUUID } from "node:crypto";
import { mkdir, rename } from "node:fs/promises";
import { join } from "node:path";
import { removeTree } from "../../files/host/remove-tree.ts";
import { hasCode } from "../../platform/errno.ts";
import { isHeld, type LockOwner, tryHoldFile } from "../../state/file-lock.ts";
import { statePaths } from "../../state/state-paths.ts";
import type { ApplicationOptions } from "../apply/application.ts";
import { applyChangeset, finishInterrupted } from "../apply/apply.ts";
import { BrokenApplyLog } from "../apply/apply-log.ts";
import type { ApplyLimits } from "../apply/fitness.ts";
import { flushContent } from "../apply/flush-content.ts";
import type { Settled } from "../apply/verdict.ts";
import { type ChangeOutcome, type Changeset, only } from "../model/changeset.ts";
import { EndedChangesets } from "./ended-changesets.ts";
import { isThere, namesIn } from "./existing.ts";
import {
  type Applied,
  busy,
  type Completed,
  changed,
  type Discarded,
  digestOf,
  type Finished,
  type KeptChangeset,
  type Listed,
  type Loaded,
  missing,
  type NotKept,
} from "./kept-changeset.ts";
import { BrokenRecord, KeptFolder } from "./kept-folder.ts";
import { isChangesetId } from "./record.ts";
import { agreedIn, outcomesOf, stateOf, waitingIn, withOutcomes } from "./waiting.ts";

export interface StoreOptions extends ApplicationOptions {
  /** What was shown: see {@link digestOf}. If the changeset has another digest now, nothing is applied. */
  readonly digest?: string | undefined;
  readonly limits?: ApplyLimits | undefined;
  /** The changes are kept already, without a reason: see {@link ChangesetStore.complete}. */
  readonly isKept?: boolean;
}

/**
 * Changesets that are being applied or wait for a person: `changes/ID/` in the state directory, each locked by one process
 * at a time. An applied changeset is removed. Others stay until they are applied or discarded.
 */
export class ChangesetStore {
  readonly #root: string;
  readonly #owner: LockOwner;
  /** Of fleets' items. */
  readonly ended: EndedChangesets;

  constructor(stateDir: string, owner: LockOwner) {
    this.#root = statePaths(stateDir).changes;
    this.#owner = owner;
    this.ended = new EndedChangesets(this.#root);
  }

  /** Stores a changeset and moves its content here. If it is already stored, its further changes are added. */
  async keep(changeset: Changeset, outcome: ChangeOutcome, reason: string | null = null): Promise<void> {
    const folder = this.#folder(changeset.id);
    await mkdir(this.#root, { recursive: true, mode: 0o700 });
    if (!(await isMade(folder.dir))) return await this.#keepMore(folder, changeset, outcome, reason);
    await using _ = await this.#held(folder);
    await folder.writeChangeset(changeset);
    await folder.takeContent(changeset);
    await folder.writeState(stateOf(changeset, outcome, reason));
  }

  /** The content of these changes, which are kept, is on the disk: it is the same after a power failure. */
  async flush(changeset: Changeset, which: ReadonlySet<number>): Promise<void> {
    await flushContent(only(this.#folder(changeset.id).located(changeset), which));
  }

  /**
   * Applies changes of a run that has just ended, so that another process can finish it. What cannot be applied is kept. If all
   * is applied, the content is moved back, since other changes of the run may still have to be kept.
   */
  async apply(changeset: Changeset, which: ReadonlySet<number>, options: StoreOptions = {}): Promise<Settled[]> {
    const changes = changeset.changes.filter(({ index }) => which.has(index));
    if (options.isKept !== true) await this.keep({ ...changeset, changes }, "held");
    const folder = this.#folder(changeset.id);
    await using held = await this.#hold(folder);
    if (held === null) {
      if (options.isKept !== true) throw new Error("another process is working on this changeset");
      return changes.map((change): Settled => ({ change, outcome: "held", reason: FINISHED_ELSEWHERE }));
    }
    const kept = await read(folder);
    const settled = await this.#apply(folder, kept, which, options);
    if ((await read(folder)).waiting.size === 0) {
      await folder.giveContentBack(changeset);
      await this.#remove(folder);
    }
    return settled;
  }

  /** The oldest first; those that cannot be read come last. */
  async list(): Promise<Listed[]> {
    const listed: Listed[] = [];
    for (const id of await this.#ids()) {
      const folder = this.#folder(id);
      try {
        const state = await folder.readState();
        listed.push({ id, ok: true, state, applying: await isHeld(folder.lock, this.#owner) });
      } catch (error) {
        if (!(error instanceof BrokenRecord)) throw error;
        if (!(await isHeld(folder.lock, this.#owner))) listed.push({ id, ok: false, reason: error.message });
      }
    }
    const age = (one: Listed): string => (one.ok ? one.state.createdAt : "~");
    return listed.sort((a, b) => (age(a) < age(b) ? -1 : age(a) > age(b) ? 1 : 0));
  }

  async load(id: string): Promise<Loaded> {
    if (!this.#has(id)) return missing(id);
    return await this.#unlessBroken(id, async () => ({ ok: true, ...(await read(this.#folder(id))) }));
  }

  /** Applies some of the waiting changes. If none is left, the changeset is removed. */
  async applyKept(id: string, which: ReadonlySet<number>, options: StoreOptions = {}): Promise<Applied> {
    if (!this.#has(id)) return missing(id);
    const folder = this.#folder(id);
    await using held = await this.#hold(folder);
    if (held === null) return busy(id);
    return await this.#unlessBroken(id, async () => {
      await this.#finish(folder, options);
      const kept = await read(folder);
      if (options.digest !== undefined && options.digest !== digestOf(kept.changeset)) return changed(id);
      const settled = await this.#apply(folder, kept, which, options);
      const left = (await read(folder)).waiting.size;
      if (left === 0) await this.#end(folder);
      return { ok: true, settled, left };
    });
  }

  /**
   * Completes what was agreed to of a changeset whose process died: continues its application, or begins it after `before`. One that
   * ended, by this or by another process, stays known until {@link EndedChangesets.forget}. `missing`: all of it was applied before.
   */
  async complete(id: string, before: (agreed: Changeset) => Promise<void>): Promise<Completed> {
    if (this.ended.has(id))
      return await this.#unlessBroken(id, async () => {
        return { ok: true, ...(await read(this.ended.folderOf(id))), settled: null };
      });
    if (!this.#has(id)) return missing(id);
    const folder = this.#folder(id);
    await using held = await this.#hold(folder);
    if (held === null) return busy(id);
    return await this.#unlessBroken(id, async () => {
      const settled = (await this.#finish(folder, {})) ?? (await this.#begin(folder, before));
      const kept = await read(folder);
      if (kept.waiting.size === 0) await this.#end(folder);
      return { ok: true, ...kept, settled };
    });
  }

  /** Removes a changeset at once, with what waits there, and no journal learns of it. False if another process works on it. */
  async drop(id: string): Promise<boolean> {
    if (!this.#has(id)) return false;
    const folder = this.#folder(id);
    await using held = await this.#hold(folder);
    if (held === null) return false;
    await this.#remove(folder);
    return true;
  }

  /** The changesets of the trees of runs below `roots` that were agreed to and not applied. `begun`: their application had begun. */
  async leftOf(roots: ReadonlySet<string>): Promise<{ readonly id: string; readonly begun: boolean }[]> {
    const found: { id: string; begun: boolean }[] = [];
    if (roots.size === 0) return found;
    for (const id of await this.#ids()) {
      const folder = this.#folder(id);
      try {
        const begun = isThere(folder.applyLog);
        if (!begun && agreedIn(await folder.readState()).size === 0) continue;
        if (roots.has((await folder.readChangeset()).root)) found.push({ id, begun });
      } catch (error) {
        if (!(error instanceof BrokenRecord)) throw error;
      }
    }
    return found;
  }

  /** True while it waits, and until the journal of its fleet knows its end. */
  isKnown(id: string): boolean {
    return this.#has(id) || this.ended.has(id);
  }

  /** Removes a changeset, after finishing an interrupted application. One that cannot be read is removed as it is. `digest`: see {@link StoreOptions}. */
  async discard(id: string, digest?: string): Promise<Discarded> {
    if (!this.#has(id)) return missing(id);
    const folder = this.#folder(id);
    await using held = await this.#hold(folder);
    if (held === null) return busy(id);
    const finished = await this.#unlessBroken(id, async () => {
      await this.#finish(folder, {});
      if (digest !== undefined && digest !== digestOf(await folder.readChangeset())) return changed(id);
      return { ok: true };
    });
    if (!finished.ok && (finished.code !== "broken" || digest !== undefined)) return finished;
    await this.#end(folder);
    return { ok: true };
  }

  /** Finishes all applications and removals that were interrupted because their process ended. */
  async finishInterrupted(options: ApplicationOptions = {}): Promise<Finished[]> {
    const finished: Finished[] = [];
    for (const id of await this.#ids()) {
      const folder = this.#folder(id);
      if (!isThere(folder.applyLog) && (await this.#seemsToWait(folder))) continue;
      await using held = await this.#hold(folder);
      if (held === null) continue;
      const done = await this.#unlessBroken(id, async () => {
        const settled = await this.#finish(folder, options);
        const { changeset, waiting } = await read(folder);
        if (waiting.size === 0) await this.#end(folder);
        return { ok: true, changeset, settled };
      });
      if (!done.ok) finished.push({ id, ok: false, reason: done.reason });
      else if (done.settled !== null) finished.push({ id, ok: true, changeset: done.changeset, settled: done.settled });
    }
    await this.#clear();
    return finished;
  }

  async #keepMore(
    folder: KeptFolder,
    changeset: Changeset,
    outcome: ChangeOutcome,
    reason: string | null,
  ): Promise<void> {
    await using _ = await this.#held(folder);
    const kept = await read(folder);
    const changes = new Map([...kept.changeset.changes, ...changeset.changes].map((change) => [change.index, change]));
    await folder.writeChangeset({
      ...kept.changeset,
      changes: [...changes.values()].sort((a, b) => a.index - b.index),
    });
    await folder.writeState(withOutcomes(kept.state, stateOf(changeset, outcome, reason).changes));
  }

  /** Null if nothing was agreed to. */
  async #begin(folder: KeptFolder, before: (agreed: Changeset) => Promise<void>): Promise<readonly Settled[] | null> {
    const kept = await read(folder);
    const agreed = agreedIn(kept.state);
    if (agreed.size === 0) return null;
    await before(only(kept.changeset, agreed));
    return await this.#apply(folder, kept, agreed, {});
  }

  async #apply(
    folder: KeptFolder,
    { changeset, state, waiting }: KeptChangeset,
    which: ReadonlySet<number>,
    options: StoreOptions,
  ): Promise<Settled[]> {
    const agreed = changeset.changes.filter(({ index }) => which.has(index) && waiting.has(index));
    return await applyChangeset(
      changeset,
      agreed.map(({ index }) => index),
      {
        ...options,
        logDir: folder.dir,
        onSettled: async (settled) => await folder.writeState(withOutcomes(state, outcomesOf(settled))),
      },
    );
  }

  /** Null if no application was begun. */
  async #finish(folder: KeptFolder, { signal, onStep }: ApplicationOptions): Promise<readonly Settled[] | null> {
    if (!isThere(folder.applyLog)) return null;
    const { changeset, state } = await read(folder);
    return await finishInterrupted(changeset, {
      signal,
      onStep,
      logDir: folder.dir,
      onSettled: async (settled) => await folder.writeState(withOutcomes(state, outcomesOf(settled))),
    });
  }

  /** Reads only the state, which is faster. A state that cannot be read also waits for a person. */
  async #seemsToWait(folder: KeptFolder): Promise<boolean> {
    try {
      const { changes } = await folder.readState();
      return changes.some(({ outcome }) => outcome !== "applied" && outcome !== "refused");
    } catch (error) {
      if (error instanceof BrokenRecord) return true;
      throw error;
    }
  }

  async #ids(): Promise<string[]> {
    return (await namesIn(this.#root)).filter(isChangesetId);
  }

  #has(id: string): boolean {
    return isChangesetId(id) && isThere(this.#folder(id).dir);
  }

  #folder(id: string): KeptFolder {
    if (!isChangesetId(id)) throw new RangeError("not a changeset id");
    return new KeptFolder(join(this.#root, id));
  }

  /** Null if another process is working on it, or has just removed it. */
  async #hold(folder: KeptFolder): Promise<AsyncDisposable | null> {
    try {
      return await tryHoldFile(folder.lock, this.#owner);
    } catch (error) {
      if (hasCode(error, "ENOENT")) return null;
      throw error;
    }
  }

  async #held(folder: KeptFolder): Promise<AsyncDisposable> {
    const held = await this.#hold(folder);
    if (held === null) throw new Error("another process is working on this changeset");
    return held;
  }

  async #unlessBroken<T extends { readonly ok: true }>(
    id: string,
    act: () => Promise<T | NotKept>,
  ): Promise<T | NotKept> {
    try {
      return await act();
    } catch (error) {
      if (!(error instanceof BrokenRecord) && !(error instanceof BrokenApplyLog)) throw error;
      return { ok: false, code: "broken", reason: `the record of changeset ${id} cannot be read: ${error.message}` };
    }
  }

  /** Renamed first, so that it disappears from the list at once. */
  async #remove(folder: KeptFolder): Promise<void> {
    const away = join(this.#root, `${REMOVED}${randomUUID()}`);
    await rename(folder.dir, away);
    await removeTree(away);
  }

  /** The end of an item's changeset stays until the journal of its fleet knows it. */
  async #end(folder: KeptFolder): Promise<void> {
    const state = await folder.readState().catch((error: unknown) => {
      if (error instanceof BrokenRecord) return null;
      throw error;
    });
    if (state?.fleet === undefined) return await this.#remove(folder);
    await this.ended.add(folder, state);
  }

  async #clear(): Promise<void> {
    for (const name of await namesIn(this.#root)) {
      if (name.startsWith(REMOVED)) await removeTree(join(this.#root, name));
    }
  }
}

const REMOVED = ".removed-";
const FINISHED_ELSEWHERE = "another process finishes the run in place of this one";

async function read(folder: KeptFolder): Promise<KeptChangeset> {
  const [changeset, state] = await Promise.all([folder.readChangeset(), folder.readState()]);
  return { changeset, state, waiting: waitingIn(changeset, state) };
}

/** False if it already exists. */
async function isMade(dir: string): Promise<boolean> {
  try {
    await mkdir(dir, { mode: 0o700 });
    return true;
  } catch (error) {
    if (hasCode(error, "EEXIST")) return false;
    throw error;
  }
}
