import { isUtf8 } from "node:buffer";
import fs from "node:fs";
import { setImmediate as nextTurn } from "node:timers/promises";
import { contentOf } from "../../files/host/content.ts";
import type { Descriptor } from "../../files/host/descriptor.ts";
import { codeOf, hasCode } from "../../platform/errno.ts";
import { checkWrite } from "../../sandbox/access.ts";
import { ASK } from "../../sandbox/approval.ts";
import type { Mount } from "../../sandbox/mount.ts";
import { covers, MAX_COMPONENT_BYTES, MAX_PATH_BYTES, type VirtualPath } from "../../sandbox/virtual-path.ts";
import { formatBytes } from "../../text/amounts.ts";
import {
  type Change,
  type EntryFacts,
  factsOf,
  linkTextFault,
  nameText,
  type RawName,
  rawChild,
  rawNameOf,
  rawNamesIn,
  rawPath,
  rawStat,
} from "../model/changeset.ts";
import { type BaseNode, type BaseTree, MAX_STAGED_DEPTH } from "../view/base-tree.ts";
import type { View } from "../view/view.ts";

const PIECE_BYTES = 256 * 1024;

/** True if a file that was opened for writing has the same content as before. The original must not have changed. */
async function sameFile(content: Descriptor, target: Descriptor, name: RawName, base: EntryFacts): Promise<boolean> {
  try {
    using before = openFile(target, name);
    using now = openFile(content, name);
    if (before === null || now === null) return false;
    const facts = factsOf(fs.fstatSync(before.fd, { bigint: true }));
    if (facts?.inode !== base.inode || facts.ctimeNs !== base.ctimeNs) return false;
    const [a, b] = [contentOf(before), contentOf(now)];
    if (a.size !== b.size) return false;
    for (let at = 0; at < a.size; at += PIECE_BYTES) {
      const [one, other] = await Promise.all([a.read(at, PIECE_BYTES), b.read(at, PIECE_BYTES)]);
      if (!one.equals(other)) return false;
    }
    return true;
  } catch (error) {
    // A file that cannot be compared counts as changed.
    if (codeOf(error) !== undefined) return false;
    throw error;
  }
}

/** Opens a regular file. Its type is checked first, since opening a FIFO would block. */
function openFile(folder: Descriptor, name: RawName): Descriptor | null {
  using named = rawChild(folder, name);
  return named.stat().isFile() ? named.reopen(fs.constants.O_RDONLY) : null;
}

/** The number of names after which other work of the process gets a turn. */
const SLICE = 500;
const EMPTY: BaseTree = new Map();

export interface ScanOptions {
  readonly signal?: AbortSignal | undefined;
  /** More are refused. */
  readonly maxChanges?: number;
}

/**
 * Finds what differs between a view and its base. It compares what the view shows with what was there, so it need not know
 * how the kernel records a deletion. In an overlay it descends only into what was written.
 */
export async function scanView(view: View, options: ScanOptions = {}): Promise<Draft[]> {
  return await new Scan(view, options).run();
}

/** One folder: as the view shows it, the run's own version, and the original. */
interface Place {
  readonly shown: Descriptor;
  readonly content: Descriptor;
  /** Null if it was deleted, or never existed. */
  readonly target: Descriptor | null;
  readonly base: BaseTree;
  readonly names: readonly RawName[];
  /** True below an entry that the view does not show: nothing written there can be applied. */
  readonly overHidden: boolean;
}

class Scan {
  readonly #view: View;
  readonly #signal: AbortSignal | undefined;
  readonly #maxChanges: number;
  readonly #drafts: Draft[] = [];
  #looked = 0;

  constructor(view: View, { signal, maxChanges = MAX_CHANGES }: ScanOptions) {
    this.#view = view;
    this.#signal = signal;
    this.#maxChanges = maxChanges;
  }

  async run(): Promise<Draft[]> {
    const { shown, content, target, base } = this.#view;
    try {
      await this.#folder({ shown, content, target, base, names: [], overHidden: false });
    } catch (error) {
      // The user that Corral runs as may lack the permission; root does not.
      if (!hasCode(error, "EACCES")) throw error;
      throw new TooManyChanges("a folder in it cannot be read");
    }
    return this.#drafts;
  }

