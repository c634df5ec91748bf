import { createHash } from "node:crypto";
import fs from "node:fs";
import { inflateSync } from "node:zlib";
import type { Descriptor } from "../files/host/descriptor.ts";
import { counted } from "../text/amounts.ts";
import { printableLine, visibleName } from "../text/visible.ts";
import { type ChangeVerdict, conflict, impossible, isVerdict } from "./apply/fitness.ts";
import { isFolderThere } from "./apply/make.ts";
import { currentEntry, isAsItWas, OpenMounts, openContent, whyConflict } from "./apply/open-mounts.ts";
import { type Change, type Changeset, factsOf, placeKey } from "./model/changeset.ts";

/** For one changeset. What is beyond is counted, or said not to be shown. */
const LIMITS = {
  commits: 20,
  /** Lines on refs that name no commit which is shown. */
  refs: 20,
  repositories: 10,
  /** Commits that are looked at, and all files that are read for it. */
  walked: 500,
  reads: 1000,
  readBytes: 16 * 1024 ** 2,
  /** Of one object, as it lies on the disk and without its compression. */
  objectBytes: 1024 ** 2,
};

const IS_OBJECT = /^objects\/[0-9a-f]{2}\/(?:[0-9a-f]{38}|[0-9a-f]{62})$/;
/** What a file below a directory of git is, by its name there. All else in it is no file of git's own. */
const OWN: readonly (readonly [string, RegExp])[] = [
  ["object", IS_OBJECT],
  ["pack file", /^objects\/(?:pack|info)\/[^/]+$/],
  ["ref", /^(?:HEAD|packed-refs|refs\/.+)$/],
  ["index", /^index$/],
  ["log", /^logs\/.+$/],
  ["note", /^(?:COMMIT_EDITMSG|ORIG_HEAD|MERGE_HEAD|FETCH_HEAD)$/],
];
const HASH = /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/;
const COMMIT = /^tree ([0-9a-f]+)\n((?:parent [0-9a-f]+\n)*)author ([^\n]*)\ncommitter ([^\n]*)\n/;

/** A directory of git in which something was changed. */
interface Repository {
  readonly mount: number;
  readonly parts: readonly string[];
  readonly path: string;
  /** By their hashes. */
  readonly objects: Map<string, Change>;
  /** By their names, such as `refs/heads/main`. */
  readonly refs: Map<string, Change>;
  /** How many files of which kind. */
  readonly own: Map<string, number>;
}

interface Commit {
  readonly tree: string;
  readonly parents: readonly string[];
  readonly author: string;
  readonly committer: string;
  readonly subject: string;
}

/**
 * What a worker did with git, in words: the new commits that changed refs lead to, and how many changes are files of git's own. Every text is
 * safe to print. No git runs here, since the repository is what the worker made of it: only objects that lie in files of their own are read,
 * and each has to be what its name says. All of it is the worker's word, and none of the changes is left out of any list because of it.
 * `whole`: what the changeset is a part of.
 */
export function commitTexts(changeset: Changeset, whole = changeset): string[] {
  const all = [...repositoriesOf(changeset).values()].filter(({ objects, refs }) => objects.size + refs.size > 0);
  if (all.length === 0) return [];
  using mounts = new OpenMounts(whole);
  const wholes = whole === changeset ? null : repositoriesOf(whole);
  const left = { ...LIMITS };
  const texts = all.slice(0, LIMITS.repositories).flatMap((one) => {
    const objects = wholes?.get(placeKey(one.mount, one.parts))?.objects ?? one.objects;
    return new Told({ ...one, objects }, mounts, left).texts();
  });
  const more = all.length - LIMITS.repositories;
  return more > 0 ? [...texts, `${more} more directories of git are changed, whose commits are not shown`] : texts;
}

class Told {
  readonly #repository: Repository;
  readonly #mounts: OpenMounts;
  readonly #left: typeof LIMITS;
  readonly #seen = new Set<string>();
  readonly #commits: string[] = [];
  readonly #refs: string[] = [];
  #more = 0;
  #isCut = false;

  constructor(repository: Repository, mounts: OpenMounts, left: typeof LIMITS) {
    this.#repository = repository;
    this.#mounts = mounts;
    this.#left = left;
  }

