import type { Approver, Decision } from "../approval/approver.ts";
import { changeDiffs, changesApart } from "../changes/diff.ts";
import { type Change, type ChangedItem, type ChangeOutcome, type Changeset, only } from "../changes/model/changeset.ts";
import type { ChangesetStore } from "../changes/store/changeset-store.ts";
import type { EndedChangeset, KeptChangeset } from "../changes/store/kept-folder.ts";
import type { Project } from "../declarations/project.ts";
import { DeclarationError } from "../declarations/yaml/problem.ts";
import type { FleetStores } from "../fleet/fleet-stores.ts";
import { JournalError } from "../fleet/journal/database.ts";
import type { Reviewed } from "../fleet/model/item.ts";
import { QueueError } from "../fleet/model/queue.ts";
import type { ApprovalMode } from "../sandbox/approval.ts";

/** What a changeset would do now, so that a person can decide on each part of it. */
interface Foreseen {
  /** What cannot be applied, and why: refused for good, or in conflict with the present files. */
  readonly unfit: readonly UnfitChange[];
  /** What a person decides on: first what programs of the host would execute, then all else in the order of applying. */
  readonly parts: readonly ForeseenPart[];
  readonly total: Amount;
  /** Changes beyond the limit of a diff: they are applied only with the whole changeset. */
  readonly notShown: number;
}

export interface UnfitChange extends Pick<Change, "index" | "path" | "kind" | "type"> {
  readonly outcome: "refused" | "conflict";
  readonly reason: string;
}

/** One path. A directory is made with the first file in it and is no part of its own, unless it stays empty. */
interface ForeseenPart extends Pick<Change, "path" | "kind" | "type">, Amount {
  /** The changes at this path: two, if another type of entry gives way. */
  readonly indexes: readonly number[];
  /** Each line is safe to print. */
  readonly lines: readonly string[];
  /** Why a program of the host would act on it by itself, so that no general yes covers it; null: none would. */
  readonly hostExecuted: string | null;
}

export interface Amount {
  /** Files, links and deletions. */
  readonly files: number;
  /** Of texts that a diff can show. */
  readonly added: number;
  readonly removed: number;
  /** Of the files that are written. */
  readonly bytes: number;
}

export async function foreseen({ changeset, waiting }: KeptChangeset): Promise<Foreseen> {
  const refused = changeset.changes.filter(({ refusal }) => refusal !== null).map(({ index }) => index);
  const shown = only(changeset, new Set([...waiting, ...refused]));
  const apart = changesApart(changeset);
  const unfit: UnfitChange[] = [];
  const parts = new Map<string, ForeseenPart>();
  let count = 0;
  for await (const { change, verdict, lines } of changeDiffs(shown, undefined, changeset)) {
    count += 1;
    const { path, kind, type, index } = change;
    if (verdict !== null) {
      const outcome = verdict.outcome === "conflict" ? "conflict" : "refused";
      unfit.push({ index, path, kind, type, outcome, reason: verdict.reason ?? "" });
      continue;
    }
    const before = parts.get(path);
    const amount = amountOf(change, lines);
    parts.set(path, {
      path,
      kind: before === undefined ? kind : "modify",
      type,
      indexes: [...(before?.indexes ?? []), index],
      lines: [...(before?.lines ?? []), ...lines],
      hostExecuted: apart.get(index) ?? before?.hostExecuted ?? null,
      ...(before === undefined ? amount : sum([before, amount])),
    });
  }
  const whole = [...parts.values()];
  const filled = new Set(whole.flatMap(({ path }) => parentsOf(path)));
  const decided = whole.filter(
    ({ kind, type, path }) => kind !== "create" || type !== "directory" || !filled.has(path),
  );
  const inOrder = decided.toSorted((a, b) => Number(a.hostExecuted === null) - Number(b.hostExecuted === null));
  return { unfit, parts: inOrder, total: sum(whole), notShown: shown.changes.length - count };
}

function sum(amounts: readonly Amount[]): Amount {
  const total = { files: 0, added: 0, removed: 0, bytes: 0 };
  for (const { files, added, removed, bytes } of amounts) {
    total.files += files;
    total.added += added;
    total.removed += removed;
    total.bytes += bytes;
  }
  return total;
}