  async #folder(place: Place): Promise<void> {
    if (place.names.length > MAX_STAGED_DEPTH) throw new TooManyChanges(`it is deeper than ${MAX_STAGED_DEPTH} levels`);
    const there = new Set<RawName>(rawNamesIn(place.shown));
    for (const name of there) {
      await this.#turn();
      if (!this.#isClosed([...place.names, name])) await this.#entry(place, name);
    }
    for (const [name, node] of place.base) {
      if (there.has(name)) continue;
      await this.#turn();
      this.#deleted([...place.names, name], node, place.target, false);
    }
  }

  async #entry(place: Place, name: RawName): Promise<void> {
    const own = rawStat(place.content, name);
    const node = place.base.get(name);
    const names = [...place.names, name];
    // The run did not write it: in an overlay it has no version of its own.
    if (own === null) {
      if (node?.brought) this.#deleted(names, node, place.target, false);
      return;
    }
    if (node === undefined) return await this.#created(place, names, own, place.overHidden);
    if (node.hidden || node.facts === null) {
      const isStillFolder = node.facts?.type === "directory" && own.isDirectory();
      return isStillFolder ? await this.#inside(place, names, true) : await this.#created(place, names, own, true);
    }
    const facts = factsOf(own);
    if (facts?.type !== node.facts.type) {
      this.#deleted(names, node, place.target, true);
      return await this.#created(place, names, own, false);
    }
    if (facts.type === "directory") return await this.#below(place, names, node, facts);
    if (node.copied?.inode === facts.inode && node.copied.ctimeNs === facts.ctimeNs) return;
    await this.#compared(place, names, node.facts, facts);
  }

  async #below(place: Place, names: readonly RawName[], node: BaseNode, facts: EntryFacts): Promise<void> {
    const name = names.at(-1) ?? "";
    using shown = folderAt(place.shown, name);
    using content = folderAt(place.content, name);
    using target = place.target === null ? null : folderAt(place.target, name);
    // A run that continues may have deleted it during the scan.
    if (shown === null || content === null) return;
    const base = node.facts;
    if (base !== null && (base.mode & 0o777) !== (facts.mode & 0o777))
      this.#add({ names, kind: "modify", type: "directory", base, next: facts });
    await this.#folder({ shown, content, target, base: node.children ?? EMPTY, names, overHidden: false });
  }

  async #compared(place: Place, names: readonly RawName[], base: EntryFacts, next: EntryFacts): Promise<void> {
    const name = names.at(-1) ?? "";
    if (next.type === "link") {
      const linkText = linkTextAt(place.content, name);
      const before = place.target === null ? null : linkTextAt(place.target, name);
      if (linkText !== before) this.#add({ names, kind: "modify", type: "link", base, next, ...withText(linkText) });
      return;
    }
    const sameMode = (base.mode & 0o777) === (next.mode & 0o777) && (next.mode & ~base.mode & 0o6000) === 0;
    const unchanged =
      sameMode &&
      base.size === next.size &&
      place.target !== null &&
      (await sameFile(place.content, place.target, name, base));
    if (!unchanged) this.#add({ names, kind: "modify", type: "file", base, next });
  }

  async #created(place: Place, names: readonly RawName[], own: fs.BigIntStats, overHidden: boolean): Promise<void> {
    const facts = factsOf(own);
    const name = names.at(-1) ?? "";
    const hidden = overHidden ? { overHidden: true } : {};
    if (facts === null) return this.#add({ names, kind: "create", type: "other", base: null, next: null, ...hidden });
    const isLong = names.reduce((sum, one) => sum + one.length + 1, 0) > MAX_PATH_BYTES;
    if (facts.type === "directory" && (isLong || names.length > MAX_STAGED_DEPTH)) {
      // It is not looked into, and what else the run changed does not depend on it.
      const refusal = isLong ? "its path is too long" : `it is deeper than ${MAX_STAGED_DEPTH} levels`;
      return this.#add({ names, kind: "create", type: "directory", base: null, next: facts, refusal, ...hidden });
    }
    const text = facts.type === "link" ? withText(linkTextAt(place.content, name)) : {};
    this.#add({ names, kind: "create", type: facts.type, base: null, next: facts, ...text, ...hidden });
    if (facts.type === "directory") await this.#inside(place, names, overHidden);
  }

  /** A new folder: everything in it is new. */
  async #inside(place: Place, names: readonly RawName[], overHidden: boolean): Promise<void> {
    const name = names.at(-1) ?? "";
    using shown = folderAt(place.shown, name);
    using content = folderAt(place.content, name);
    if (shown === null || content === null) return;
    await this.#folder({ shown, content, target: null, base: EMPTY, names, overHidden });
  }

  /** Adds deletions from the bottom. A folder with another mount, or with entries that the view did not show, is kept. */
  #deleted(names: readonly RawName[], node: BaseNode, within: Descriptor | null, givesWay: boolean): boolean {
    if (node.hidden || node.facts === null || this.#isClosed(names)) return false;
    const name = names.at(-1) ?? "";
    // It was already deleted by another process.
    if (within === null || rawStat(within, name) === null) return true;
    using target = folderAt(within, name);
    let whole = !this.#isClosed(names, (inner, path) => covers(path, inner));
    for (const [child, inner] of node.children ?? EMPTY)
      whole = this.#deleted([...names, child], inner, target, givesWay) && whole;
    if (whole) this.#add({ names, kind: "delete", type: node.facts.type, base: node.facts, next: null, givesWay });
    return whole;
  }

  #add(draft: Draft): void {
    if (this.#drafts.length >= this.#maxChanges)
      throw new TooManyChanges(`there are more than ${this.#maxChanges} changes`);
    this.#drafts.push(draft);
  }

  #isClosed(names: readonly RawName[], test = (inner: VirtualPath, path: VirtualPath) => covers(inner, path)): boolean {
    const { closed, pathOf } = this.#view;
    const path = closed.length === 0 ? null : pathOf(names);
    return path !== null && closed.some((inner) => test(inner, path));
  }

  async #turn(): Promise<void> {
    this.#looked += 1;
    if (this.#looked % SLICE !== 0) return;
    this.#signal?.throwIfAborted();
    await nextTurn();
  }
}

