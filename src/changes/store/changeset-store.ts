import { randomUUID } from "node:crypto";
import { mkdir, rename } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { removeTree } from "../../files/host/system-program.ts";
import { hasCode, isDiskFull } from "../../platform/errno.ts";
import { holderOf, isHeld, type LockOwner, tryHoldFile } from "../../state/file-lock.ts";
import { isOutOfSight } from "../../state/owner.ts";
import { statePaths } from "../../state/state-dir.ts";
import { BrokenApplyLog } from "../apply/apply-log.ts";
import type { Settled } from "../apply/fitness.ts";
import { flushContent } from "../apply/open-mounts.ts";
import { type ChangeOutcome, type Changeset, only } from "../model/changeset.ts";
import {
  type Applied,
  agreedIn,
  applyAgreed,
  applyKept,
  BrokenRecord,
  type Completed,
  changed,
  changesetDigest,
  type Discarded,
  EndedChangesets,
  type Finished,
  finishApplication,
  isThere,
  type KeptApplication,
  KeptFolder,
  type Listed,
  type LoadedChangeset,
  missing,
  type NotKept,
  namesIn,
  type RecordApplied,
  stateOf,
  whyBusy,
  withOutcomes,
} from "./kept-folder.ts";
import { isChangesetId } from "./record.ts";

const REMOVED = ".removed-";
const SETTLING_MS = 20;

/** The folders of all kept changesets: which there are, which process works on one, and how one goes. */
class ChangesetFolders {
  readonly #root: string;
  readonly #owner: LockOwner;
  readonly ended: EndedChangesets;

  constructor(root: string, owner: LockOwner) {
    this.#root = root;
    this.#owner = owner;
    this.ended = new EndedChangesets(root);
  }

