import { printableLine } from "../text/visible.ts";
import type { Digest } from "./blob.ts";

/** A path below a tree as the kernel has it, with `/` between names: each character is one byte. Names need not be UTF-8. */
export type RawPath = string;

export type TreeEntry = { readonly path: RawPath; readonly mode: number } & (
  | { readonly type: "file"; readonly bytes: number; readonly digest: Digest }
  | { readonly type: "directory" }
  | { readonly type: "link"; readonly target: string }
);

/** A directory as machines describe it to each other. Equal trees have equal manifests, byte by byte. */
export interface Tree {
  /** Permission bits of the directory itself; null if the mount is one file, which is the only entry. */
  readonly rootMode: number | null;
  /** Sorted by path, byte by byte: a directory comes before what is in it. */
  readonly entries: readonly TreeEntry[];
  /** Of all files together. */
  readonly bytes: number;
}

/** The limits of a tree that travels between machines. */
export const TREE_LIMITS = {
  entries: 200_000,
  /** Of all files together. */
  bytes: 16 * 1024 ** 3,
  depth: 128,
  pathBytes: 4096,
  nameBytes: 255,
  /** Of the manifest itself. */
  manifestBytes: 64 * 1024 ** 2,
} as const;
export type TreeLimits = { readonly [K in keyof typeof TREE_LIMITS]: number };

/** A tree that cannot travel, or a manifest that is not valid. The message names the place. */
export class TreeRefused extends Error {
  override readonly name: string = "TreeRefused";
}

/** A program wrote to a tree while it was read or sent: another try may succeed. */
export class TreeChanged extends TreeRefused {
  override readonly name = "TreeChanged";
}

/** For messages. */
export function shownPath(path: RawPath): string {
  return printableLine(Buffer.from(path, "latin1").toString("utf8"), 300);
}

/** Why a path has no place in a tree; null if it has one. */
export function pathFault(path: RawPath, { depth, pathBytes, nameBytes }: TreeLimits): string | null {
  if (path.length > pathBytes) return `its path is longer than ${pathBytes} bytes`;
  const names = path.split("/");
  if (names.length > depth) return `it is deeper than ${depth} levels`;
  for (const name of names) {
    if (name === "" || name === "." || name === ".." || name.includes("\0")) return "its path is not valid";
    if (name.length > nameBytes) return `its name is longer than ${nameBytes} bytes`;
  }
  return null;
}