/** Null if there is none: other processes can delete it at any moment. */
function folderAt(parent: Descriptor, name: RawName): Descriptor | null {
  try {
    return rawChild(parent, name, true);
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENOTDIR")) return null;
    throw error;
  }
}

/** Null if it is not UTF-8, or no longer a link. */
function linkTextAt(folder: Descriptor, name: RawName): string | null {
  try {
    const bytes = fs.readlinkSync(rawPath(folder, name), { encoding: "buffer" });
    return isUtf8(bytes) ? bytes.toString() : null;
  } catch {
    return null;
  }
}

function withText(linkText: string | null): { linkText?: string } {
  return linkText === null ? {} : { linkText };
}

/** A change as the scan finds it: names are bytes, and nothing has been checked. */
export interface Draft {
  readonly names: readonly RawName[];
  readonly kind: "create" | "modify" | "delete";
  readonly type: "file" | "directory" | "link" | "other";
  readonly base: EntryFacts | null;
  readonly next: EntryFacts | null;
  readonly linkText?: string;
  /** True if an entry that the view does not show has that name. */
  readonly overHidden?: boolean;
  /** True for a deletion that makes room for an entry of another type. */
  readonly givesWay?: boolean;
  /** Why it was refused on the machine where the run was; absent: it was not. */
  readonly refusal?: string;
}

/** The most changes of one run. */
export const MAX_CHANGES = 50_000;

/** More was changed than can be checked. */
export class TooManyChanges extends Error {}

/** Deletions that make room, from the bottom; then folders from the top, files, links; then deletions from the bottom. */
export function inOrderOfApplying<
  One extends Pick<Draft, "kind" | "type" | "givesWay"> & { names: readonly unknown[] },
>(drafts: readonly One[]): One[] {
  const stage = ({ kind, type, givesWay }: One): number => {
    if (kind === "delete") return givesWay ? 0 : 3;
    return type === "directory" ? 1 : 2;
  };
  const upwards = (one: One): number => (one.kind === "delete" ? -one.names.length : one.names.length);
  return drafts.toSorted((a, b) => stage(a) - stage(b) || upwards(a) - upwards(b) || byName(a, b));
}