function amountOf({ kind, type, next }: Change, lines: readonly string[]): Amount {
  // The two lines of headings name the versions.
  const start = lines.findIndex((line) => line.startsWith("@@"));
  const hunks = start < 0 ? [] : lines.slice(start);
  return {
    files: type === "directory" ? 0 : 1,
    added: hunks.filter((line) => line.startsWith("+")).length,
    removed: hunks.filter((line) => line.startsWith("-")).length,
    bytes: kind !== "delete" && type === "file" ? (next?.size ?? 0) : 0,
  };
}

/** The changes that are asked for, with the directories that they need, in the order of applying. */
export function withDirectories(
  { changes }: Pick<Changeset, "changes">,
  chosen: ReadonlySet<Change>,
): readonly Change[] {
  const above = new Set([...chosen].filter(({ kind }) => kind !== "delete").flatMap(({ path }) => parentsOf(path)));
  const made = new Set(changes.filter((one) => above.has(one.path) && makesDirectory(one)).map(({ path }) => path));
  // What gives way to such a directory has to go before it.
  return changes.filter((one) => chosen.has(one) || made.has(one.path));
}

function makesDirectory({ kind, type }: Change): boolean {
  return kind === "create" && type === "directory";
}

function parentsOf(path: string): string[] {
  const parts = path.split("/");
  return parts.slice(2).map((_, index) => parts.slice(0, index + 2).join("/"));
}

/** One changeset in a list. `ok: false`: its record cannot be read, so its project is not known. */
export type ListedChangeset =
  | (Pick<Changeset, "id" | "run" | "worker" | "project" | "createdAt"> & {
      readonly ok: true;
      /** A process applies it at this moment. */
      readonly applying: boolean;
      /** How many changes have which outcome. */
      readonly counts: Readonly<Record<string, number>>;
      /** The fleet's id; null if it was no item of one. */
      readonly fleet: string | null;
      /** The name of the item. */
      readonly item: string | null;
      /** Why the first of its changes waits, or was not applied. */
      readonly why: string | null;
    })
  | { readonly ok: false; readonly id: string; readonly reason: string };

/** One change of a kept changeset. */
export interface KeptChange extends Pick<Change, "index" | "path" | "kind" | "type"> {
  /** Size of a file that was written, in bytes; otherwise null. */
  readonly bytes: number | null;
  readonly outcome: ChangeOutcome;
  /** Why it waits or was not applied; null if there is no reason to report. */
  readonly reason: string | null;
  /** Why a program of the host would act on it by itself, so that no general yes covers it; null: none would. */
  readonly hostExecuted: string | null;
}

export interface ShownChangeset extends Pick<Changeset, "id" | "run" | "root" | "worker" | "project" | "createdAt"> {
  /** For `apply`, so that a decision is on what was shown. */
  readonly digest: string;
  /** The changed directories: as the worker saw them, and on the host. */
  readonly mounts: readonly { readonly path: string; readonly host: string }[];
  readonly changes: readonly KeptChange[];
  /** Commits of git that the worker made there and that wait, in words. They are the worker's own. */
  readonly commits: readonly string[];
  /** What of the names in it may be taken for something else, in words. */
  readonly lookAlike: readonly string[];
}

/** Whom `apply` asks: as a run of the project would. Absent fields: the project's mode, with no person to ask. */
export interface ApplyApproval {
  readonly approvalMode?: ApprovalMode;
  readonly approver?: Approver;
  readonly person?: Approver;
}

export interface ApplyRequest {
  /** Only changes at or below these paths, and the directories that they need. Absent: all; an empty list: none. */
  readonly only?: readonly string[];
  /** In place of `only`: the changes of these indexes, and the directories that they need. */
  readonly which?: readonly number[];
  /** The digest of what was shown: nothing is applied if the changeset has another one now. Absent: that of this moment. */
  readonly digest?: string;
  /**
   * `agreed`: the caller has already agreed to all of it, so no person is asked; rules of the project that deny still deny.
   * A function is called once for each project.
   */
  readonly approval: "agreed" | ((project: Project) => ApplyApproval);
  /**
   * The paths of changes with `hostExecuted` that a person has agreed to, each by itself. Others of this kind wait, if this is given or
   * `approval` is `agreed`; else the question about them is apart.
   */
  readonly hostExecuted?: readonly string[];
  readonly signal?: AbortSignal;
  /** Who applies it, for the audit trail, such as the token of a service. */
  readonly by?: string;
}

