import fs from "node:fs";
import { Descriptor } from "../files/host/descriptor.ts";
import { type BlobStore, type Digest, verifiedContent } from "./blob.ts";
import { fillFile, piecesOf } from "./file-content.ts";
import type { RawPath, Tree, TreeEntry } from "./manifest.ts";

type FileEntry = Extract<TreeEntry, { type: "file" }>;

/**
 * Files that mirrors on this machine have already: a tree that changes while a fleet runs, as that of its outputs, is not fetched as
 * a whole again. Only what the store has too is taken, so a tree gets nothing from another queue's mirrors, and the content is believed as
 * little as that of the store.
 */
export class KnownFiles {
  readonly #wanted: ReadonlySet<Digest>;
  readonly #places = new Map<Digest, { readonly dir: string; readonly path: RawPath }>();

  private constructor(wanted: ReadonlySet<Digest>) {
    this.#wanted = wanted;
  }

  /** `tree`: the one that is to be made. */
  static async of(tree: Tree, store: Pick<BlobStore, "has">): Promise<KnownFiles> {
    const digests = tree.entries.flatMap((entry) => (entry.type === "file" && entry.bytes > 0 ? [entry.digest] : []));
    return new KnownFiles(await store.has([...new Set(digests)]));
  }

  /** Whether another mirror may have more of them. */
  get isMissing(): boolean {
    return this.#places.size < this.#wanted.size;
  }

  /** `dir`: where the files of this tree are. */
  add(tree: Tree, dir: string): void {
    for (const entry of tree.entries)
      if (entry.type === "file" && this.#wanted.has(entry.digest) && !this.#places.has(entry.digest))
        this.#places.set(entry.digest, { dir, path: entry.path });
  }

  /** Fills an empty file. False if no mirror has the content now; the file is empty then. */
  async fill(file: Descriptor, { digest, bytes }: FileEntry, signal: AbortSignal): Promise<boolean> {
    const place = this.#places.get(digest);
    if (place === undefined) return false;
    try {
      const names = place.path.split("/").map((name) => Buffer.from(name, "latin1"));
      using root = Descriptor.name(place.dir, true);
      using folder = root.below(names.slice(0, -1));
      using named = folder.child(names.at(-1) ?? "");
      if (!named.stat().isFile()) return false;
      using source = named.reopen(fs.constants.O_RDONLY);
      await fillFile(file, verifiedContent({ digest, bytes }, piecesOf(source, signal), signal));
      return true;
    } catch {
      // The mirror was removed or changed meanwhile, or may not be read. What the disk refuses, it refuses again.
      signal.throwIfAborted();
      fs.ftruncateSync(file.fd, 0);
      return false;
    }
  }
}
