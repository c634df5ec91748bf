import { isUtf8 } from "node:buffer";
import { createHash } from "node:crypto";

/** One entry of a git tree. `path` is from the root of the repository. */
export interface TreeEntry {
  readonly path: string;
  readonly id: string;
  /** As git writes it: `100644`, `100755`, `120000` (a link), `160000` (another repository). */
  readonly mode: string;
  /** In bytes. */
  readonly size: number;
}

export interface TreeEntries {
  readonly entries: ReadonlyMap<string, TreeEntry>;
  /** Names that are not UTF-8, with replacement characters. */
  readonly unreadable: readonly string[];
}

/** Parses the output of `ls-tree -r -l -z`. */
export function parseTree(output: Buffer): TreeEntries {
  const entries = new Map<string, TreeEntry>();
  const unreadable: string[] = [];
  for (let start = 0; start < output.length; ) {
    const zero = output.indexOf(0, start);
    const end = zero < 0 ? output.length : zero;
    const line = output.subarray(start, end);
    start = end + 1;
    const tab = line.indexOf(9);
    const head = line.subarray(0, tab).toString("latin1");
    const [, mode, id, size] = /^(\d{6}) [a-z]+ ([0-9a-f]{40,64}) +(\d+|-)$/.exec(head) ?? [];
    if (mode === undefined || id === undefined) throw new Error(`git listed a tree in an unknown form: ${head}`);
    const name = line.subarray(tab + 1);
    const path = name.toString();
    if (isUtf8(name)) entries.set(path, { path, id, mode, size: size === "-" ? 0 : Number(size) });
    else unreadable.push(path);
  }
  return { entries, unreadable };
}

/** Why an entry cannot become a file; null if it can. */
export function whyNoFile({ mode }: TreeEntry): string | null {
  if (mode.startsWith("100")) return null;
  return mode === "120000" ? "is a symbolic link" : "is another repository";
}

/** Every directory above a path, from the root (the empty name) downwards. */
export function foldersOf(path: string): string[] {
  const parts = path.split("/").slice(0, -1);
  return ["", ...parts.map((_, index) => parts.slice(0, index + 1).join("/"))];
}

/** Git's object id of a file's content. */
export function blobId(content: Uint8Array): string {
  return createHash("sha1").update(`blob ${content.length}\0`).update(content).digest("hex");
}