/** What `apply` did with one changeset. */
export interface AppliedChangeset {
  readonly id: string;
  /** Every change that was asked for. `denied`, and `held` if there was no answer in time: not applied, and still kept. */
  readonly changes: readonly AppliedChange[];
  /** How many changes are still kept. */
  readonly left: number;
}

export type AppliedChange = Omit<KeptChange, "bytes" | "hostExecuted">;

/** A changeset as it is reviewed. `digest`: what `apply` compares, so that a decision is on what was shown. */
export interface ForeseenChangeset extends Omit<Foreseen, "parts">, Pick<Changeset, "id" | "worker" | "project"> {
  readonly digest: string;
  /** How many changes can still be applied. */
  readonly waiting: number;
  /** The project's approval mode. */
  readonly mode: ApprovalMode;
  readonly parts: readonly RuledPart[];
  /** Commits of git that the worker made there and that wait, in words. They are the worker's own. */
  readonly commits: readonly string[];
  /** What of the names in it may be taken for something else, in words. */
  readonly lookAlike: readonly string[];
}

/** `ruled`: the decision of the project's rules; null: a person decides. */
export interface RuledPart extends ForeseenPart {
  readonly ruled: Decision | null;
}

/** Recorded together, in one transaction of a store of fleets. */
const MAX_TOGETHER = 500;

/**
 * Records in the journals of fleets how the changesets of their items ended, and then forgets those changesets. What a process
 * that died had applied or discarded is recorded too. `id`: only this changeset, and rejects if its
 * store cannot be used; else the changesets of such a project stay, and no other project is stopped.
 */
export async function recordEnded(
  changesets: ChangesetStore,
  stores: FleetStores,
  id: string | null = null,
): Promise<void> {
  const place = { changesets, stores, unusable: id === null ? new Set<string>() : null };
  let some: EndedChangeset[] = [];
  for await (const ended of changesets.ended.each(id)) {
    some.push(ended);
    if (some.length < MAX_TOGETHER) continue;
    await recordSome(some, place);
    some = [];
  }
  await recordSome(some, place);
}

interface EndedPlace {
  readonly changesets: ChangesetStore;
  readonly stores: FleetStores;
  /** Projects whose store cannot be used: each is tried once, since a server may not answer for long. Null: that is an error. */
  readonly unusable: Set<string> | null;
}

async function recordSome(ended: readonly EndedChangeset[], place: EndedPlace): Promise<void> {
  for (const one of byFleet(ended)) {
    if (place.unusable?.has(one.project)) continue;
    try {
      await recordOf(one, place);
    } catch (error) {
      const isOfStore =
        error instanceof QueueError || error instanceof JournalError || error instanceof DeclarationError;
      if (place.unusable === null || !isOfStore) throw error;
      place.unusable.add(one.project);
    }
  }
}

interface EndedOfFleet {
  readonly project: string;
  readonly fleet: Omit<ChangedItem, "item">;
  readonly ended: { readonly id: string; readonly reviewed: Reviewed }[];
}

function byFleet(ended: readonly EndedChangeset[]): Iterable<EndedOfFleet> {
  const found = new Map<string, EndedOfFleet>();
  for (const { id, state } of ended) {
    const { project, fleet, run } = state;
    if (fleet === undefined) continue;
    const key = JSON.stringify([project, fleet.id, fleet.store]);
    const one = found.get(key) ?? { project, fleet, ended: [] };
    one.ended.push({ id, reviewed: { fleet: fleet.id, item: fleet.item, run, counts: finalCounts(state) } });
    found.set(key, one);
  }
  return found.values();
}

async function recordOf({ project, fleet, ended }: EndedOfFleet, { changesets, stores }: EndedPlace): Promise<void> {
  await stores.withStoreOf(fleet, project, async (store) => {
    // The store that has to learn this is not named now.
    if (store === "elsewhere") return;
    const unsettled = store === "removed" ? [] : await store.reviewed(ended.map(({ reviewed }) => reviewed));
    const runs = new Set(unsettled.map(({ run }) => run));
    // Only now: until then this is the only place that knows what was decided.
    for (const { id, reviewed } of ended) if (!runs.has(reviewed.run)) await changesets.ended.forget(id);
  });
}

/** What waited and was not applied is discarded. */
function finalCounts({ changes }: EndedChangeset["state"]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { outcome } of changes) {
    const final = outcome === "applied" || outcome === "refused" ? outcome : "discarded";
    counts[final] = (counts[final] ?? 0) + 1;
  }
  return counts;
}
