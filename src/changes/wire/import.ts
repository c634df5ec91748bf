import { isUtf8 } from "node:buffer";
import fs from "node:fs";
import { mkdir } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { BlobRefused, type BlobStore, blobOf, type Digest, fillFile, wholeBlob } from "../../blobs/blob.ts";
import { Descriptor, pinned } from "../../files/host/descriptor.ts";
import { removeTree } from "../../files/host/system-program.ts";
import { codeOf, hasCode } from "../../platform/errno.ts";
import { checkRead, governingMount, hostBelow } from "../../sandbox/access.ts";
import { comesBack } from "../../sandbox/expand.ts";
import { asksForHostExecuted } from "../../sandbox/host-executed.ts";
import type { Mount } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { covers, type VirtualPath } from "../../sandbox/virtual-path.ts";
import type { SecretSearch } from "../../secrets/read-secret.ts";
import { isVerdict } from "../apply/fitness.ts";
import { type ChangeSlot, type CurrentEntry, currentEntry, isAsItWas, OpenMounts } from "../apply/open-mounts.ts";
import { Agreed, type ChangesOf, type Collected, Collecting, withoutSecrets } from "../collect.ts";
import {
  type Change,
  type ChangedMount,
  type Changeset,
  type EntryFacts,
  nameText,
  pathBelow,
  type RawName,
  rawNameOf,
} from "../model/changeset.ts";
import type { Draft } from "../scan/scan.ts";
import type { View } from "../view/view.ts";
import {
  MAX_DOCUMENT_BYTES,
  parseWire,
  type WireChange,
  type WireEntry,
  type WireMount,
  WireRefused,
} from "./document.ts";

export interface ImportRequest {
  /** The document that a machine delivered. */
  readonly digest: Digest;
  readonly store: BlobStore;
  /** The item's sandbox, derived here. */
  readonly home: HomeSandbox;
  /** A directory to make, on the file system of the changesets: it receives the content. */
  readonly dir: string;
  /** The bytes that the run may write in all. */
  readonly maxBytes: number;
  /** The run, as this machine knows it. */
  readonly of: ChangesOf;
  /** Makes searches for secrets: changes that contain one are refused. */
  readonly search?: (() => SecretSearch) | null;
  readonly signal?: AbortSignal;
}

/**
 * The changes that a run on another machine made, as if it had run here: judged by the same rules, compared with what is there now,
 * and with their content in `dir`. Null if there are none. Disposing removes what is left of the content.
 *
 * The machine's word counts for nothing: which directories receive changes, what is closed in them and what needs approval comes from
 * `home`. Rejects with `WireRefused` or `BlobRefused` if the machine has delivered what no item of this sandbox can, or what does
 * not match its digest; nothing is left then. Throws `TooManyChanges` as a scan does.
 */
export async function importChangeset(request: ImportRequest): Promise<(Collected & AsyncDisposable) | null> {
  const { digest, store, home, dir, search, signal } = request;
  const { mounts } = parseWire(await wholeBlob(store, digest, MAX_DOCUMENT_BYTES, signal));
  const places = mounts.map((mount) => ({ place: homeMountOf(mount, home), changes: mount.changes }));
  const judged = await judgedAtHome(places, request);
  if (judged === null) return null;
  const remove = (): Promise<void> => removeTree(dir);
  await mkdir(dir, { mode: 0o700 });
  try {
    for (const { content } of judged.collected.changeset.mounts) await mkdir(content, { mode: 0o700 });
    const { changeset, ...rest } = judged.collected;
    const changes: Change[] = [];
    for (const change of changeset.changes)
      changes.push(await fetchContent(change, judged.sources.get(keyOf(change)) ?? null, changeset, store, signal));
    const brought = new Map(changes.map((change) => [change.index, change]));
    const asBrought = (some: readonly Change[]) => some.flatMap(({ index }) => brought.get(index) ?? []);
    const collected: Collected = {
      changeset: { ...changeset, changes },
      toAsk: asBrought(rest.toAsk),
      leftToCallers: asBrought(rest.leftToCallers),
    };
    const clean = search ? await withoutSecrets(collected, search, signal) : collected;
    return { ...clean, [Symbol.asyncDispose]: remove };
  } catch (error) {
    await remove();
    throw error;
  }
}