  async ids(): Promise<string[]> {
    return (await namesIn(this.#root)).filter(isChangesetId);
  }

  has(id: string): boolean {
    return isChangesetId(id) && isThere(this.of(id).dir);
  }

  of(id: string): KeptFolder {
    if (!isChangesetId(id)) throw new RangeError("not a changeset id");
    return new KeptFolder(join(this.#root, id));
  }

  async make({ dir }: KeptFolder): Promise<void> {
    await mkdir(dir, { recursive: true, mode: 0o700 });
  }

  async isHeld({ lock }: KeptFolder): Promise<boolean> {
    return await isHeld(lock, this.#owner);
  }

  /** Null if another process is working on it, or has just removed it. */
  async hold({ lock }: KeptFolder): Promise<AsyncDisposable | null> {
    try {
      return await tryHoldFile(lock, this.#owner);
    } catch (error) {
      if (hasCode(error, "ENOENT")) return null;
      throw error;
    }
  }

  /** Acts on one while no other process works on it. */
  async holding<T extends { readonly ok: true }>(
    id: string,
    act: (folder: KeptFolder) => Promise<T | NotKept>,
  ): Promise<T | NotKept> {
    if (!this.has(id)) return missing(id);
    const folder = this.of(id);
    await using held = await this.hold(folder);
    if (held !== null) return await unlessBroken(id, () => act(folder));
    return { ok: false, code: "busy", reason: await this.whyBusy(folder, id) };
  }

  async whyBusy({ lock }: KeptFolder, id: string): Promise<string> {
    const holder = await holderOf(lock);
    return whyBusy(id, holder !== null && isOutOfSight(holder, this.#owner.name) ? lock : null);
  }

  /** Renamed first, so that it disappears from the list at once. */
  async remove(folder: KeptFolder): Promise<void> {
    const away = join(this.#root, `${REMOVED}${randomUUID()}`);
    await rename(folder.dir, away);
    await removeTree(away);
  }

  /** Removes what a process that ended had begun to remove. */
  async finishRemovals(): Promise<void> {
    for (const name of await namesIn(this.#root)) {
      if (name.startsWith(REMOVED)) await removeTree(join(this.#root, name));
    }
  }

  /** Nothing of it waits any more. The end of an item's changeset stays until the journal of its fleet knows it. */
  async end(folder: KeptFolder): Promise<void> {
    const state = await folder.readState().catch((error: unknown) => {
      if (error instanceof BrokenRecord) return null;
      throw error;
    });
    if (state?.fleet === undefined) return await this.remove(folder);
    await this.ended.add(folder, state);
  }
}

async function unlessBroken<T extends { readonly ok: true }>(
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

export interface StoreOptions extends KeptApplication {
  /** What was shown: see {@link changesetDigest}. If the changeset has another digest now, nothing is applied. */
  readonly digest?: string | undefined;
  /** The changes are kept already, without a reason: see {@link ChangesetStore.complete}. */
  readonly isKept?: boolean;
  /** Called before the first change is made, while no other process can make it. If it rejects, nothing is changed. */
  readonly before?: () => Promise<void>;
}

/** Another process is working on the changeset, and nothing was done. */
export class ChangesetBusy extends Error {}

/** A list of hundreds is shown often: each is some small files to open. */
const READ_AT_ONCE = 32;

/**
 * Changesets that are being applied or wait for a person: `changes/ID/` in the state directory, each locked by one process
 * at a time. An applied changeset is removed. Others stay until they are applied or discarded.
 */
export class ChangesetStore {
  readonly #folders: ChangesetFolders;

  constructor(stateDir: string, owner: LockOwner) {
    this.#folders = new ChangesetFolders(statePaths(stateDir).changes, owner);
  }

  /** Of fleets' items. */
  get ended(): EndedChangesets {
    return this.#folders.ended;
  }

  /**
   * Stores a changeset and moves its content here. If it is already stored, its further changes are added. `before`: called while no other
   * process can work on it; nothing is stored if it rejects.
   * @throws ChangesetBusy
   */
  async keep(
    changeset: Changeset,
    outcome: ChangeOutcome,
    reason: string | null = null,
    before?: () => Promise<void>,
  ): Promise<void> {
    const folder = this.#folders.of(changeset.id);
    await this.#folders.make(folder);
    await using held = await this.#folders.hold(folder);
    if (held === null) throw new ChangesetBusy(await this.#folders.whyBusy(folder, changeset.id));
    const isNew = !folder.isWritten;
    await before?.().catch(async (error: unknown) => {
      if (isNew) await this.#folders.remove(folder);
      throw error;
    });
    const state = stateOf(changeset, outcome, reason);
    if (!isNew) return await addChanges(folder, changeset, state.changes);
    await folder.writeChangeset(changeset);
    await folder.takeContent(changeset);
    await folder.writeState(state);
  }

  /** The content of these changes, which are kept, is on the disk: it is the same after a power failure. */
  async flush(changeset: Changeset, which: ReadonlySet<number>): Promise<void> {
    await flushContent(only(this.#folders.of(changeset.id).located(changeset), which));
  }

  /**
   * Applies changes of a run that has just ended, so that another process can finish it. What cannot be applied is kept. If all
   * is applied, the content is moved back, since other changes of the run may still have to be kept. Null if another process has completed
   * what was kept.
   * @throws ChangesetBusy
   */
  async apply(changeset: Changeset, which: ReadonlySet<number>, options: StoreOptions = {}): Promise<Settled[] | null> {
    if (options.isKept !== true) await this.keep(only(changeset, which), "held");
    const folder = this.#folders.of(changeset.id);
    await using held = await this.#folders.hold(folder);
    if (held === null) {
      if (options.isKept === true && !this.#folders.has(changeset.id)) return null;
      throw new ChangesetBusy(await this.#folders.whyBusy(folder, changeset.id));
    }
    const kept = await folder.read();
    const agreed = agreedIn(kept.state);
    if (options.isKept === true && [...which].some((index) => !agreed.has(index))) return null;
    await options.before?.();
    const settled = await applyKept(folder, kept, which, options);
    if ((await folder.read()).waiting.size === 0) {
      await folder.giveContentBack(changeset);
      await this.#folders.remove(folder);
    }
    return settled;
  }

  /** The oldest first; those that cannot be read come last. */
  async list(): Promise<Listed[]> {
    const ids = await this.#folders.ids();
    const listed: Listed[] = [];
    const unread: string[] = [];
    for (let at = 0; at < ids.length; at += READ_AT_ONCE) {
      const some = ids.slice(at, at + READ_AT_ONCE);
      const found = await Promise.all(some.map((id) => this.#listed(id)));
      listed.push(...found.filter((one) => one?.ok === true));
      unread.push(...some.filter((_, index) => found[index]?.ok === false));
    }
    // Another process may be making one, or have just ended it.
    if (unread.length > 0) await sleep(SETTLING_MS);
    for (const id of unread) listed.push(...[await this.#listed(id)].filter((found) => found !== null));
    const age = (one: Listed): string => (one.ok ? one.state.createdAt : "~");
    return listed.sort((a, b) => (age(a) < age(b) ? -1 : age(a) > age(b) ? 1 : 0));
  }

  /** Where all of one is, for measuring it. */
  dirOf(id: string): string {
    return this.#folders.of(id).dir;
  }

  /** Null if another process is working on it and it cannot be read now, or if it is gone. */
  async #listed(id: string): Promise<Listed | null> {
    const folder = this.#folders.of(id);
    try {
      const state = await folder.readState();
      return { id, ok: true, state, applying: await this.#folders.isHeld(folder) };
    } catch (error) {
      if (!(error instanceof BrokenRecord)) throw error;
      if (!isThere(folder.dir) || (await this.#folders.isHeld(folder))) return null;
      return { id, ok: false, reason: error.message };
    }
  }

  async load(id: string): Promise<LoadedChangeset> {
    if (!this.#folders.has(id)) return missing(id);
    const folder = this.#folders.of(id);
    const loaded = await unlessBroken(id, async () => ({ ok: true, ...(await folder.read()) }));
    return loaded.ok ? loaded : ((await this.#elsewhere(folder, id)) ?? loaded);
  }

  /** Why what was read of a changeset may be half of what it was: another process applies or removes it meanwhile. Null: none does. */
  async whyUnsteady(id: string): Promise<NotKept | null> {
    return await this.#elsewhere(this.#folders.of(id), id);
  }

  async #elsewhere(folder: KeptFolder, id: string): Promise<NotKept | null> {
    if (!isThere(folder.dir)) return missing(id);
    if (!(await this.#folders.isHeld(folder))) return null;
    return { ok: false, code: "busy", reason: await this.#folders.whyBusy(folder, id) };
  }

  /** Applies some of the waiting changes. If none is left, the changeset is removed. */
  async applyKept(id: string, which: ReadonlySet<number>, options: StoreOptions = {}): Promise<Applied> {
    return await this.#folders.holding(id, async (folder) => {
      await finishApplication(folder, options);
      const kept = await folder.read();
      if (options.digest !== undefined && options.digest !== changesetDigest(kept.changeset)) return changed(id);
      const settled = await applyKept(folder, kept, which, options);
      const left = (await folder.read()).waiting.size;
      if (left === 0) await this.#folders.end(folder);
      return { ok: true, settled, left };
    });
  }

  /**
   * Completes what was agreed to of a changeset whose process died: continues its application, or begins it after `before`. One that
   * ended, by this or by another process, stays known until {@link EndedChangesets.forget}. `missing`: all of it was applied before.
   */
  async complete(id: string, before: (agreed: Changeset) => Promise<void>, record: RecordApplied): Promise<Completed> {
    if (this.ended.has(id))
      return await unlessBroken(id, async () => {
        return { ok: true, ...(await this.ended.folderOf(id).read()), settled: null };
      });
    return await this.#folders.holding(id, async (folder) => {
      const settled = (await finishApplication(folder, { record })) ?? (await applyAgreed(folder, before, record));
      const kept = await folder.read();
      if (kept.waiting.size === 0) await this.#folders.end(folder);
      return { ok: true, ...kept, settled };
    });
  }

  /** Removes a changeset at once, with what waits there, and no journal learns of it. False if another process works on it. */
  async drop(id: string, before?: () => Promise<void>): Promise<boolean> {
    const dropped = await this.#folders.holding(id, async (folder) => {
      await before?.();
      await this.#folders.remove(folder);
      return { ok: true };
    });
    return dropped.ok;
  }

  /** The changesets of the trees of runs below `roots` that were agreed to and not applied. `begun`: their application had begun. */
  async leftOf(roots: ReadonlySet<string>): Promise<{ readonly id: string; readonly begun: boolean }[]> {
    const found: { id: string; begun: boolean }[] = [];
    if (roots.size === 0) return found;
    for (const id of await this.#folders.ids()) {
      const folder = this.#folders.of(id);
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
    return this.#folders.has(id) || this.ended.has(id);
  }

  /** Removes a changeset, after finishing an interrupted application. One that cannot be read is removed as it is. `digest`: see {@link StoreOptions}. */
  async discard(id: string, digest?: string, record?: RecordApplied): Promise<Discarded> {
    return await this.#folders.holding(id, async (folder) => {
      const finished = await unlessBroken(id, async () => {
        await finishApplication(folder, { record });
        if (digest !== undefined && digest !== changesetDigest(await folder.readChangeset())) return changed(id);
        return { ok: true };
      });
      if (!finished.ok && (finished.code !== "broken" || digest !== undefined)) return finished;
      await this.#folders.end(folder);
      return { ok: true };
    });
  }

  /** Finishes all applications and removals that were interrupted because their process ended. */
  async finishInterrupted(options: KeptApplication = {}): Promise<Finished[]> {
    const finished: Finished[] = [];
    for (const id of await this.#folders.ids()) {
      const folder = this.#folders.of(id);
      if (!isThere(folder.applyLog) && (await seemsToWait(folder))) continue;
      const done = await this.#folders
        .holding(id, async () => {
          const settled = await finishApplication(folder, options);
          const { changeset, waiting } = await folder.read();
          if (waiting.size === 0) await this.#folders.end(folder);
          return { ok: true, changeset, settled };
        })
        .catch((error: unknown) => {
          // It can be finished later, and what else is asked of this process may need no room there.
          if (!isDiskFull(error)) throw error;
          return { ok: false as const, code: "broken" as const, reason: (error as Error).message };
        });
      // Another process that works on it finishes it, or has removed it.
      if (!done.ok && done.code === "broken") finished.push({ id, ok: false, reason: done.reason });
      if (done.ok && done.settled !== null)
        finished.push({ id, ok: true, changeset: done.changeset, settled: done.settled });
    }
    await this.#folders.finishRemovals();
    return finished;
  }
}

async function addChanges(
  folder: KeptFolder,
  { changes }: Changeset,
  outcomes: Parameters<typeof withOutcomes>[1],
): Promise<void> {
  const { changeset, state } = await folder.read();
  const all = new Map([...changeset.changes, ...changes].map((change) => [change.index, change]));
  await folder.writeChangeset({ ...changeset, changes: [...all.values()].sort((a, b) => a.index - b.index) });
  await folder.writeState(withOutcomes(state, outcomes));
}

/** Reads only the state, which is faster. A state that cannot be read also waits for a person. */
async function seemsToWait(folder: KeptFolder): Promise<boolean> {
  try {
    const { changes } = await folder.readState();
    return changes.some(({ outcome }) => outcome !== "applied" && outcome !== "refused");
  } catch (error) {
    if (error instanceof BrokenRecord) return true;
    throw error;
  }
}
