import { dirname } from "node:path/posix";
import type { Descriptor } from "../files/host/descriptor.ts";
import type { VirtualPath } from "../sandbox/virtual-path.ts";
import type { Change } from "./model/changeset.ts";
import { type RawName, rawChild, rawNamesIn, rawStat } from "./model/raw-name.ts";
import type { Draft } from "./scan/draft.ts";
import { MAX_STAGED_DEPTH } from "./view/base-tree.ts";

/** The most approved files that are remembered. For others, approval is asked again. */
const MAX_AGREED = 20_000;

/**
 * What was approved during the run, tool by tool, so that it is not asked again when it is applied. A file counts as approved
 * only while it is exactly the version that the tool left.
 */
export class Agreed {
  /** Inode and time of the last change of each file. */
  readonly #written = new Map<VirtualPath, string>();
  readonly #contents = new Map<VirtualPath, string>();
  readonly #deleted = new Set<VirtualPath>();
  /** The folders above what was written. */
  readonly #onTheWay = new Set<string>();

  /** Notes the content that was approved for a file, as SHA-256 in hexadecimal. */
  mayHold(path: VirtualPath, digest: string): void {
    if (this.#contents.size >= MAX_AGREED) return;
    this.#contents.set(path, digest);
    for (const folder of foldersOf(path)) this.#onTheWay.add(folder);
  }

  /** The digest of the content that was approved at this path. Null if there is none. */
  contentAt(path: VirtualPath): string | null {
    return this.#contents.get(path) ?? null;
  }

  deleted(path: VirtualPath): void {
    if (this.#deleted.size < MAX_AGREED) this.#deleted.add(path);
  }

  covers({ kind, next }: Pick<Draft, "kind" | "next">, { path, type }: Pick<Change, "path" | "type">): boolean {
    if (kind === "delete") return [path, ...foldersOf(path)].some((prefix) => this.#deleted.has(prefix as VirtualPath));
    if (next === null) return false;
    if (this.#written.get(path) === `${next.inode}:${next.ctimeNs}`) return true;
    // A folder that was made for a file that was approved.
    return type === "directory" && kind === "create" && (this.#onTheWay.has(path) || this.#written.has(path));
  }

  /** Notes the current staged version of a file that a tool wrote, or of a folder and everything in it. */
  wrote(
    path: VirtualPath,
    folder: Descriptor,
    name: RawName,
    pathOf: (below: readonly RawName[]) => VirtualPath | null,
    below: readonly RawName[] = [],
  ): void {
    const stats = rawStat(folder, name);
    if (stats === null || this.#written.size >= MAX_AGREED) return;
    this.#written.set(path, `${stats.ino}:${stats.ctimeNs}`);
    for (const outer of foldersOf(path)) this.#onTheWay.add(outer);
    if (!stats.isDirectory() || below.length >= MAX_STAGED_DEPTH) return;
    using inner = rawChild(folder, name, true);
    for (const child of rawNamesIn(inner)) {
      const at = [...below, child];
      const innerPath = pathOf(at);
      if (innerPath !== null) this.wrote(innerPath, inner, child, pathOf, at);
    }
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