interface PlacedChanges {
  readonly place: HomeMount;
  readonly changes: readonly WireChange[];
}

/** Everything is judged before any content is written. `sources`: what files have to be, by {@link keyOf}. */
async function judgedAtHome(
  places: readonly PlacedChanges[],
  { dir, maxBytes, of, home, signal }: ImportRequest,
): Promise<{ collected: Collected; sources: ReadonlyMap<string, WireEntry> } | null> {
  const changed = places.map(({ place }, index) => ({ ...place.changed, content: join(dir, String(index)) }));
  using mounts = new OpenMounts({ mounts: changed });
  const collecting = new Collecting(new Agreed(), maxBytes);
  const sources = new Map<string, WireEntry>();
  for (const [index, { place, changes }] of places.entries()) {
    const created = new Set(changes.filter(({ kind }) => kind === "create").map(({ names }) => names.join("/")));
    const drafts: Draft[] = [];
    for (const change of changes) {
      signal?.throwIfAborted();
      const draft = await draftOf(change, place, index, mounts, signal);
      drafts.push({ ...draft, givesWay: change.kind === "delete" && givesWay(change, created) });
    }
    const target = changed[index];
    if (target === undefined) continue;
    collecting.add(drafts, place, target);
    for (const { names, next, refusal } of changes)
      if (next !== null && refusal === null) sources.set(`${index}:${names.join("/")}`, next);
  }
  const collected = collecting.end(asksForHostExecuted(home.sandbox) ? of : { ...of, hostExecuted: "allow" });
  return collected === null ? null : { collected, sources };
}

async function draftOf(
  change: WireChange,
  place: HomeMount,
  mount: number,
  mounts: OpenMounts,
  signal: AbortSignal | undefined,
): Promise<Draft> {
  const { names, kind, type, next, refusal } = change;
  const { base, overHidden } = await baseAtHome(change, place, mount, mounts, signal);
  return {
    names,
    kind,
    type,
    base,
    next: next === null ? null : claimed(next),
    ...(next?.target == null ? {} : { linkText: next.target }),
    ...(overHidden ? { overHidden } : {}),
    ...(refusal === null ? {} : { refusal }),
  };
}

/** As the machine says: those of no entry here, since no file system numbers its files from 0. */
function claimed({ type, mode, bytes }: WireEntry): EntryFacts {
  return { type, mode, size: bytes, inode: "0", mtimeNs: "0", ctimeNs: "0" };
}

/** True for what is at or below a path that the run has made anew. */
function givesWay({ names }: WireChange, created: ReadonlySet<string>): boolean {
  return names.some((_, index) => created.has(names.slice(0, index + 1).join("/")));
}

/** Only of changes that are not refused, whose names are UTF-8. */
function keyOf({ mount, parts }: Change): string {
  return `${mount}:${Buffer.from(parts.join("/")).toString("latin1")}`;
}

/**
 * Makes what a change brings in the directory of its mount's content, and returns the change with the facts of that. What is refused
 * is not made. Nothing in that directory is followed or written over.
 */
async function fetchContent(
  change: Change,
  source: WireEntry | null,
  { mounts }: Pick<Changeset, "mounts">,
  store: BlobStore,
  signal: AbortSignal | undefined,
): Promise<Change> {
  const mount = mounts[change.mount];
  if (change.refusal !== null || change.kind === "delete" || change.next === null || mount === undefined) return change;
  using slot = slotIn(mount.content, change.parts);
  switch (change.type) {
    case "directory":
      makeFolder(slot.folder, slot.name);
      break;
    case "link":
      fs.symlinkSync(change.linkText ?? "", slot.folder.path(slot.name));
      break;
    default:
      await makeFile(slot, change.next, source, store, signal);
  }
  const made = currentEntry(slot.folder, slot.name);
  if (made === null || made === "other") throw new Error(`the content of ${change.path} disappeared while it was made`);
  const next: EntryFacts = change.type === "directory" ? { ...made, mode: change.next.mode } : made;
  return { ...change, next };
}

