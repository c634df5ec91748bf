import { setImmediate as nextTurn } from "node:timers/promises";
import { checkRead, governingMount } from "../sandbox/access.ts";
import { NotFoundError, type SandboxError } from "../sandbox/errors.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { comparePaths, covers, ROOT, type VirtualPath } from "../sandbox/virtual-path.ts";
import { ListingDraft } from "./list/listing.ts";
import {
  ALL_SHOWN,
  type EntryType,
  type FileInfo,
  type Files,
  type Hidden,
  type HiddenEntry,
  type ListEntry,
  type Listing,
  type ListOptions,
  mountedPlace,
  type NotShown,
  type Place,
} from "./model/files.ts";

/** The number of entries after which other work of the process gets a turn. */
const SLICE = 1000;

/** Counts what is left out, by the reason. */
export async function countNotShown(
  sandbox: Pick<Sandbox, "mounts">,
  entries: Iterable<HiddenEntry>,
  signal?: AbortSignal,
): Promise<NotShown> {
  const counts: { -readonly [Reason in keyof NotShown]: number } = { ...ALL_SHOWN };
  let looked = 0;
  for (const entry of entries) {
    counts[reasonOf(sandbox, entry)] += 1;
    looked += 1;
    if (looked % SLICE !== 0) continue;
    signal?.throwIfAborted();
    await nextTurn();
  }
  return counts;
}

function reasonOf(sandbox: Pick<Sandbox, "mounts">, { path, size }: HiddenEntry): keyof NotShown {
  if (size === null) return "unreadable";
  switch (checkRead(sandbox, path, { size })?.code) {
    case "SUFFIX_NOT_ALLOWED":
      return "otherSuffix";
    case "FILE_TOO_LARGE":
      return "tooLarge";
    default:
      return "unreadable";
  }
}

type Mounted = Pick<Sandbox, "mounts">;

/** Why a file is not shown although its directory is the mount's own; null: it is shown. */
export function whyHidden(sandbox: Mounted, { path, type, size }: ListEntry): SandboxError | null {
  if (type !== "file" || governingMount(sandbox, path)?.view !== undefined) return null;
  return checkRead(sandbox, path, size === null ? {} : { size });
}

function whyLeftOut(sandbox: Mounted, entry: ListEntry): keyof NotShown | null {
  return whyHidden(sandbox, entry) === null ? null : reasonOf(sandbox, { path: entry.path, size: entry.size ?? 0 });
}

/** True for `/`, and for a directory that exists because a mount is below it, whether or not the disk has it. */
export function leadsToMount({ mounts }: Mounted, path: VirtualPath): boolean {
  return path === ROOT || mounts.some((mount) => mount.path !== path && covers(path, mount.path));
}

/** Describes `path`, which is inside of a mount or on the way to one. */
export async function statNamespace(files: Files, sandbox: Mounted, path: VirtualPath): Promise<FileInfo> {
  const virtual: FileInfo = { path, type: "directory", size: null, modifiedMs: 0 };
  const place = mountedPlace(sandbox.mounts, path);
  if (place === null) return virtual;
  try {
    return await files.stat(place);
  } catch (error) {
    if (error instanceof NotFoundError && leadsToMount(sandbox, path)) return virtual;
    throw error;
  }
}

/** Lists a directory as the sandbox shows it: the entries of its mount, and the mounts below it. */
export async function listNamespace(
  files: Files,
  sandbox: Sandbox,
  path: VirtualPath,
  options: ListOptions,
  hidden: Hidden,
): Promise<Listing> {
  // A view shows no such file; where there is none, this is what hides it.
  const judging = { ...options, leavesOut: (entry: ListEntry) => whyLeftOut(sandbox, entry) };
  const draft = new ListingDraft(path, judging);
  const own = mountedPlace(sandbox.mounts, path);
  const below = sandbox.mounts.map((mount) => mount.path).filter((mount) => mount !== path && covers(path, mount));
  for (const directory of directoriesTo(path, below)) {
    if (draft.depthOf(directory) > draft.pattern.depth || !draft.wants(directory)) continue;
    draft.add({ path: directory, ...(await shapeOf(files, sandbox, directory)) });
  }
  if (own !== null) draft.merge(await listOwn(files, sandbox, own, { ...judging, base: path, max: draft.room }));
  for (const mount of below) {
    const place = mountedPlace(sandbox.mounts, mount);
    if (place === null || draft.full || draft.depthOf(mount) >= draft.pattern.depth) continue;
    if ((await shapeOf(files, sandbox, mount)).type !== "directory") continue;
    draft.merge(await files.list(place, { ...judging, base: path, max: draft.room }));
  }
  const leftOut = matching(hidden.below(path, draft.pattern.depth), draft);
  draft.leaveOut(await countNotShown(sandbox, leftOut, options.signal));
  return draft.finish();
}

function* matching(entries: Iterable<HiddenEntry>, draft: ListingDraft): Generator<HiddenEntry> {
  for (const entry of entries) if (draft.wants(entry.path)) yield entry;
}

async function listOwn(files: Files, sandbox: Mounted, place: Place, options: ListOptions): Promise<Listing> {
  try {
    return await files.list(place, options);
  } catch (error) {
    if (!(error instanceof NotFoundError && leadsToMount(sandbox, place.path))) throw error;
    return new ListingDraft(place.path, options).finish();
  }
}

/** The mounts and every directory between them and `path`. */
function directoriesTo(path: VirtualPath, mounts: readonly VirtualPath[]): VirtualPath[] {
  const found = new Set<VirtualPath>();
  for (const mount of mounts) {
    for (let end = mount.length; end > path.length; end = mount.lastIndexOf("/", end - 1)) {
      found.add(mount.slice(0, end) as VirtualPath);
    }
  }
  return [...found].sort(comparePaths);
}

/** A mount may be a single file. One that cannot be opened is listed as a directory. */
async function shapeOf(
  files: Files,
  sandbox: Mounted,
  path: VirtualPath,
): Promise<{ readonly type: EntryType; readonly size: number | null }> {
  const place = mountedPlace(sandbox.mounts, path);
  if (place === null || place.parts.length > 0) return { type: "directory", size: null };
  try {
    return await files.stat(place).then(({ type, size }) => ({ type, size }));
  } catch {
    return { type: "directory", size: null };
  }
}
