import fs from "node:fs";
import { dirname } from "node:path/posix";
import { contentOf } from "../files/host/content.ts";
import { codeOf, hasCode } from "../platform/errno.ts";
import { askedOnApplying, comesBack } from "../sandbox/expand.ts";
import type { VirtualPath } from "../sandbox/virtual-path.ts";
import type { SecretSearch } from "../secrets/read-secret.ts";
import { formatBytes } from "../text/amounts.ts";
import { present } from "../text/present.ts";
import { changesApart } from "./diff.ts";
import { type Change, type ChangedMount, type Changeset, placesAbove } from "./model/changeset.ts";
import { BytesBudget, type Draft, inOrderOfApplying, judged, scanView, TooManyChanges } from "./scan/scan.ts";
import { digestAt, nameOf, snapshotOf } from "./snapshot.ts";
import type { View } from "./view/view.ts";

const PIECE_BYTES = 1024 ** 2;

/**
 * Refuses each change that contains a secret: in a name, the target of a link, or the content of a file. The content is removed
 * too, because a changeset that waits is stored with everything of its mounts. It must no longer be writable for the run.
 */
export async function withoutSecrets(
  collected: Collected,
  search: () => SecretSearch,
  signal: AbortSignal | undefined,
): Promise<Collected> {
  const { changeset, toAsk, leftToCallers } = collected;
  const judged: Change[] = [];
  for (const change of changeset.changes) {
    const content = changeset.mounts[change.mount]?.content;
    const reason = content === undefined ? null : await faultOf(change, content, search, signal);
    if (reason === null || content === undefined) judged.push(change);
    else {
      removeContent(change, content);
      judged.push({ ...change, refusal: change.refusal ?? reason });
    }
  }
  const changes = keepingWhatMayBeLost(judged);
  const open = new Set(changes.filter(({ refusal }) => refusal === null).map(({ index }) => index));
  const stillOpen = (list: readonly Change[]): Change[] => list.filter(({ index }) => open.has(index));
  return { changeset: { ...changeset, changes }, toAsk: stillOpen(toAsk), leftToCallers: stillOpen(leftToCallers) };
}

/** Names the secret that is in it, or is null. */
async function faultOf(
  change: Change,
  root: string,
  search: () => SecretSearch,
  signal: AbortSignal | undefined,
): Promise<string | null> {
  if (change.kind === "delete") return null;
  for (const text of [change.path, change.linkText ?? ""]) {
    const found = search().add(Buffer.from(text));
    if (found !== null) return contains(found);
  }
  if (change.type !== "file") return null;
  try {
    using named = nameOf(root, change.parts);
    if (!named.stat().isFile()) return null;
    using file = named.reopen(fs.constants.O_RDONLY);
    const source = contentOf(file);
    const searching = search();
    for (let at = 0; at < source.size; at += PIECE_BYTES) {
      signal?.throwIfAborted();
      const found = searching.add(await source.read(at, PIECE_BYTES));
      if (found !== null) return contains(found);
    }
    return null;
  } catch (error) {
    // What is not there any more is not applied.
    if (hasCode(error, "ENOENT", "ENOTDIR", "ELOOP")) return null;
    const code = codeOf(error);
    if (code === undefined) throw error;
    return `it cannot be searched for secrets (${code})`;
  }
}

function contains(secret: string): string {
  return `it contains the secret \`${secret}\``;
}

/** With everything in a directory, whose paths contain the secret too. */
function removeContent({ parts }: Change, root: string): void {
  try {
    using folder = nameOf(root, parts.slice(0, -1));
    fs.rmSync(folder.path(parts.at(-1) ?? ""), { recursive: true, force: true });
  } catch (error) {
    if (!hasCode(error, "ENOENT")) throw error;
  }
}

/** The most approved entries that are remembered. For others, approval is asked again. */
const MAX_AGREED = 20_000;

export interface AgreedContent {
  /** SHA-256 in hexadecimal. */
  readonly digest: string;
  /** The permission bits that were shown; null: none. */
  readonly mode: number | null;
}

/**
 * What was approved during the run, tool by tool, so that it is not asked again when it is applied: a file counts only with
 * exactly the content that was shown.
 */
export class Agreed {
  readonly #contents = new Map<VirtualPath, AgreedContent>();
  readonly #deleted = new Set<VirtualPath>();
  /** The folders above what was written. */
  readonly #onTheWay = new Set<string>();