  texts(): string[] {
    const { refs, path, own } = this.#repository;
    for (const [name, change] of [...refs].toSorted(([a], [b]) => turnOf(a) - turnOf(b) || (a < b ? -1 : 1)))
      this.#ref(name, change);
    const cut = this.#isCut ? ["and further commits, which were not read"] : [];
    const more = this.#more > 0 ? [`and ${this.#more} more commits`] : [];
    const shownRefs = this.#refs.slice(0, this.#left.refs);
    const moreRefs = this.#refs.length - shownRefs.length;
    this.#left.refs -= shownRefs.length;
    const files = [...own.values()].reduce((sum, count) => sum + count, 0);
    const kinds = [...own]
      .map(([kind, count]) => counted(count, kind, kind === "index" ? "indexes" : undefined))
      .join(", ");
    return [
      `the worker used git in ${visibleName(path)}: subjects, names and dates of commits are its own word`,
      ...this.#commits,
      ...more,
      ...cut,
      ...shownRefs,
      ...(moreRefs > 0 ? [`and ${moreRefs} more refs`] : []),
      `and ${counted(files, "file")} of git's own among the changes: ${kinds}`,
    ];
  }

  #ref(name: string, change: Change): void {
    const label = labelOf(name);
    if (change.kind === "delete") {
      this.#refs.push(`the file of ${label} is deleted`);
      return;
    }
    const text = this.#changed(change)?.toString("utf8") ?? null;
    if (name === "packed-refs") {
      // A line is shown if it leads to a new commit: all others were most likely there before.
      for (const line of text?.split("\n") ?? []) {
        const [hash = "", of = ""] = line.split(" ");
        if (HASH.test(hash) && this.#repository.objects.has(hash)) this.#walk(hash, labelOf(of));
      }
      this.#refs.push("the file of packed refs is changed");
      return;
    }
    const value = text?.replace(/\n$/, "") ?? "";
    if (value.startsWith("ref: ")) this.#refs.push(`${label} now names ${labelOf(value.slice(5).trim())}`);
    else if (!HASH.test(value)) this.#refs.push(`${label} names no commit that can be read`);
    else if (this.#repository.objects.has(value)) this.#walk(value, label);
    else
      this.#refs.push(`${label} now names ${value.slice(0, 7)}, which is not shown: it is packed, or was there before`);
  }

  /** Tells the new commits behind a ref, the latest first, each once. */
  #walk(tip: string, label: string): void {
    const next = [tip];
    for (let hash = next.shift(); hash !== undefined; hash = next.shift()) {
      if (this.#seen.has(hash) || !this.#repository.objects.has(hash)) continue;
      this.#seen.add(hash);
      if (this.#left.walked <= 0) {
        this.#isCut = true;
        return;
      }
      this.#left.walked -= 1;
      const commit = this.#commit(hash);
      next.push(...(commit?.parents ?? []));
      if (this.#left.commits <= 0) this.#more += 1;
      else this.#commits.push(this.#commitText(hash, commit, label));
      this.#left.commits -= 1;
    }
  }

  #commitText(hash: string, commit: Commit | null, label: string): string {
    const short = hash.slice(0, 7);
    if (commit === null) return `commit ${short} on ${label}, which cannot be read as a commit`;
    const { author, committer, parents, subject, tree } = commit;
    const by = author === committer ? quoted(author) : `${quoted(author)}, committed by ${quoted(committer)}`;
    const files = this.#filesChanged(tree, parents[0] ?? null);
    const changed = files === null ? "its files are not shown" : `${counted(files, "file")} changed`;
    return `${parents.length > 1 ? "merge " : ""}commit ${short} ${quoted(subject)} by ${by} on ${label}, ${changed}`;
  }

  #commit(hash: string): Commit | null {
    const text = this.#object(hash, "commit")?.toString("utf8") ?? "";
    const [, tree, parents, author, committer] = COMMIT.exec(text) ?? [];
    if (tree === undefined || author === undefined || committer === undefined) return null;
    const people = [author, committer].map((line) => line.replace(/ -?\d+ [+-]\d+$/, ""));
    const end = text.indexOf("\n\n");
    const subject = end < 0 ? "" : (text.slice(end).trimStart().split("\n", 1)[0] ?? "");
    const above = [...(parents ?? "").matchAll(/^parent (.*)$/gm)].map(([, parent = ""]) => parent);
    return { tree, parents: above, author: people[0] ?? "", committer: people[1] ?? "", subject };
  }

