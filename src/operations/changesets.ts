import { type Decision, whyNotCovered } from "../approval/approver.ts";
import { changesApplying, changesDiscarded, outcomeCounts } from "../audit/records.ts";
import { commitTexts } from "../changes/commits.ts";
import {
  type ChangeDiff,
  type ChangedFile,
  changeDiffs,
  changedFiles,
  changesApart,
  changesetDiff,
} from "../changes/diff.ts";
import { type Change, type Changeset, only } from "../changes/model/changeset.ts";
import type { ChangesetStore } from "../changes/store/changeset-store.ts";
import { changesetDigest, type KeptChangeset, type Listed, type NotKept } from "../changes/store/kept-folder.ts";
import { FleetStores } from "../fleet/fleet-stores.ts";
import { ruledChange } from "../run/changes/decisions.ts";
import { changesetStore } from "../run/changes/into-project.ts";
import { finishInterrupted, recordingApplied, withheldAs } from "../run/changes/settle.ts";
import { openTrail } from "../run/recorded/run-history.ts";
import { covers, parseVirtualPath } from "../sandbox/virtual-path.ts";
import type { Env } from "../secrets/read-secret.ts";
import { lookAlikeTexts } from "../text/look-alike.ts";
import { printableLine } from "../text/visible.ts";
import { ChangeDeciders } from "./approvals.ts";
import {
  type AppliedChange,
  type AppliedChangeset,
  type ApplyRequest,
  type ForeseenChangeset,
  foreseen,
  type KeptChange,
  type ListedChangeset,
  type RuledPart,
  recordEnded,
  type ShownChangeset,
  withDirectories,
} from "./foreseen-changes.ts";
import { chosenId, LATEST, noneText, RequestError } from "./request-error.ts";

/**
 * The changesets of a state directory: changes of runs that were not applied yet. Opening finishes what a dead process had
 * begun to apply, and reports each with `onFinished`, in words for people. `env`: Corral's own environment, for reading projects.
 */
export class Changesets implements AsyncDisposable {
  readonly #stateDir: string;
  readonly #store: ChangesetStore;
  readonly #stores: FleetStores;
  readonly #deciders: ChangeDeciders;

  private constructor(stateDir: string, env: Env, store: ChangesetStore, stores: FleetStores) {
    this.#stateDir = stateDir;
    this.#store = store;
    this.#stores = stores;
    this.#deciders = new ChangeDeciders(env);
  }

  static async open(stateDir: string, env: Env, onFinished: (text: string) => void = () => {}): Promise<Changesets> {
    const store = changesetStore(stateDir);
    for (const { text } of await finishInterrupted(store, stateDir)) onFinished(text);
    const stores = new FleetStores(stateDir, env);
    await recordEnded(store, stores);
    return new Changesets(stateDir, env, store, stores);
  }

  /** Closes the stores of fleets that it has used lately; it can still be used. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stores[Symbol.asyncDispose]();
  }

  /** The oldest first. `project`: only those of this directory, and those that cannot be read; null: all. */
  async list(project: string | null): Promise<ListedChangeset[]> {
    const kept = await this.#store.list();
    return kept.filter((one) => !one.ok || project === null || one.state.project === project).map(listed);
  }

  /**
   * The ids of the changesets that a user means: whole ids, prefixes of them, or `latest`. Those of `project` come first; only if
   * none of them fits, those of the other projects count. `elsewhere: false`: they never do.
   *
   * @throws RequestError UNKNOWN_CHANGESET, AMBIGUOUS_ID
   */
  async idsOf(asked: readonly string[], project: string, { elsewhere = true } = {}): Promise<string[]> {
    const all = (await this.list(null)).toReversed();
    const own = all.filter((one) => !one.ok || one.project === project);
    return asked.map((text) => {
      const isOwn = !elsewhere || text === LATEST || own.some(({ id }) => id.startsWith(text));
      const known = (isOwn ? own : all).map((one) => ({ id: one.id, about: aboutListed(one) }));
      return chosenId(text, known, () =>
        text === LATEST
          ? new RequestError("UNKNOWN_CHANGESET", text, noneText("changeset", text))
          : unknownChangeset(text, "there is no such changeset"),
      );
    });
  }

