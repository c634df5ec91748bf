import { isUtf8 } from "node:buffer";
import fs from "node:fs";
import { z } from "zod";
import {
  type Blob,
  BlobRefused,
  type BlobStore,
  blobOf,
  type Digest,
  isDigest,
  piecesOf,
  putBytes,
  wholeBlob,
} from "../../blobs/blob.ts";
import { parseManifest, pathAsText, pathFault, pathFromText, TREE_LIMITS, TreeRefused } from "../../blobs/manifest.ts";
import { examine, parseJson } from "../../json/parse-json.ts";
import { codeOf } from "../../platform/errno.ts";
import { type PathParse, parseVirtualPath, type VirtualPath } from "../../sandbox/virtual-path.ts";
import { formatBytes } from "../../text/amounts.ts";
import { visibleLine } from "../../text/visible.ts";
import { isVerdict } from "../apply/fitness.ts";
import { type ChangeSlot, currentEntry, isAsItWas, OpenMounts, openContent } from "../apply/open-mounts.ts";
import { type Change, type Changeset, type EntryFacts, type RawName, rawNameOf } from "../model/changeset.ts";
import { MAX_CHANGES } from "../scan/scan.ts";

/** The changes of a run as a machine describes them to its coordinator. Nothing in it is known to be true. */
export interface WireChangeset {
  readonly version: 1;
  readonly mounts: readonly WireMount[];
}

/** The changes below one virtual path: a mount of the run, or a directory above one that was still to be made. */
export interface WireMount {
  readonly path: VirtualPath;
  readonly changes: readonly WireChange[];
}

export interface WireChange {
  readonly names: readonly RawName[];
  readonly kind: "create" | "modify" | "delete";
  readonly type: "file" | "directory" | "link";
  /** What was there when the run began; null: nothing. */
  readonly base: WireEntry | null;
  /** What the run left; null: nothing, or what cannot travel. */
  readonly next: WireEntry | null;
  /** Why it was refused on the machine; null: it was not. */
  readonly refusal: string | null;
}

export interface WireEntry {
  readonly type: "file" | "directory" | "link";
  readonly mode: number;
  /** 0 for anything but a file. */
  readonly bytes: number;
  /** Of a file. Null where it was refused, and so did not travel. */
  readonly digest: Digest | null;
  /** Of a link; null if its target cannot be read, or is not UTF-8. */
  readonly target: string | null;
}

/** A document that no machine of Corral makes. The message says why, in one line. */
export class WireRefused extends Error {
  override readonly name = "WireRefused";
}

export const MAX_DOCUMENT_BYTES = 64 * 1024 ** 2;
const MAX_VALUES = 2_000_000;
const MAX_MOUNTS = 1000;
const MAX_REFUSAL = 500;
/** As deep as a view can be. */
const LIMITS = { ...TREE_LIMITS, pathBytes: 64 * 1024, depth: 256 };

const digest = z.string().refine((text): text is Digest => isDigest(text), "is no SHA-256");
const mode = z.number().int().min(0).max(0o7777);
const entry = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("file"), mode, bytes: z.number().int().min(0), sha256: digest.nullable() }),
  z.strictObject({ type: z.literal("directory"), mode }),
  z.strictObject({ type: z.literal("link"), mode, target: z.string().max(4096).nullable() }),
]);
const change = z.strictObject({
  path: z.string().exactOptional(),
  path64: z.string().exactOptional(),
  kind: z.enum(["create", "modify", "delete"]),
  type: z.enum(["file", "directory", "link"]),
  base: entry.nullable(),
  next: entry.nullable(),
  refusal: z.string().max(MAX_REFUSAL).nullable(),
});
const document = z.strictObject({
  version: z.literal(1),
  mounts: z.array(z.strictObject({ path: z.string(), changes: z.array(change).max(MAX_CHANGES) })).max(MAX_MOUNTS),
});

/** Reads a document that may be forged. Throws `WireRefused`. */
export function parseWire(bytes: Uint8Array): WireChangeset {
  const parsed = parseJson(new TextDecoder("utf-8", { fatal: false }).decode(bytes), MAX_VALUES);
  if (!parsed.ok) throw refused(`it is not valid JSON: ${parsed.problem}`);
  const said = examine(document, parsed.value);
  if (!said.success) throw refused(firstIssue(said.error));
  const seen = new Set<string>();
  const mounts = said.data.mounts.map(({ path: raw, changes }): WireMount => {
    const path = normalised(raw);
    if (!path.ok || path.path !== raw) throw refused("a mount has no valid path");
    return { path: path.path, changes: wireChanges(path.path, changes, seen) };
  });
  if (mounts.reduce((sum, { changes }) => sum + changes.length, 0) > MAX_CHANGES)
    throw refused(`there are more than ${MAX_CHANGES} changes`);
  return { version: 1, mounts };
}

function normalised(raw: string): PathParse {
  return raw.startsWith("/") ? parseVirtualPath(raw) : { ok: false, reason: "it is not absolute" };
}

