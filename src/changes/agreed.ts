import { dirname } from "node:path/posix";
import type { VirtualPath } from "../sandbox/virtual-path.ts";
import type { Change } from "./model/changeset.ts";

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
