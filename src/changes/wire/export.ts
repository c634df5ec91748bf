import { isUtf8 } from "node:buffer";
import fs from "node:fs";
import { type Blob, type BlobStore, type Digest, putBytes } from "../../blobs/blob.ts";
import { blobOf, piecesOf } from "../../blobs/file-content.ts";
import { pathAsText } from "../../blobs/manifest.ts";
import { codeOf } from "../../platform/errno.ts";
import { formatBytes } from "../../text/amounts.ts";
import { isVerdict } from "../apply/fitness.ts";
import { type ChangeSlot, currentEntry, isAsItWas, OpenMounts, openContent } from "../apply/open-mounts.ts";
import { type Change, type Changeset, type EntryFacts, rawNameOf } from "../model/changeset.ts";
import { MAX_DOCUMENT_BYTES } from "./document.ts";

/** The directory that a run began with was changed on this machine: what the run changed cannot be compared with it. */
export class BaseChanged extends Error {
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