/** `seen`: the places of files and links over all mounts. A directory that several runs would make may be there twice. */
function wireChanges(at: VirtualPath, raw: readonly z.infer<typeof change>[], seen: Set<string>): WireChange[] {
  const all: WireChange[] = [];
  const own = new Map<string, WireChange>();
  for (const one of raw) {
    const path = pathFromText(one);
    const fault = path === null ? "its path is not valid" : pathFault(path, LIMITS);
    if (path === null || fault !== null) throw refused(`a change is refused: ${fault}`);
    const made = wireChange(path, one);
    all.push(made);
    // It is only reported. A machine reports names that are not UTF-8 as it shows them, and two can look the same.
    if (made.refusal !== null) continue;
    const key = `${made.kind === "delete" ? "-" : "+"}${path}`;
    const everywhere = `${key.slice(0, 1)}${at === "/" ? "" : rawNameOf(at)}/${path}`;
    if (own.has(key) || (made.type !== "directory" && seen.has(everywhere))) throw refused("a path is changed twice");
    own.set(key, made);
    if (made.type !== "directory") seen.add(everywhere);
  }
  for (const { names, kind } of own.values()) {
    // Else content would be written through a link, or below a file.
    if (
      kind !== "delete" &&
      names.some((_, depth) => depth > 0 && isInTheWay(own.get(`+${names.slice(0, depth).join("/")}`)))
    )
      throw refused("something is below what is no directory");
  }
  return all;
}

function isInTheWay(above: WireChange | undefined): boolean {
  return above !== undefined && above.type !== "directory";
}

function wireChange(path: string, { kind, type, base, next, refusal }: z.infer<typeof change>): WireChange {
  const made = {
    names: path.split("/"),
    kind,
    type,
    base: base === null ? null : wireEntry(base),
    next: next === null ? null : wireEntry(next),
    refusal: refusal === null ? null : visibleLine(refusal) || "it was refused there",
  };
  if (!isSound(made)) throw refused("a change contradicts itself");
  return made;
}

/** What is not refused has all that it needs to be applied. */
function isSound({ kind, type, base, next, refusal }: WireChange): boolean {
  if (kind === "delete") return next === null && base?.type === type;
  if ((kind === "create") !== (base === null)) return false;
  if (kind === "modify" && base?.type !== type) return false;
  if (next === null) return refusal !== null;
  if (next.type !== type) return false;
  return refusal !== null || (type === "file" ? next.digest !== null : type === "link" ? next.target !== null : true);
}

function wireEntry(said: z.infer<typeof entry>): WireEntry {
  return {
    type: said.type,
    mode: said.mode,
    bytes: said.type === "file" ? said.bytes : 0,
    digest: said.type === "file" ? said.sha256 : null,
    target: said.type === "link" ? said.target : null,
  };
}

function firstIssue({ issues: [first] }: z.ZodError): string {
  return `${visibleLine(first?.path.map(String).join(".") ?? "").slice(0, 200)}: ${first?.message.slice(0, 200)}`;
}

function refused(reason: string): WireRefused {
  return new WireRefused(`the changes that a machine delivered are refused: ${reason}`);
}

/** What fleets that have not ended refer to. */
interface BlobRoots {
  /** Manifests of directories. */
  readonly trees: Iterable<Digest>;
  /** Lists of changes that were delivered and not settled. */
  readonly changesets: Iterable<Digest>;
  /** Single files, such as attachments of items. */
  readonly files?: Iterable<Digest>;
}

/** More are not swept: all digests are in memory. */
const MAX_KEPT = 20_000_000;

/**
 * Every blob that these refer to, themselves included: for `BlobStore.sweep`. What is missing or not valid refers to nothing. A store
 * that cannot be read rejects, so that nothing is swept by mistake.
 */
export async function keptBlobs(
  store: BlobStore,
  { trees, changesets, files = [] }: BlobRoots,
  signal?: AbortSignal,
): Promise<ReadonlySet<Digest>> {
  const kept = new Set<Digest>(files);
  if (kept.size > MAX_KEPT) throw new Error(`fleets refer to more than ${MAX_KEPT} blobs`);
  const followed = new Set<Digest>();
  const follow = async (root: Digest, maxBytes: number, read: (content: Buffer) => Iterable<Digest>): Promise<void> => {
    // A list may also be the content of a file.
    if (followed.has(root)) return;
    followed.add(root);
    kept.add(root);
    try {
      for (const digest of read(await wholeBlob(store, root, maxBytes, signal))) kept.add(digest);
    } catch (error) {
      const isUseless = error instanceof BlobRefused || error instanceof TreeRefused || error instanceof WireRefused;
      if (!isUseless) throw error;
    }
    if (kept.size > MAX_KEPT) throw new Error(`fleets refer to more than ${MAX_KEPT} blobs`);
  };
  for (const root of trees) await follow(root, TREE_LIMITS.manifestBytes, inTree);
  for (const root of changesets) await follow(root, MAX_DOCUMENT_BYTES, inChanges);
  return kept;
}

function* inTree(manifest: Buffer): Generator<Digest> {
  for (const entry of parseManifest(manifest).entries) if (entry.type === "file") yield entry.digest;
}