  mayHold(path: VirtualPath, content: AgreedContent): void {
    if (this.#contents.size >= MAX_AGREED) return;
    this.#contents.set(path, content);
    for (const folder of foldersOf(path)) this.#onTheWay.add(folder);
  }

  /** The content that was approved at this path. Null if there is none. */
  contentAt(path: VirtualPath): AgreedContent | null {
    return this.#contents.get(path) ?? null;
  }

  deleted(path: VirtualPath): void {
    if (this.#deleted.size < MAX_AGREED) this.#deleted.add(path);
  }

  /** True for a deletion that was approved, and for a folder that was made for a file that was approved. */
  covers({ kind, path, type }: Pick<Change, "kind" | "path" | "type">): boolean {
    if (kind === "delete") return this.#deleted.has(path);
    return type === "directory" && kind === "create" && this.#onTheWay.has(path);
  }
}

/** From the innermost to `/`. */
function foldersOf(path: string): string[] {
  const folders: string[] = [];
  for (let folder = dirname(path); ; folder = dirname(folder)) {
    folders.push(folder);
    if (folder === "/") return folders;
  }
}

/** The run that made the changes, for their record. */
export type ChangesOf = Omit<Changeset, "version" | "mounts" | "changes">;

/** A run's changes, and which of them need approval. */
export interface Collected {
  readonly changeset: Changeset;
  readonly toAsk: readonly Change[];
  /** Changes of a called run that will be approved together with its caller's changes. */
  readonly leftToCallers: readonly Change[];
}

/** Over all mounts of a run. */
const MAX_TOTAL = 50_000;
/** Of all changes together: in a deep directory each path has many kilobytes, and all paths are kept in memory. */
const MAX_BYTES_OF_PATHS = 16 * 1024 ** 2;

/** A change that was found, before it has its index. */
interface Found {
  readonly change: Omit<Change, "index">;
  readonly asks: boolean;
  readonly isLeft: boolean;
  /** Nothing that was approved covers it. */
  readonly isOpen: boolean;
  /** It is applied to a caller's view, and asked about with what leaves that one. */
  readonly isInView: boolean;
}

/**
 * Refuses a deletion that would lose data: of an entry whose replacement is refused, and of a file with the size of a refused
 * new file, since it may have been moved there.
 */
function stayingFor(refused: ReadonlySet<string>, moved: ReadonlySet<number>, change: Change): Change {
  if (change.kind !== "delete" || change.refusal !== null) return change;
  if (refused.size > 0 && placesAbove(change).some((place) => refused.has(place)))
    return { ...change, refusal: "its replacement was refused" };
  const isMoved = change.base?.type === "file" && moved.has(change.base.size);
  return isMoved ? { ...change, refusal: "the file that it may have been moved to was refused" } : change;
}

/** The same changes, without deletions of what a refused change would have brought back. */
export function keepingWhatMayBeLost(changes: readonly Change[]): Change[] {
  const refusals = changes.filter(({ kind, refusal }) => kind === "create" && refusal !== null);
  const refused = new Set(refusals.flatMap((change) => placesAbove(change)[0] ?? []));
  const moved = new Set(refusals.flatMap(({ next }) => (next?.type === "file" && next.size > 0 ? next.size : [])));
  return changes.map((change) => stayingFor(refused, moved, change));
}

/** Judges what was found in the mounts of a run, one after another, and says what of it needs approval. */
export class Collecting {
  readonly #agreed: Agreed;
  readonly #budget: BytesBudget;
  readonly #mounts: ChangedMount[] = [];
  readonly #found: Found[] = [];
  #pathBytes = 0;

  /** `maxBytes`: that the run may write in all. */
  constructor(agreed: Agreed, maxBytes: number) {
    this.#agreed = agreed;
    this.#budget = new BytesBudget(maxBytes);
  }

  /** Throws {@link TooManyChanges}. */
  add(drafts: readonly Draft[], view: Pick<View, "mount" | "pathOf" | "closed">, changed: ChangedMount): void {
    const asked = askedOnApplying(view.mount);
    for (const draft of inOrderOfApplying(drafts)) {
      this.#pathBytes += draft.names.reduce((sum, name) => sum + name.length + 1, view.mount.path.length);
      if (this.#pathBytes > MAX_BYTES_OF_PATHS)
        throw new TooManyChanges(
          `the paths of all changes together are longer than ${formatBytes(MAX_BYTES_OF_PATHS)}`,
        );
      const said = judged(draft, view, this.#budget);
      const { kind, base, next, linkText } = draft;
      const operation = kind === "delete" ? "delete" : "write";
      const isOpen = said.refusal === null && !this.#agreed.covers({ kind: draft.kind, ...said });
      const asks = isOpen && asked[operation] === "ask";
      const isLeft = isOpen && !asks && view.mount.approval?.[operation] === "ask";
      const change = {
        mount: this.#mounts.length,
        kind,
        base,
        next,
        ...said,
        ...present({ linkText }),
      };
      this.#found.push({ change, asks, isLeft, isOpen, isInView: view.mount.view !== undefined });
    }
    this.#mounts.push(changed);
  }

  /** Null if nothing was changed. Throws {@link TooManyChanges}. */
  end(of: ChangesOf): Collected | null {
    const found = this.#found;
    if (found.length > MAX_TOTAL) throw new TooManyChanges(`there are more than ${MAX_TOTAL} changes`);
    if (found.length === 0) return null;
    const changes = keepingWhatMayBeLost(found.map(({ change }, index): Change => ({ index, ...change })));
    const changeset: Changeset = { version: 1, ...of, mounts: this.#mounts, changes };
    const apart = changesApart(changeset);
    const chosen = (isMeant: (one: Found, isApart: boolean) => boolean): Change[] =>
      changes.filter(({ refusal }, index) => {
        const one = found[index];
        return refusal === null && one !== undefined && isMeant(one, one.isOpen && apart.has(index));
      });
    return {
      changeset,
      toAsk: chosen((one, isApart) => one.asks || (isApart && !one.isInView)),
      leftToCallers: chosen((one, isApart) => one.isLeft || (isApart && one.isInView && !one.asks)),
    };
  }
}

/** Every difference in the views whose changes are applied, each one checked. Null if there is none. */
export async function collectChanges(
  views: readonly View[],
  agreed: Agreed,
  maxBytes: number,
  of: ChangesOf,
  signal: AbortSignal | undefined,
): Promise<Collected | null> {
  const collecting = new Collecting(agreed, maxBytes);
  for (const view of views.filter(({ mount }) => comesBack(mount))) {
    const drafts = await scanView(view, { signal });
    // A directory that was made for the run and in which it wrote nothing is no change.
    const isUnused = drafts.every(({ names }) => names.length <= view.made.length);
    collecting.add(isUnused ? [] : drafts, view, changedMount(view));
  }
  return collecting.end(of);
}

/** Drops files whose content was already approved. The content must no longer be writable for the run. */
export async function withoutAgreed(
  collected: Collected,
  agreedTo: Agreed,
  signal: AbortSignal | undefined,
): Promise<Collected> {
  const { changeset, toAsk } = collected;
  const asked: Change[] = [];
  for (const change of toAsk) {
    const { kind, type, path, parts, next } = change;
    const agreed = kind === "delete" || type !== "file" ? null : agreedTo.contentAt(path);
    const content = changeset.mounts[change.mount]?.content;
    const isComparable = agreed !== null && content !== undefined && next !== null;
    const isAgreed = isComparable && (await digestAt(content, parts, next.size, signal)) === agreed.digest;
    const isModeAgreed = !hasNewRights(change) || (agreed !== null && agreed.mode === ((next?.mode ?? 0) & 0o777));
    if (!isAgreed || !isModeAgreed) asked.push(change);
  }
  return { ...collected, toAsk: asked };
}

/** True if permission bits change, or a new file is executable. */
function hasNewRights({ kind, base, next }: Change): boolean {
  const mode = next?.mode ?? 0;
  return kind === "create" ? (mode & 0o111) !== 0 : ((mode ^ (base?.mode ?? 0)) & 0o777) !== 0;
}

function changedMount(view: View): ChangedMount {
  return {
    path: view.at,
    target: view.targetPath,
    targetIdentity: view.target.identity(),
    content: view.contentPath,
    closed: view.closed,
    ...(view.lent ? { lent: true as const } : {}),
  };
}

/** The same changes with copies of their content. */
export async function copiedTo(dir: string, collected: Collected, signal: AbortSignal | undefined): Promise<Collected> {
  const changeset = await snapshotOf(collected.changeset, dir, signal);
  const taken = new Map(changeset.changes.map((change) => [change.index, change]));
  const asTaken = (changes: readonly Change[]) => changes.flatMap(({ index }) => taken.get(index) ?? []);
  return { changeset, toAsk: asTaken(collected.toAsk), leftToCallers: asTaken(collected.leftToCallers) };
}