  /** @throws RequestError UNKNOWN_CHANGESET, CHANGESET_BUSY, CHANGESET_BROKEN */
  async show(id: string): Promise<ShownChangeset> {
    const kept = await this.#load(id);
    const { changeset, state } = kept;
    const { run, root, worker, project, createdAt, mounts, changes } = changeset;
    const outcomes = new Map(state.changes.map((one) => [one.index, one]));
    const places = mounts.map(({ path, target }) => ({ path, host: target }));
    const apart = changesApart(changeset);
    const shown = changes.map((change): KeptChange => {
      const { outcome, reason } = outcomes.get(change.index) ?? { outcome: "held", reason: null };
      const bytes = change.type === "file" ? (change.next?.size ?? null) : null;
      return { ...facts(change), bytes, outcome, reason, hostExecuted: apart.get(change.index) ?? null };
    });
    const digest = changesetDigest(changeset);
    return {
      id,
      run,
      root,
      worker,
      project,
      createdAt,
      digest,
      mounts: places,
      changes: shown,
      commits: commitTexts(waitingOf(kept), changeset),
      lookAlike: lookAlikeTexts(changes.map(({ path }) => path)),
    };
  }

  /** What it would do now, part by part, and what the project's rules alone say of each. @throws as `show` */
  async foresee(id: string): Promise<ForeseenChangeset> {
    const kept = await this.#load(id);
    const { run, root, worker, project: dir } = kept.changeset;
    const project = await this.#deciders.projectOf(dir);
    const ruled = ruledChange(project, { run, root, worker: { name: worker } }, changesApart(kept.changeset));
    const changes = new Map(kept.changeset.changes.map((change) => [change.index, change]));
    const { parts, ...rest } = await foreseen(kept);
    if (rest.unfit.length > 0) await this.#expectSteady(id);
    const decided = parts.map((part): RuledPart => {
      const rulings = part.indexes.flatMap((index) => changes.get(index) ?? []).map(ruled);
      const denial = rulings.find((one) => one?.outcome === "denied") ?? null;
      return { ...part, ruled: denial ?? (rulings.includes(null) ? null : (rulings[0] ?? null)) };
    });
    const { mode } = project.approval;
    return {
      id,
      worker,
      project: dir,
      mode,
      digest: changesetDigest(kept.changeset),
      waiting: kept.waiting.size,
      ...rest,
      parts: decided,
      commits: commitTexts(waitingOf(kept), kept.changeset),
      lookAlike: lookAlikeTexts(kept.changeset.changes.map(({ path }) => path)),
    };
  }