async function makeFile(
  { folder, name }: ChangeSlot,
  { mode, size }: EntryFacts,
  source: WireEntry | null,
  store: BlobStore,
  signal: AbortSignal | undefined,
): Promise<void> {
  if (source === null || source.digest === null || source.bytes !== size)
    throw new Error("a file that is not refused has no content of the size that was judged");
  const { digest, bytes } = source;
  using file = Descriptor.create(folder.path(name), 0o600);
  const written = await fillFile(file, store.get(digest, bytes, signal));
  if (written !== bytes) throw new BlobRefused("mismatch", digest, `it has ${written} bytes and not ${bytes}`);
  fs.fchmodSync(file.fd, mode & 0o777);
}

/** Directories that are no changes themselves are made on the way. */
function slotIn(root: string, parts: readonly string[]): ChangeSlot {
  let folder = Descriptor.name(root, true);
  try {
    for (const name of parts.slice(0, -1)) {
      makeFolder(folder, name);
      const next = folder.child(name, true);
      folder[Symbol.dispose]();
      folder = next;
    }
    const reached = folder;
    return { folder, name: parts.at(-1) ?? "", [Symbol.dispose]: () => reached[Symbol.dispose]() };
  } catch (error) {
    folder[Symbol.dispose]();
    throw error;
  }
}

function makeFolder(folder: Descriptor, name: string): void {
  try {
    fs.mkdirSync(folder.path(name), 0o700);
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
  }
}

/** What is at the place of a change on this machine. */
export interface AtHome {
  /** The facts of now, if what is there is what the run began with; else facts that nothing has, so that it is a conflict. */
  readonly base: EntryFacts | null;
  /** True if a file has that name that the item may not read: on this machine its view would not show it. */
  readonly overHidden: boolean;
}

/** Compares by content: inodes and times of the other machine say nothing here. */
async function baseAtHome(
  { names, kind, base }: WireChange,
  place: HomeMount,
  mount: number,
  mounts: OpenMounts,
  signal: AbortSignal | undefined,
): Promise<AtHome> {
  const none = { base: base === null ? null : claimed(base), overHidden: false };
  const parts = names.flatMap((name) => nameText(name) ?? []);
  // A name that is not UTF-8 is refused.
  if (parts.length !== names.length) return none;
  const slot = mounts.target(mount, parts);
  if (isVerdict(slot)) return none;
  using _ = slot;
  const now = currentEntry(slot.folder, slot.name);
  if (now === null || now === "other") return none;
  const path = place.pathOf(names);
  const isHidden =
    now.type === "file" && path !== null && checkRead({ mounts: [place.mount] }, path, { size: now.size }) !== null;
  if (isHidden) return { ...none, overHidden: kind === "create" };
  const isSame = base !== null && (await isSameEntry(slot, now, base, kind, signal));
  return isSame ? { base: now, overHidden: false } : none;
}

async function isSameEntry(
  slot: ChangeSlot,
  now: EntryFacts,
  base: WireEntry,
  kind: WireChange["kind"],
  signal: AbortSignal | undefined,
): Promise<boolean> {
  if (now.type !== base.type) return false;
  const hasSameMode = (now.mode & 0o777) === (base.mode & 0o777);
  switch (now.type) {
    case "directory":
      return kind === "delete" || hasSameMode;
    case "link":
      return base.target !== null && targetOf(slot) === base.target;
    default:
      return hasSameMode && now.size === base.bytes && (await isSameContent(slot, now, base, signal));
  }
}

async function isSameContent(
  { folder, name }: ChangeSlot,
  now: EntryFacts,
  { digest }: WireEntry,
  signal: AbortSignal | undefined,
): Promise<boolean> {
  try {
    using named = folder.child(name);
    if (!named.stat().isFile()) return false;
    using file = named.reopen(fs.constants.O_RDONLY);
    const blob = await blobOf(file, signal);
    const after: CurrentEntry = currentEntry(folder, name);
    return blob !== null && blob.digest === digest && isAsItWas(now, after);
  } catch (error) {
    // What cannot be compared is not the same.
    if (codeOf(error) === undefined) throw error;
    return false;
  }
}

function targetOf({ folder, name }: ChangeSlot): string | null {
  try {
    const bytes = fs.readlinkSync(folder.path(name), { encoding: "buffer" });
    return isUtf8(bytes) ? bytes.toString() : null;
  } catch (error) {
    if (codeOf(error) === undefined) throw error;
    return null;
  }
}