function byName(a: { names: readonly unknown[] }, b: { names: readonly unknown[] }): number {
  const [one, other] = [a.names.join("/"), b.names.join("/")];
  return one < other ? -1 : one > other ? 1 : 0;
}

/** The bytes that one run may write in all. */
export class BytesBudget {
  readonly limit: number;
  #left: number;

  constructor(bytes: number) {
    this.limit = bytes;
    this.#left = bytes;
  }

  take(bytes: number): boolean {
    if (bytes > this.#left) return false;
    this.#left -= bytes;
    return true;
  }
}

/**
 * The path of a change, and why it must not be applied even if it is approved: what the file tools would have refused, and
 * what no file tool can make. A null refusal means it may be applied.
 */
export function judged(
  draft: Draft,
  { mount, pathOf, closed }: Pick<View, "mount" | "pathOf" | "closed">,
  budget: BytesBudget,
): Pick<Change, "parts" | "path" | "type" | "refusal"> {
  const texts = draft.names.map((name) => nameText(name) ?? name.replace(/[^\x20-\x7e]/g, "?"));
  // The names begin where the view does, which may be above its mount.
  const path = pathOf(draft.names) ?? pathOf(texts.map(rawNameOf)) ?? mount.path;
  const type = draft.type === "other" ? "file" : draft.type;
  const refusal = refusalOf(draft, { mount, closed }, path, budget) ?? draft.refusal ?? null;
  return { parts: texts, path, type, refusal };
}

function refusalOf(
  draft: Draft,
  { mount, closed }: Pick<View, "mount" | "closed">,
  path: VirtualPath,
  budget: BytesBudget,
): string | null {
  if (draft.names.some((name) => nameText(name) === null)) return "its name is not UTF-8";
  if (draft.names.some((name) => name.length > MAX_COMPONENT_BYTES)) return "its name is too long";
  // Programs of the host open no longer path at once.
  if (draft.kind === "create" && Buffer.byteLength(path) > MAX_PATH_BYTES) return "its path is too long";
  if (mount.mode !== "rw") return "its directory is read-only";
  const operation = draft.kind === "delete" ? "delete" : "write";
  const doing = operation === "delete" ? "deleting" : "writing";
  if ((mount.approval ?? ASK)[operation] === "blocked")
    return `${doing} is blocked there, and no approval can allow it`;
  if (draft.overHidden) return "an entry that may not be read has that name";
  const staysFolder = draft.type === "directory" && draft.kind !== "delete";
  if (!staysFolder && closed.some((inner) => covers(path, inner)))
    return "it contains a directory that was granted separately";
  if (draft.type === "other") return "it is not a file, a directory or a link";
  if (draft.kind === "delete") return draft.type === "file" ? constraintRefusal(mount, path, 0) : null;
  if (draft.type === "link") {
    const { linkText, names } = draft;
    if (linkText === undefined) return "it is a link whose target cannot be read";
    return linkTextFault(linkText, names.length - 1) ?? constraintRefusal(mount, path, 0);
  }
  if (draft.type === "directory") return null;
  if (((draft.next?.mode ?? 0) & 0o6000) !== 0) return "it is setuid or setgid: it would run as its owner or group";
  const size = draft.next?.size ?? 0;
  const unfit = constraintRefusal(mount, path, size);
  if (unfit !== null) return unfit;
  return budget.take(size) ? null : `with this change, more than ${formatBytes(budget.limit)} would be written`;
}

/** A reason fits into a sentence, while the refusal of a file tool is a whole message. */
function constraintRefusal(mount: Mount, path: VirtualPath, size: number): string | null {
  const error = checkWrite({ mounts: [mount] }, path, { size });
  switch (error?.code) {
    case undefined:
      return null;
    case "SUFFIX_NOT_ALLOWED":
      return `only files ending in ${mount.suffixes?.join(", ")} are allowed there`;
    case "FILE_TOO_LARGE":
      return `it has ${formatBytes(size)}, and at most ${formatBytes(mount.maxFileBytes ?? 0)} are allowed there`;
    default:
      return "its directory is read-only";
  }
}