  /** What `apply` compares with what was shown. @throws as `show` */
  async digest(id: string): Promise<string> {
    return changesetDigest((await this.#load(id)).changeset);
  }

  /** The files that it would write, with their content as the run left it. What is not there any more is left out. @throws as `show` */
  async files(id: string): Promise<AsyncGenerator<ChangedFile, void, undefined>> {
    return changedFiles(waitingOf(await this.#load(id)));
  }

  /** What is still kept, compared with the files as they are now: a unified diff. @throws as `show` */
  async diff(id: string): Promise<string> {
    return await changesetDiff(waitingOf(await this.#load(id)));
  }

  /** The same, change by change; `notShown`: how many are beyond the limit. @throws as `show` */
  async diffs(
    id: string,
  ): Promise<{ readonly digest: string; readonly diffs: readonly ChangeDiff[]; readonly notShown: number }> {
    const kept = await this.#load(id);
    const waiting = waitingOf(kept);
    const diffs = await Array.fromAsync(changeDiffs(waiting));
    return { digest: changesetDigest(kept.changeset), diffs, notShown: waiting.changes.length - diffs.length };
  }

  /**
   * Asks for each change as a run of the changeset's project would (its rules first), and applies what is approved. A file
   * that changed meanwhile is a conflict and is not overwritten. Questions, answers and results are in the audit trail. What programs of the
   * host would execute is applied only if it was asked about by itself, or named in `hostExecuted`.
   *
   * @throws RequestError UNKNOWN_CHANGE for a path of `only` at which no change waits, DeclarationError if the project has mistakes,
   *   and as `show`; nothing was applied then.
   */
  async apply(
    id: string,
    { only: paths, which, digest: shown, approval, hostExecuted, by, signal = NEVER }: ApplyRequest,
  ): Promise<AppliedChangeset> {
    const kept = await this.#load(id);
    await expectEnded(kept.changeset, this.#stores);
    const digest = changesetDigest(kept.changeset);
    if (shown !== undefined && shown !== digest) throw new RequestError("CHANGESET_CHANGED", id, CHANGED);
    const waiting = waitingOf(kept);
    const { changes: chosen, unmatched } =
      which === undefined ? selectChanges(waiting, paths) : chosenChanges(waiting, which);
    if (unmatched.length > 0) {
      const places = unmatched.map((path) => printableLine(path)).join(", ");
      throw new RequestError("UNKNOWN_CHANGE", id, `no change waits at ${places}`);
    }
    const named = hostExecuted ?? (approval === "agreed" ? [] : null);
    const apart = named === null ? new Map<number, string>() : changesApart(kept.changeset);
    const uncovered = chosen.filter(({ index, path }) => apart.has(index) && named?.includes(path) !== true);
    const left = new Set(uncovered);
    const changes = chosen.filter((change) => !left.has(change));
    const waits = uncovered.map((change): AppliedChange => {
      const reason = whyNotCovered({ path: change.path, why: apart.get(change.index) ?? "" }, "a yes to all changes");
      return { ...facts(change), outcome: "held", reason };
    });
    if (changes.length === 0) return { id, changes: waits, left: kept.waiting.size };
    const selected = only(kept.changeset, new Set(changes.map(({ index }) => index)));
    await using trail = await openTrail(this.#stateDir, selected.project);
    const { decisions, unfit } = await this.#deciders.decide(selected, { approval, by }, trail, signal);
    const isAgreed = (index: number): boolean =>
      decisions.get(index)?.outcome === "approved" || (approval === "agreed" && unfit.has(index));
    const agreed = changes.filter(({ index }) => isAgreed(index));
    const withheld = changes
      .filter((change) => !agreed.includes(change))
      .map((change): AppliedChange => {
        const verdict = unfit.get(change.index);
        return verdict === undefined
          ? withheldChange(change, decisions.get(change.index))
          : { ...facts(change), ...verdict };
      });
    if (agreed.length === 0) return { id, changes: inOrder([...withheld, ...waits]), left: kept.waiting.size };
    await trail.append(changesApplying(selected, agreed, by));
    const indexes = new Set(agreed.map(({ index }) => index));
    // Before the application is forgotten: a process that is killed here leaves no change without a record.
    const record = recordingApplied(this.#stateDir, trail, by);
    const applied = await this.#store.applyKept(id, indexes, { signal, digest, record });
    if (!applied.ok) throw notKept(id, applied);
    const settled = applied.settled.map(({ change, ...verdict }) => ({ ...facts(change), ...verdict }));
    if (applied.left === 0) await recordEnded(this.#store, this.#stores, id);
    const done = new Set(settled.map(({ index }) => index));
    const elsewhere = agreed
      .filter(({ index }) => !done.has(index))
      .map((change): AppliedChange => ({ ...facts(change), outcome: "conflict", reason: DECIDED_ELSEWHERE }));
    return { id, changes: inOrder([...settled, ...elsewhere, ...withheld, ...waits]), left: applied.left };
  }

  /**
   * Removes a changeset with all that was written there; what was applied before stays applied. `digest`: of what was shown; if it
   * has another one now, nothing is removed.
   *
   * @throws as `show`, but not for a broken one
   */
  async discard(id: string, { digest, by }: { readonly digest?: string; readonly by?: string } = {}): Promise<void> {
    const loaded = await this.#store.load(id);
    if (loaded.ok) await expectEnded(loaded.changeset, this.#stores);
    await using trail = loaded.ok ? await openTrail(this.#stateDir, loaded.changeset.project) : null;
    const record = trail === null ? undefined : recordingApplied(this.#stateDir, trail);
    const done = await this.#store.discard(id, digest, record);
    if (!done.ok) throw notKept(id, done);
    if (loaded.ok && trail !== null) {
      await trail.append(changesDiscarded(loaded.changeset, waitingOf(loaded).changes, by));
    }
    await recordEnded(this.#store, this.#stores, id);
  }

  /** What is applied meanwhile seems to be changed. @throws RequestError CHANGESET_BUSY, UNKNOWN_CHANGESET */
  async #expectSteady(id: string): Promise<void> {
    const why = await this.#store.whyUnsteady(id);
    if (why !== null) throw notKept(id, why);
  }

  async #load(id: string): Promise<KeptChangeset> {
    const loaded = await this.#store.load(id);
    if (!loaded.ok) throw notKept(id, loaded);
    return loaded;
  }
}

const NEVER = new AbortController().signal;
const CHANGED = "the changeset is not what was shown any more, so nothing was applied: look at it again";
const DECIDED_ELSEWHERE = "another process decided on it first";

function listed(one: Listed): ListedChangeset {
  if (!one.ok) return one;
  const { id, applying, state } = one;
  const { run, worker, project, createdAt, changes, fleet } = state;
  const why = changes.find(({ reason }) => reason !== null)?.reason ?? null;
  const of = { fleet: fleet?.id ?? null, item: fleet?.key ?? null, why };
  return { ok: true, id, run, worker, project, createdAt, applying, counts: outcomeCounts(changes), ...of };
}

function aboutListed(one: ListedChangeset): string {
  return one.ok ? `${one.worker}, ${one.createdAt}` : "cannot be read";
}

/** The changeset with the changes that can still be applied. */
function waitingOf({ changeset, waiting }: KeptChangeset): Changeset {
  return only(changeset, waiting);
}

function notKept(id: string, { code, reason }: NotKept): RequestError {
  if (code === "missing") return unknownChangeset(id, reason);
  if (code === "changed") return new RequestError("CHANGESET_CHANGED", id, reason);
  return new RequestError(code === "busy" ? "CHANGESET_BUSY" : "CHANGESET_BROKEN", id, reason);
}

export function unknownChangeset(id: string, reason: string): RequestError {
  return new RequestError("UNKNOWN_CHANGESET", id, `${printableLine(id, 40)}: ${reason}`);
}

function inOrder(changes: readonly AppliedChange[]): AppliedChange[] {
  return changes.toSorted((a, b) => a.index - b.index);
}

function facts({ index, path, kind, type }: Change): Pick<Change, "index" | "path" | "kind" | "type"> {
  return { index, path, kind, type };
}

function withheldChange(change: Change, decision: Decision | undefined): AppliedChange {
  const outcome = decision === undefined ? "denied" : withheldAs(decision);
  return { ...facts(change), outcome, reason: decision?.reason ?? "nothing decided on it" };
}

/**
 * What an item left whose process died belongs to its fleet, which finishes it, or runs the item again.
 *
 * @throws RequestError CHANGESET_BUSY if the item has not ended, or if that cannot be found out
 */
async function expectEnded({ id, run, project, fleet }: Changeset, stores: FleetStores): Promise<void> {
  if (fleet === undefined) return;
  const why = await stores.withStoreOf(fleet, project, async (store) => {
    if (store === "removed") return null;
    if (store === "elsewhere")
      return `fleet ${fleet.id} in the database ${printableLine(fleet.store ?? "")}, which is not in use now: name it as \`queue\` in corral.yaml, or in CORRAL_QUEUE`;
    const [item] = await store.items(fleet.id, {}, { after: fleet.item - 1, limit: 1 });
    if (item?.index !== fleet.item || item.run !== run || item.state === "done") return null;
    return `item ${printableLine(item.key)} of fleet ${fleet.id}, which has not ended; if it does not run any more, \`corral fleet resume\` ends it`;
  });
  if (why !== null) throw new RequestError("CHANGESET_BUSY", id, `changeset ${id} is of ${why}`);
}

/** What does not wait any more, another process has decided on. */
function chosenChanges(waiting: Changeset, which: readonly number[]): ReturnType<typeof selectChanges> {
  const wanted = new Set(which);
  const chosen = new Set(waiting.changes.filter(({ index }) => wanted.has(index)));
  return { changes: withDirectories(waiting, chosen), unmatched: [] };
}

/** The changes at or below some paths, and the directories that they need. Absent: all of them; an empty list chooses none. */
function selectChanges(
  { changes: waiting }: Changeset,
  asked: readonly string[] | undefined,
): { readonly changes: readonly Change[]; readonly unmatched: readonly string[] } {
  if (asked === undefined) return { changes: waiting, unmatched: [] };
  const parsed = asked.map((raw) => ({ raw, place: parseVirtualPath(raw) }));
  const paths = parsed.flatMap(({ place }) => (place.ok ? [place.path] : []));
  const chosen = new Set(waiting.filter(({ path }) => paths.some((wanted) => covers(wanted, path))));
  const changes = withDirectories({ changes: waiting }, chosen);
  const unmatched = parsed
    .filter(({ place }) => !place.ok || !waiting.some(({ path }) => covers(place.path, path)))
    .map(({ raw }) => raw);
  return { changes, unmatched };
}