function* inChanges(document: Buffer): Generator<Digest> {
  for (const { changes } of parseWire(document).mounts)
    for (const { next } of changes) if (next?.digest != null) yield next.digest;
}

/** The directory that a run began with was changed on this machine: what the run changed cannot be compared with it. */
class BaseChanged extends Error {
  override readonly name = "BaseChanged";
}

/**
 * Stores the changes of a run that has ended, so that the coordinator of its fleet can judge and apply them: the content of each,
 * and last a document that lists them. Returns the document's digest. Its refusals are those of this machine; a file that the store
 * cannot take is refused too.
 */
export async function exportChangeset(changeset: Changeset, store: BlobStore, signal?: AbortSignal): Promise<Digest> {
  const exporter = new Exporter(changeset, store, signal);
  using _ = exporter;
  const mounts = changeset.mounts.map(({ path }) => ({ path, changes: [] as object[] }));
  for (const change of changeset.changes) mounts[change.mount]?.changes.push(await exporter.change(change));
  const changed = mounts.filter(({ changes }) => changes.length > 0);
  const bytes = Buffer.from(JSON.stringify({ version: 1, mounts: changed }));
  if (bytes.length > Math.min(MAX_DOCUMENT_BYTES, store.maxBytes))
    throw new Error(`the list of changes has ${formatBytes(bytes.length)}, which is more than can be delivered`);
  const digest = await putBytes(store, bytes, signal);
  await store.flush();
  return digest;
}

class Exporter implements Disposable {
  readonly #mounts: OpenMounts;
  readonly #store: BlobStore;
  readonly #signal: AbortSignal | undefined;

  constructor(changeset: Changeset, store: BlobStore, signal: AbortSignal | undefined) {
    this.#mounts = new OpenMounts(changeset);
    this.#store = store;
    this.#signal = signal;
  }

  async change(change: Change): Promise<object> {
    const { parts, kind, type, refusal } = change;
    const place = pathAsText(parts.map(rawNameOf).join("/"));
    const base = change.base === null ? null : await this.#base(change, change.base);
    const brought = kind === "delete" ? null : await this.#next(change);
    const next = typeof brought === "string" ? null : brought;
    const reason = refusal ?? (typeof brought === "string" ? brought : null);
    return { ...place, kind, type, base, next, refusal: reason };
  }

  /** What the run began with, by content. */
  async #base({ mount, parts, path, refusal }: Change, base: EntryFacts): Promise<object> {
    const { type, mode, size } = base;
    if (type === "directory") return { type, mode };
    // It is not compared, as it is not applied.
    if (refusal !== null)
      return type === "file" ? { type, mode, bytes: size, sha256: null } : { type, mode, target: null };
    const slot = this.#mounts.target(mount, parts);
    if (isVerdict(slot)) throw new BaseChanged(`${path} was changed on this machine while the item ran`);
    using _ = slot;
    const isSame = (): boolean => isAsItWas(base, currentEntry(slot.folder, slot.name));
    if (!isSame()) throw new BaseChanged(`${path} was changed on this machine while the item ran`);
    if (type === "link") return { type, mode, target: targetOf(slot) };
    const blob = await this.#hashed(slot);
    if (blob === null || !isSame()) throw new BaseChanged(`${path} was changed on this machine while the item ran`);
    return { type, mode, bytes: size, sha256: blob.digest };
  }

  /** What the run left, or why it cannot travel. */
  async #next(change: Change): Promise<object | string | null> {
    const { next, type, linkText, refusal } = change;
    if (next === null) return null;
    const { mode, size } = next;
    if (type === "directory") return { type, mode };
    if (type === "link") return { type, mode, target: linkText ?? null };
    if (refusal !== null) return { type, mode, bytes: size, sha256: null };
    if (size > this.#store.maxBytes)
      return `it has ${formatBytes(size)}, and at most ${formatBytes(this.#store.maxBytes)} can be brought from another machine`;
    const content = openContent(change, this.#mounts);
    if (isVerdict(content)) return content.reason ?? "it cannot be read";
    using _ = content;
    using file = content.descriptor.reopen(fs.constants.O_RDONLY);
    const blob = await blobOf(file, this.#signal);
    if (blob === null || blob.bytes !== size) return "it changed again while it was checked";
    if ((await this.#store.has([blob.digest])).size === 0)
      await this.#store.put(blob, piecesOf(file, this.#signal), this.#signal);
    return { type, mode, bytes: size, sha256: blob.digest };
  }

  async #hashed({ folder, name }: ChangeSlot): Promise<Blob | null> {
    try {
      using named = folder.child(name);
      if (!named.stat().isFile()) return null;
      using file = named.reopen(fs.constants.O_RDONLY);
      return await blobOf(file, this.#signal);
    } catch (error) {
      if (codeOf(error) === undefined) throw error;
      return null;
    }
  }

  [Symbol.dispose](): void {
    this.#mounts[Symbol.dispose]();
  }
}

function targetOf({ folder, name }: ChangeSlot): string | null {
  const bytes = fs.readlinkSync(folder.path(name), { encoding: "buffer" });
  return isUtf8(bytes) ? bytes.toString() : null;
}
