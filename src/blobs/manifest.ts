import { isUtf8 } from "node:buffer";
import fs from "node:fs";
import { z } from "zod";
import { Descriptor } from "../files/host/descriptor.ts";
import { printableLine } from "../text/visible.ts";
import { type BlobStore, type Digest, fillFile, isDigest, piecesOf, verifiedContent } from "./blob.ts";

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

/*
 * The manifest of a tree: JSON lines, in UTF-8. The first is `{"tree":1,"mode":M}`, or `{"tree":1,"single":true}` for a mount
 * that is one file. Each other is an entry. docs/formats/machines.md has an example.
 */

const MAX_LINE_BYTES = 32 * 1024;
const MAX_TARGET_BYTES = 4095;

const mode = z.number().int().min(0).max(0o777);
const header = z.union([
  z.strictObject({ tree: z.literal(1), mode }),
  z.strictObject({ tree: z.literal(1), single: z.literal(true) }),
]);
const digest = z.string().refine(isDigest, "is no SHA-256");
const place = { path: z.string().exactOptional(), path64: z.string().exactOptional() };
const entry = z.discriminatedUnion("type", [
  z.strictObject({ ...place, type: z.literal("file"), mode, bytes: z.number().int().min(0), sha256: digest }),
  z.strictObject({ ...place, type: z.literal("directory"), mode }),
  z.strictObject({ ...place, type: z.literal("link"), mode, target: z.string().min(1) }),
]);

export function formatManifest({ rootMode, entries }: Tree): Buffer {
  const first = rootMode === null ? { tree: 1, single: true } : { tree: 1, mode: rootMode };
  return Buffer.from([first, ...entries.map(lineOf)].map((line) => `${JSON.stringify(line)}\n`).join(""));
}

function lineOf(entry: TreeEntry): object {
  const { path, type, mode } = entry;
  const said = { ...pathAsText(path), type, mode };
  switch (entry.type) {
    case "file":
      return { ...said, bytes: entry.bytes, sha256: entry.digest };
    case "link":
      return { ...said, target: entry.target };
    default:
      return said;
  }
}

/** A path as JSON can have it: text, or base64 where it is not UTF-8. */
export function pathAsText(path: RawPath): { readonly path: string } | { readonly path64: string } {
  const bytes = Buffer.from(path, "latin1");
  return isUtf8(bytes) ? { path: bytes.toString("utf8") } : { path64: bytes.toString("base64") };
}

/** Null if it is none, or is not written as {@link pathAsText} does: each path has one form. */
export function pathFromText({ path, path64 }: { readonly path?: string; readonly path64?: string }): RawPath | null {
  if (path !== undefined && path64 === undefined)
    return path.isWellFormed() ? Buffer.from(path).toString("latin1") : null;
  if (path64 === undefined || path !== undefined) return null;
  const bytes = Buffer.from(path64, "base64");
  return bytes.toString("base64") === path64 && !isUtf8(bytes) ? bytes.toString("latin1") : null;
}

/**
 * Reads a manifest that another machine may have forged. Throws `TreeRefused` for anything that could not be a directory: a path
 * that leaves it, a name twice, something below what is no directory, more than the limits.
 */
export function parseManifest(manifest: Uint8Array): Tree {
  if (manifest.length > TREE_LIMITS.manifestBytes)
    throw new TreeRefused(`the manifest is refused: it has more than ${TREE_LIMITS.manifestBytes} bytes`);
  if (!isUtf8(manifest)) throw new TreeRefused("the manifest is refused: it is not UTF-8");
  const reader = new Reader();
  let line = 0;
  for (let at = 0; at < manifest.length; line += 1) {
    const end = manifest.indexOf(0x0a, at);
    if (end < 0 || end - at > MAX_LINE_BYTES)
      throw new TreeRefused(
        `the manifest is refused: line ${line + 1} is incomplete or longer than ${MAX_LINE_BYTES} bytes`,
      );
    reader.take(line, Buffer.from(manifest.buffer, manifest.byteOffset + at, end - at).toString("utf8"));
    at = end + 1;
  }
  return reader.end();
}

class Reader {
  readonly #folders = new Set<RawPath>();
  readonly #entries: TreeEntry[] = [];
  #rootMode: number | null | undefined;
  #bytes = 0;

  take(line: number, text: string): void {
    const refuse = (why: string): TreeRefused => new TreeRefused(`the manifest is refused: line ${line + 1} ${why}`);
    if (line > TREE_LIMITS.entries) throw refuse(`is one of more than ${TREE_LIMITS.entries} entries`);
    const raw = jsonOf(text);
    if (line === 0) {
      const said = header.safeParse(raw);
      if (!said.success) throw refuse("is no beginning of a manifest of version 1");
      this.#rootMode = "mode" in said.data ? said.data.mode : null;
      return;
    }
    const said = entry.safeParse(raw);
    if (!said.success) throw refuse("is no entry of a tree");
    const path = pathFromText(said.data);
    if (path === null) throw refuse("has no valid path");
    const at = `('${shownPath(path)}')`;
    const fault = pathFault(path, TREE_LIMITS);
    if (fault !== null) throw refuse(`${at} is refused: ${fault}`);
    const before = this.#entries.at(-1);
    if (before !== undefined && path <= before.path) throw refuse(`${at} is there twice, or not in its order`);
    const above = path.lastIndexOf("/");
    if (above >= 0 && !this.#folders.has(path.slice(0, above))) throw refuse(`${at} is below what is no directory`);
    this.#take(path, said.data, (why) => refuse(`${at} ${why}`));
  }

  #take(path: RawPath, said: z.infer<typeof entry>, refuse: (why: string) => TreeRefused): void {
    const { mode } = said;
    switch (said.type) {
      case "directory":
        this.#folders.add(path);
        this.#entries.push({ path, mode, type: "directory" });
        return;
      case "link":
        if (
          said.target.includes("\0") ||
          !said.target.isWellFormed() ||
          Buffer.byteLength(said.target) > MAX_TARGET_BYTES
        )
          throw refuse("is a link whose target is not valid");
        this.#entries.push({ path, mode, type: "link", target: said.target });
        return;
      default:
        this.#bytes += said.bytes;
        if (this.#bytes > TREE_LIMITS.bytes) throw refuse(`is one of more than ${TREE_LIMITS.bytes} bytes`);
        this.#entries.push({ path, mode, type: "file", bytes: said.bytes, digest: said.sha256 as Digest });
    }
  }

  end(): Tree {
    if (this.#rootMode === undefined) throw new TreeRefused("the manifest is refused: it is empty");
    const [only] = this.#entries;
    if (this.#rootMode === null && (this.#entries.length !== 1 || only?.type !== "file" || only.path.includes("/")))
      throw new TreeRefused("the manifest is refused: it is of one file, and has other entries");
    return { rootMode: this.#rootMode, entries: this.#entries, bytes: this.#bytes };
  }
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

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