/** The sandbox of an item as its coordinator derives it, and below which mounts directories may be made for it. */
export interface HomeSandbox {
  readonly sandbox: Pick<Sandbox, "mounts"> & Partial<Pick<Sandbox, "policy">>;
  readonly makesBelow?: Pick<Sandbox, "mounts">;
}

/** Where this machine applies the changes of one mount. Nothing of it comes from the machine of the run. */
export interface HomeMount extends Pick<View, "mount" | "pathOf" | "closed"> {
  readonly changed: Omit<ChangedMount, "content">;
}

/** Throws `WireRefused` if the item may not change anything there: no machine that keeps to its sandbox can say so. */
function homeMountOf({ path, changes }: WireMount, home: HomeSandbox): HomeMount {
  const { sandbox } = home;
  const mounts = sandbox.mounts.filter((mount) => comesBack(mount) && mount.path !== path && covers(path, mount.path));
  // The innermost first: a mount in another one has its own changes.
  for (const mount of mounts.toSorted((a, b) => b.path.length - a.path.length)) {
    const place = madeMount(mount, path, home);
    if (place === null || !changes.some(({ names }) => isIn(mount.path, path, names))) continue;
    const isWithin = changes.every(({ names, kind, type }) => {
      const at = place.pathOf(names);
      const isOnTheWay = at !== null && kind === "create" && type === "directory" && covers(at, mount.path);
      return isOnTheWay || isIn(mount.path, path, names);
    });
    if (isWithin) return place;
  }
  const own = sandbox.mounts.find((mount) => mount.path === path);
  if (own !== undefined && (own.mode === "ro" || comesBack(own))) return ownMount(own, changes, home);
  throw notAllowed(path);
}

function ownMount(mount: Mount, changes: WireMount["changes"], { sandbox }: HomeSandbox): HomeMount {
  using found = pinned(mount.host);
  const single = found !== null && !found.stat().isDirectory();
  const name = rawNameOf(basename(mount.host));
  // Its directory receives the change, and any other name there is not the item's.
  if (single && changes.some(({ names }) => names.length !== 1 || names[0] !== name)) throw notAllowed(mount.path);
  return {
    mount,
    closed: closedIn(mount, sandbox),
    pathOf: (names) => (single ? mount.path : pathBelow(mount.path, names)),
    changed: changedAt(mount.path, single ? dirname(mount.host) : mount.host, closedIn(mount, sandbox)),
  };
}

/** Null if the mount is not below a directory in which others may be made. */
function madeMount(mount: Mount, path: VirtualPath, { sandbox, makesBelow }: HomeSandbox): HomeMount | null {
  const around = makesBelow === undefined ? undefined : governingMount(makesBelow, mount.path);
  if (around === undefined || !covers(around.path, path) || hostBelow(around, mount.path) !== mount.host) return null;
  return {
    mount,
    closed: closedIn(mount, sandbox),
    pathOf: (names) => pathBelow(path, names),
    changed: changedAt(path, hostBelow(around, path), closedIn(mount, sandbox)),
  };
}

function notAllowed(path: VirtualPath): WireRefused {
  return new WireRefused(
    `the changes that a machine delivered are refused: ${path} has changes that the item may not make`,
  );
}

function closedIn({ path }: Mount, { mounts }: Pick<Sandbox, "mounts">): VirtualPath[] {
  return mounts.map((mount) => mount.path).filter((inner) => inner !== path && covers(path, inner));
}

function changedAt(path: VirtualPath, target: string, closed: readonly VirtualPath[]): HomeMount["changed"] {
  using found = pinned(target);
  // One that cannot be opened has an identity that none has: its changes are refused as those of a replaced directory.
  const targetIdentity = found?.stat().isDirectory() ? found.identity() : "0:0";
  // Owners on the other machine mean nothing here.
  return { path, target, targetIdentity, closed, lent: true };
}

/** By bytes, since a name that is not UTF-8 is refused later, with its own words. */
function isIn(mount: VirtualPath, at: VirtualPath, names: readonly RawName[]): boolean {
  const path = `${at === "/" ? "" : rawNameOf(at)}/${names.join("/")}`;
  return path.startsWith(`${rawNameOf(mount)}/`);
}