  /** Null if a tree cannot be read: a number would be wrong. */
  #filesChanged(tree: string, parent: string | null): number | null {
    const before = parent === null ? null : this.#commit(parent);
    if (parent !== null && before === null) return null;
    const pairs: [string | null, string | null][] = [[before?.tree ?? null, tree]];
    let files = 0;
    for (let pair = pairs.pop(); pair !== undefined; pair = pairs.pop()) {
      if (pair[0] === pair[1]) continue;
      const [old, now] = [this.#tree(pair[0]), this.#tree(pair[1])];
      if (old === null || now === null) return null;
      for (const name of new Set([...old.keys(), ...now.keys()])) {
        const [a, b] = [old.get(name), now.get(name)];
        if (a?.hash === b?.hash && a?.mode === b?.mode) continue;
        if ((a !== undefined && a.mode !== "40000") || (b !== undefined && b.mode !== "40000")) files += 1;
        pairs.push([a?.mode === "40000" ? a.hash : null, b?.mode === "40000" ? b.hash : null]);
      }
    }
    return files;
  }

  #tree(hash: string | null): Map<string, { readonly mode: string; readonly hash: string }> | null {
    const entries = new Map<string, { readonly mode: string; readonly hash: string }>();
    if (hash === null) return entries;
    const bytes = this.#object(hash, "tree");
    if (bytes === null) return null;
    for (let at = 0; at < bytes.length; ) {
      const end = bytes.indexOf(0, at);
      const [, mode, name] = /^(\d+) (.+)$/s.exec(bytes.toString("latin1", at, Math.max(at, end))) ?? [];
      at = end + 1 + hash.length / 2;
      if (mode === undefined || name === undefined || entries.has(name) || at > bytes.length) return null;
      entries.set(name, { mode, hash: bytes.toString("hex", end + 1, at) });
    }
    return entries;
  }

  /** What lies behind the header of an object. Null unless it is of this type, not too large, and what its name says. */
  #object(hash: string, type: "commit" | "tree"): Buffer | null {
    if (!HASH.test(hash)) return null;
    const change = this.#repository.objects.get(hash);
    const packed = (change === undefined ? null : this.#changed(change)) ?? this.#there(hash);
    if (packed === null) return null;
    const maxOutputLength = Math.min(LIMITS.objectBytes, this.#left.readBytes);
    this.#left.readBytes -= maxOutputLength;
    try {
      const bytes = inflateSync(packed, { maxOutputLength });
      this.#left.readBytes += maxOutputLength - bytes.length;
      const own = createHash(hash.length === 40 ? "sha1" : "sha256")
        .update(bytes)
        .digest("hex");
      const header = Buffer.from(`${type} ${bytes.length - bytes.indexOf(0) - 1}\0`);
      return own === hash && bytes.subarray(0, header.length).equals(header) ? bytes.subarray(header.length) : null;
    } catch {
      // No compressed data, or more of it than the limit.
      return null;
    }
  }

  /** The run's own version of a file. */
  #changed(change: Change): Buffer | null {
    const { type, next } = change;
    if (type !== "file" || next === null || !this.#takes(next.size)) return null;
    return orNull(() => {
      const content = openContent(change, this.#mounts);
      if (isVerdict(content)) return null;
      using _ = content;
      return contentAt(content.descriptor);
    });
  }

  /** An object that was there before, or was applied meanwhile. */
  #there(hash: string): Buffer | null {
    const { mount, parts } = this.#repository;
    return orNull(() => {
      const slot = this.#mounts.target(mount, [...parts, "objects", hash.slice(0, 2), hash.slice(2)]);
      if (isVerdict(slot)) return null;
      using _ = slot;
      using named = slot.folder.child(slot.name);
      const stats = fs.fstatSync(named.fd);
      return stats.isFile() && this.#takes(stats.size) ? contentAt(named) : null;
    });
  }

  #takes(bytes: number): boolean {
    if (bytes > LIMITS.objectBytes || bytes > this.#left.readBytes || this.#left.reads <= 0) return false;
    this.#left.reads -= 1;
    this.#left.readBytes -= bytes;
    return true;
  }
}

