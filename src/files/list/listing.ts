import { isUtf8 } from "node:buffer";
import { globMatcher } from "../../platform/globs.ts";
import { comparePaths, MAX_PATH_BYTES, parseVirtualPath, type VirtualPath } from "../../sandbox/virtual-path.ts";
import {
  ALL_SHOWN,
  type ListEntry,
  type Listing,
  type ListOptions,
  MAX_TREE_DEPTH,
  type NotShown,
  notShownText,
  sumOf,
} from "../model/files.ts";
import { unfit } from "../model/refusals.ts";

export interface Pattern {
  /** The number of directory levels in which it can match. */
  readonly depth: number;
  /** True if it could match deeper than `depth`, which is then a limit. */
  readonly recursive: boolean;
  /** `relative` has no leading slash. */
  matches(relative: string): boolean;
}

const MAX_PATTERN_CHARS = 512;
/** Each further wildcard multiplies the time that a hostile name can take: 10 ms a name was measured with three. */
const MAX_STARS_PER_COMPONENT = 3;
const MAX_GLOBSTARS = 3;
const MAX_BRACES = 4;

/** Throws if the pattern is not supported. Parentheses and similar characters match themselves. */
function parsePattern(listed: string, pattern: string | undefined): Pattern {
  if (pattern === undefined) return { depth: 1, recursive: false, matches: () => true };
  const refusal = whyUnfit(pattern);
  if (refusal !== null) throw unfit("list", listed, refusal);
  const relative = belowHere(pattern);
  const literal = relative.replace(/[()+|^$@!]/g, "\\$&");
  const matches = globMatcher(literal, { dot: true, strictSlashes: true });
  const recursive = relative.includes("**");
  return { depth: recursive ? MAX_TREE_DEPTH : relative.split("/").length, recursive, matches };
}

function whyUnfit(pattern: string): string | null {
  if (belowHere(pattern) === "")
    return "an empty pattern matches nothing. `*` matches every direct entry of the directory.";
  if (pattern.length > MAX_PATTERN_CHARS) return `the pattern is longer than ${MAX_PATTERN_CHARS} characters.`;
  if (/[\\\p{Cc}]/u.test(pattern)) return "a pattern cannot contain backslashes or control characters.";
  const parts = pattern.split("/");
  if (parts.includes("..")) return "a pattern cannot contain `..`. List the parent directory instead.";
  if (parts.filter((part) => part.includes("**")).length > MAX_GLOBSTARS) {
    return `\`**\` can occur at most ${MAX_GLOBSTARS} times in a pattern.`;
  }
  if (parts.some((part) => part !== "**" && part.split("*").length - 1 > MAX_STARS_PER_COMPONENT)) {
    return `a pattern can have at most ${MAX_STARS_PER_COMPONENT} wildcards between two slashes.`;
  }
  if (pattern.split("{").length - 1 > MAX_BRACES) return `a pattern can have at most ${MAX_BRACES} groups in braces.`;
  return null;
}

/** Without a leading `./` or `/`. */
function belowHere(pattern: string): string {
  return pattern.replace(/^(\.?\/)+/, "");
}

export const MAX_ENTRIES = 10_000;
/** The most names that are read to find matches. */
const MAX_SCANNED = 1_000_000;
/** A hostile combination of pattern and names could make matching very slow. */
const MAX_LISTING_MS = 10_000;

/** Characters that `parseVirtualPath` refuses. That function is slower, so it is called only if the length matters. */
const UNUSABLE = /[\p{Cc}\p{Cs}\\]/u;
const MAX_BYTES_PER_UNIT = 3;

/** Collects the entries of one listing, within its limits. */
export class ListingDraft {
  readonly pattern: Pattern;
  readonly #base: VirtualPath;
  readonly #max: number;
  readonly #leavesOut: ListOptions["leavesOut"];
  readonly #endsAtMs = performance.now() + MAX_LISTING_MS;
  readonly #entries = new Map<VirtualPath, ListEntry>();
  #scanned = 0;
  #unusableNames = 0;
  #unread = 0;
  #notShown = ALL_SHOWN;
  #truncated = false;

  constructor(listed: VirtualPath, options: ListOptions) {
    this.pattern = parsePattern(listed, options.pattern);
    this.#base = options.base ?? listed;
    this.#leavesOut = options.leavesOut;
    this.#max = Math.max(0, Math.min(options.max ?? MAX_ENTRIES, MAX_ENTRIES));
  }

  /** True if no more entries are added. */
  get full(): boolean {
    return this.#truncated;
  }

  get room(): number {
    return this.#max - this.#entries.size;
  }

  /** The depth of `path` below the base: 1 for a direct entry. */
  depthOf(path: VirtualPath): number {
    return this.#relative(path).split("/").length;
  }

  /** A path below `folder`. Null if no path can hold the name, which is then counted. */
  pathOf(folder: VirtualPath, name: Buffer | string): VirtualPath | null {
    if (++this.#scanned > MAX_SCANNED || performance.now() > this.#endsAtMs) this.#truncated = true;
    const text = String(name);
    const usable = (typeof name === "string" || isUtf8(name)) && !UNUSABLE.test(text);
    const path = usable ? `${folder === "/" ? "" : folder}/${text}` : null;
    if (path !== null && path.length * MAX_BYTES_PER_UNIT <= MAX_PATH_BYTES) return path as VirtualPath;
    const parsed = path === null ? null : parseVirtualPath(path);
    if (parsed?.ok) return parsed.path;
    this.#unusableNames++;
    return null;
  }

  wants(path: VirtualPath): boolean {
    return !this.#entries.has(path) && this.pattern.matches(this.#relative(path));
  }

  add(entry: ListEntry): void {
    if (this.#entries.has(entry.path)) return;
    const reason = this.#leavesOut?.(entry) ?? null;
    if (reason !== null) this.leaveOut({ ...ALL_SHOWN, [reason]: 1 });
    else if (this.room <= 0) this.#truncated = true;
    else this.#entries.set(entry.path, entry);
  }

  /** Subdirectories were not searched. */
  cut(): void {
    this.#truncated = true;
  }

  /** A subdirectory could not be read. */
  unread(): void {
    this.#unread++;
  }

  /** Counts entries that the worker may not read. */
  leaveOut(notShown: NotShown): void {
    this.#notShown = sumOf(this.#notShown, notShown);
  }

  merge(other: Listing): void {
    for (const entry of other.entries) this.add(entry);
    this.#unusableNames += other.unusableNames;
    this.#unread += other.unreadFolders;
    this.leaveOut(other.notShown);
    this.#truncated ||= other.truncated;
  }

  finish(): Listing {
    const entries = [...this.#entries.values()].sort((a, b) => comparePaths(a.path, b.path));
    const hints = [
      this.#truncated
        ? `There are more than these ${entries.length} entries: list a subdirectory, or give a narrower pattern.`
        : null,
      this.#unusableNames === 0
        ? null
        : `Not shown: ${this.#unusableNames} entries whose name no path can hold (invalid UTF-8, control characters or backslashes).`,
      this.#unread === 0 ? null : `${this.#unread} subdirectories could not be read.`,
      notShownText(this.#notShown),
    ].filter((hint) => hint !== null && hint !== "");
    return {
      entries,
      truncated: this.#truncated,
      unusableNames: this.#unusableNames,
      unreadFolders: this.#unread,
      notShown: this.#notShown,
      hint: hints.length === 0 ? null : hints.join(" "),
    };
  }

  #relative(path: VirtualPath): string {
    return path.slice(this.#base === "/" ? 1 : this.#base.length + 1);
  }
}
