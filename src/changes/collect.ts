import { askedOnApplying, comesBack } from "../sandbox/staging.ts";
import { formatBytes } from "../sandbox/units.ts";
import type { Agreed } from "./agreed.ts";
import { type Change, type ChangedMount, type Changeset, placesAbove } from "./model/changeset.ts";
import { inOrderOfApplying, TooManyChanges } from "./scan/draft.ts";
import { BytesBudget, judged } from "./scan/judge.ts";
import { scanView } from "./scan/scan.ts";
import { contentDigest } from "./snapshot.ts";
import type { View } from "./view/view.ts";

/** Whose changes they are, for the record that is made of them. */
export interface ChangesOf {
  readonly id: string;
  readonly run: string;
  readonly root: string;
  readonly worker: string;
  readonly project: string;
  readonly createdAt: string;
}

/** A run's changes, and which of them somebody has to agree to. */
export interface Collected {
  readonly changeset: Changeset;
  readonly toAsk: readonly Change[];
  /** Those of a called run that its caller's changes will be asked about with. */
  readonly leftToCallers: readonly Change[];
}

/** Over all mounts of a run. */
const MAX_TOTAL = 50_000;
/** Over all changes: in a deep directory each of very many names has a path of many kilobytes, and all of them are kept. */
const MAX_BYTES_OF_PATHS = 16 * 1024 ** 2;

/** A change that was found, before it has its place among all of them. */
interface Found {
  readonly change: Omit<Change, "index">;
  readonly asks: boolean;
  readonly isLeft: boolean;
}

function isRefusedCreation({ kind, refusal }: Found["change"]): boolean {
  return kind === "create" && refusal !== null;
}

/**
 * What would give way to something that is refused stays: it would be gone, and nothing in its place. So does a file of
 * the size of one that is refused: it may have been moved to where it may not be, and would be lost.
 */
function stayingFor(
  refused: ReadonlySet<string>,
  moved: ReadonlySet<number>,
  change: Found["change"],
): Found["change"] {
  if (change.kind !== "delete" || change.refusal !== null) return change;
  if (refused.size > 0 && placesAbove(change).some((place) => refused.has(place)))
    return { ...change, refusal: "what was to stand in its place was refused" };
  const isMoved = change.base?.type === "file" && moved.has(change.base.size);
  return isMoved ? { ...change, refusal: "what it may have been moved to was refused" } : change;
}

/** Everything that differs in views which come back, each change judged. Null: nothing does. */
export async function collectChanges(
  views: readonly View[],
  agreed: Agreed,
  maxBytes: number,
  of: ChangesOf,
  signal: AbortSignal | undefined,
): Promise<Collected | null> {
  const budget = new BytesBudget(maxBytes);
  const mounts: ChangedMount[] = [];
  let pathBytes = 0;
  const found: Found[] = [];
  for (const view of views.filter(({ mount }) => comesBack(mount))) {
    const asked = askedOnApplying(view.mount);
    for (const draft of inOrderOfApplying(await scanView(view, signal))) {
      pathBytes += draft.names.reduce((sum, name) => sum + name.length + 1, view.mount.path.length);
      if (pathBytes > MAX_BYTES_OF_PATHS)
        throw new TooManyChanges(`the paths of all changes have more than ${formatBytes(MAX_BYTES_OF_PATHS)}`);
      const said = judged(draft, view, budget);
      const { kind, base, next, linkText } = draft;
      const operation = kind === "delete" ? "delete" : "write";
      const isOpen = said.refusal === null && !agreed.covers(draft, said);
      const asks = isOpen && asked[operation] === "ask";
      const isLeft = isOpen && !asks && view.mount.approval?.[operation] === "ask";
      const change = {
        mount: mounts.length,
        kind,
        base,
        next,
        ...said,
        ...(linkText === undefined ? {} : { linkText }),
      };
      found.push({ change, asks, isLeft });
    }
    mounts.push(changedMount(view));
  }
  if (found.length > MAX_TOTAL) throw new TooManyChanges(`there are more than ${MAX_TOTAL} changes`);
  if (found.length === 0) return null;
  const refusals = found.map(({ change }) => change).filter(isRefusedCreation);
  const refused = new Set(refusals.flatMap((change) => placesAbove(change)[0] ?? []));
  const moved = new Set(refusals.flatMap(({ next }) => (next?.type === "file" && next.size > 0 ? next.size : [])));
  const changes = found.map(({ change }, index): Change => ({ index, ...stayingFor(refused, moved, change) }));
  return {
    changeset: { version: 1, ...of, mounts, changes },
    toAsk: changes.filter(({ refusal }, index) => refusal === null && found[index]?.asks),
    leftToCallers: changes.filter(({ refusal }, index) => refusal === null && found[index]?.isLeft),
  };
}

/** Looked at where nobody can change it any more: files that hold what somebody agreed to are not asked about again. */
export async function withoutAgreed(
  collected: Collected,
  agreedTo: Agreed,
  signal: AbortSignal | undefined,
): Promise<Collected> {
  const { changeset, toAsk } = collected;
  const asked: Change[] = [];
  for (const change of toAsk) {
    const agreed = change.kind === "delete" || change.type !== "file" ? null : agreedTo.contentAt(change.path);
    const content = changeset.mounts[change.mount]?.content;
    const isAgreed =
      agreed !== null && content !== undefined && (await contentDigest(content, change, signal)) === agreed;
    // They were shown what it would hold, and not that it may do more.
    if (!isAgreed || hasNewRights(change)) asked.push(change);
  }
  return { ...collected, toAsk: asked };
}

/** Other permission bits than before; of a new file, those to execute it. */
function hasNewRights({ kind, base, next }: Change): boolean {
  const mode = next?.mode ?? 0;
  return kind === "create" ? (mode & 0o111) !== 0 : ((mode ^ (base?.mode ?? 0)) & 0o777) !== 0;
}

function changedMount(view: View): ChangedMount {
  return {
    path: view.mount.path,
    target: view.targetPath,
    targetIdentity: view.target.identity(),
    content: view.contentPath,
    closed: view.closed,
  };
}