/** A directory of git is named so, or has objects in it, as a bare repository or that of a submodule. */
function repositoriesOf({ changes }: Pick<Changeset, "changes">): Map<string, Repository> {
  const found = new Map<string, Repository>();
  const files = changes.filter(({ type }) => type !== "directory");
  for (const { mount, parts, path } of files) {
    const ends = parts.flatMap((part, at) => (part.endsWith(".git") && at < parts.length - 1 ? [at + 1] : []));
    if (IS_OBJECT.test(parts.slice(-3).join("/"))) ends.push(parts.length - 3);
    for (const end of ends) {
      const [own, key] = [parts.slice(0, end), placeKey(mount, parts.slice(0, end))];
      const place = path
        .split("/")
        .slice(0, end - parts.length)
        .join("/");
      const kept = { objects: new Map(), refs: new Map(), own: new Map() };
      if (!found.has(key)) found.set(key, { mount, parts: own, path: place, ...kept });
    }
  }
  for (const change of found.size === 0 ? [] : files) {
    const { mount, parts } = change;
    // The outermost to which it belongs: a branch may be named like a repository.
    for (let at = 0; at < parts.length; at += 1) {
      const repository = found.get(placeKey(mount, parts.slice(0, at)));
      const name = parts.slice(at).join("/");
      const [kind] = repository === undefined ? [] : (OWN.find(([, pattern]) => pattern.test(name)) ?? []);
      if (repository === undefined || kind === undefined) continue;
      repository.own.set(kind, (repository.own.get(kind) ?? 0) + 1);
      if (kind === "ref") repository.refs.set(name, change);
      if (kind === "object" && change.kind !== "delete") repository.objects.set(parts.slice(-2).join(""), change);
      break;
    }
  }
  return found;
}

/** Null if the system refuses it: a changeset is shown whatever its files are. */
function orNull<T>(read: () => T): T | null {
  try {
    return read();
  } catch (error) {
    impossible(error);
    return null;
  }
}

function turnOf(ref: string): number {
  return ref === "HEAD" ? 0 : ref.startsWith("refs/heads/") ? 1 : ref === "packed-refs" ? 2 : 3;
}

function labelOf(ref: string): string {
  if (ref === "HEAD") return ref;
  if (ref.startsWith("refs/heads/")) return `branch ${name(ref.slice(11))}`;
  return ref.startsWith("refs/tags/") ? `tag ${name(ref.slice(10))}` : `ref ${name(ref)}`;
}

/** Short, and no words of ours can be in it. */
function name(text: string): string {
  return visibleName(text.length > 200 ? `${text.slice(0, 199)}…` : text);
}

/** Always in quotes: what a worker chose is not read as our words. */
function quoted(text: string): string {
  return `"${printableLine(text.replace(/["\\]/g, "\\$&"))}"`;
}

/** Why a change cannot be applied to the target now; null if it can. */
export function whyNot(change: Change, mounts: OpenMounts): ChangeVerdict | null {
  const slot = mounts.target(change.mount, change.parts);
  if (isVerdict(slot)) return slot;
  using _ = slot;
  const now = currentEntry(slot.folder, slot.name);
  if (isFolderThere(change, now)) return null;
  const reason = whyConflict(change, now);
  return reason === null ? null : conflict(reason);
}

/** Reads both versions of a file that was written. Each must be the one that the changeset records; a missing one is empty. */
export function versionsOf(
  change: Change,
  mounts: OpenMounts,
): { readonly before: Buffer; readonly after: Buffer } | ChangeVerdict {
  const content = openContent(change, mounts);
  if (isVerdict(content)) return content;
  using _ = content;
  const after = contentAt(content.descriptor);
  if (change.kind === "create" || change.base?.type !== "file") return { before: Buffer.alloc(0), after };
  const slot = mounts.target(change.mount, change.parts);
  if (isVerdict(slot)) return slot;
  using __ = slot;
  using named = slot.folder.child(slot.name);
  if (!isAsItWas(change.base, factsOf(fs.fstatSync(named.fd, { bigint: true })) ?? "other"))
    return conflict("it was changed since the run began");
  return { before: contentAt(named), after };
}

/** The name must already be known to be a regular file, since opening a FIFO would block, and to be small: it is read at once. */
function contentAt(named: Descriptor): Buffer {
  using file = named.reopen(fs.constants.O_RDONLY);
  const bytes = Buffer.alloc(fs.fstatSync(file.fd).size);
  let length = 0;
  for (let read = 1; read > 0 && length < bytes.length; length += read)
    read = fs.readSync(file.fd, bytes, length, bytes.length - length, length);
  return bytes.subarray(0, length);
}
