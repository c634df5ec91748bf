import { isUtf8 } from "node:buffer";
import { posix } from "node:path";
import { fileFault } from "../../declarations/place/host-place.ts";
import { Descriptor } from "../../files/host/descriptor.ts";
import { entriesOf } from "../../files/host/look.ts";
import { globMatcher } from "../../platform/globs.ts";
import { comparePaths } from "../../sandbox/virtual-path.ts";
import { ItemsError } from "./item-fields.ts";

/** A pattern for files below a directory. */
export interface Glob {
  readonly pattern: string;
  /** The directory where the walk starts: `cwd`, a directory above it, or `/`. Links on the way to it are followed. */
  start(cwd: string): string;
  /** The literal names of the pattern below `start`. None of them may be a link. */
  readonly base: readonly string[];
  /** `start` and `base` together. */
  folder(cwd: string): string;
  /** True for a file below the base; `relative` is from there. */
  matches(relative: string): boolean;
  /** True if a directory below the base may contain a match. */
  mayHold(parts: readonly string[]): boolean;
}

const MAX_PATTERN_CHARS = 4096;
/** Every additional wildcard multiplies the matching time of a hostile name. */
const MAX_STARS_PER_NAME = 3;
const MAX_GLOBSTARS = 3;
const MAX_BRACES = 4;

/**
 * Parses a pattern: `*` and `?` within a name, `[…]` and `{…,…}`, and `**` between slashes for any directories. Names that
 * start with a dot match only if the pattern has that dot. Throws an `ItemsError` if the pattern is invalid.
 */
export function parseGlob(pattern: string): Glob {
  const fault = whyUnfit(pattern);
  if (fault !== null) throw new ItemsError(`${pattern}: ${fault}`);
  const names = pattern.split("/").filter((name) => name !== "" && name !== ".");
  const above = names.findIndex((name) => name !== "..");
  const absolute = pattern.startsWith("/");
  const up = names.slice(0, Math.max(0, above));
  const below = names.slice(up.length);
  const spelled = below.findIndex((name, index) => MAGIC.test(name) || index === below.length - 1);
  const base = below.slice(0, spelled);
  const rest = below.slice(spelled);
  const start = (cwd: string): string => (absolute ? "/" : posix.resolve(cwd, ...up));
  const whole = globMatcher(rest.map(literally).join("/"), OPTIONS);
  return {
    pattern,
    start,
    base,
    folder: (cwd) => posix.join(start(cwd), ...base),
    matches: (relative) => whole(relative),
    mayHold: folderTest(rest),
  };
}

const OPTIONS = { strictSlashes: true };
const MAGIC = /[*?[\]{}]/;

function folderTest(rest: readonly string[]): Glob["mayHold"] {
  const globstar = rest.indexOf("**");
  const fixed = rest
    .slice(0, globstar < 0 ? rest.length - 1 : globstar)
    .map((name) => globMatcher(literally(name), OPTIONS));
  const hidden = rest.slice(fixed.length).some((name) => name.startsWith("."));
  return (parts) => {
    const last = parts.length - 1;
    const name = parts[last] ?? "";
    // The walk has already tested the directories above.
    if (last < fixed.length) return fixed[last]?.(name) ?? false;
    return globstar >= 0 && (hidden || !name.startsWith("."));
  };
}

function whyUnfit(pattern: string): string | null {
  if (pattern === "") return "an empty pattern matches nothing";
  if (pattern.length > MAX_PATTERN_CHARS) return `the pattern is longer than ${MAX_PATTERN_CHARS} characters`;
  if (/[\\\p{Cc}]/u.test(pattern)) return "a pattern cannot contain backslashes or control characters";
  if (pattern.endsWith("/"))
    return "this names a directory; add `*` for the files in it, or `**` for all files below it";
  const parts = pattern.split("/").filter((part) => part !== "" && part !== ".");
  if (parts.every((part) => part === "..")) return "this names a directory; add `/*` for the files in it";
  if (
    pattern.startsWith("/")
      ? parts.includes("..")
      : parts.slice(parts.findIndex((part) => part !== "..")).includes("..")
  )
    return "`..` is allowed only at the start of a pattern";
  if (/\{[^}]*\/|\[[^\]]*\//.test(pattern)) return "a group in braces or brackets cannot contain a `/`";
  if (parts.filter((part) => part === "**").length > MAX_GLOBSTARS)
    return `a pattern can have \`**\` at most ${MAX_GLOBSTARS} times`;
  if (parts.some((part) => part !== "**" && part.includes("**"))) return "`**` must be alone between two slashes";
  if (parts.some((part) => part !== "**" && part.split("*").length - 1 > MAX_STARS_PER_NAME))
    return `a pattern can have at most ${MAX_STARS_PER_NAME} wildcards between two slashes`;
  if (pattern.split("{").length - 1 > MAX_BRACES) return `a pattern can have at most ${MAX_BRACES} groups in braces`;
  return null;
}

/** Makes parentheses and similar characters literal. `[!a]` has its meaning in a shell: it does not match a leading dot. */
function literally(name: string): string {
  return name.replaceAll(/\[[!^]|[()+|^$@!]/g, (found, at: number) =>
    found.startsWith("[") ? (at === 0 ? "[^." : "[^") : `\\${found}`,
  );
}

/** An entry that a pattern may have meant, but that cannot be an item. */
export interface SkippedEntry {
  /** Its path, written as in the pattern. */
  readonly place: string;
  /** `is a symbolic link, which is not followed`. */
  readonly why: string;
  /** It is an item, and is refused: a person who reads the results sees that it was not taken. */
  readonly isLost?: true;
}

export interface GlobWalk {
  /** Absolute. */
  readonly cwd: string;
  readonly signal: AbortSignal;
  readonly leftOut: (what: SkippedEntry) => void;
}

/** Nested directories; each has an open descriptor. */
const MAX_DEPTH = 64;
/** Names of one directory, which are sorted in memory. */
const MAX_NAMES = 1_000_000;
const MAX_ENTRIES = 100_000_000;

/**
 * The matching files, by their path from the pattern's directory, sorted within each directory. Every directory is opened
 * relative to its parent and never through a link, so that a planted or swapped link cannot lead elsewhere.
 */
export async function* matchingFiles(glob: Glob, walk: GlobWalk): AsyncGenerator<string> {
  const open: Level[] = [];
  const budget = { entries: MAX_ENTRIES };
  try {
    open.push(await levelOf(baseOf(glob, walk.cwd), [], glob, walk, budget));
    for (let level = open.at(-1); level !== undefined; level = open.at(-1)) {
      walk.signal.throwIfAborted();
      const entry = level.entries[level.next++];
      if (entry === undefined) {
        level.folder[Symbol.dispose]();
        open.pop();
      } else if (entry.folder) {
        const inner = await levelBelow(level, entry.name, open.length, glob, walk, budget);
        if (inner !== null) open.push(inner);
      } else yield [...level.parts, entry.name].join("/");
    }
  } finally {
    for (const { folder } of open) folder[Symbol.dispose]();
  }
}

interface Level {
  readonly folder: Descriptor;
  readonly parts: readonly string[];
  readonly entries: readonly { readonly name: string; readonly folder: boolean }[];
  next: number;
}

interface Budget {
  entries: number;
}

/** Links above the start belong to the user and are followed. Links below it may be a worker's and are refused. */
function baseOf(glob: Glob, cwd: string): Descriptor {
  let current: Descriptor | null = null;
  let at = glob.start(cwd);
  try {
    current = Descriptor.name(`${at}/.`, true);
    for (const name of glob.base) {
      at = posix.join(at, name);
      const next: Descriptor = current.child(name);
      current[Symbol.dispose]();
      current = next;
      const stats = current.stat();
      if (stats.isSymbolicLink()) throw new ItemsError(`${glob.pattern}: ${at} ${LINK}; name the directory itself`);
      if (!stats.isDirectory()) throw new ItemsError(`${glob.pattern}: ${at} is not a directory`);
    }
    return current;
  } catch (error) {
    current?.[Symbol.dispose]();
    if (error instanceof ItemsError) throw error;
    throw new ItemsError(`${glob.pattern}: ${at} ${fileFault(error)}`, { cause: error });
  }
}

const LINK = "is a symbolic link, which is not followed";
const NOT_UTF8 = "has a name that is not UTF-8: rename it, and run this again";

/** `caf\\xe9.pdf`: two names are two texts. */
function bytesShown(name: Buffer): string {
  return name
    .toString("latin1")
    .replaceAll(/[^\x20-\x5b\x5d-\x7e]/g, (byte) => `\\x${byte.charCodeAt(0).toString(16).padStart(2, "0")}`);
}

/** Null if the directory cannot be read; the walk continues with the others. */
async function levelBelow(
  above: Level,
  name: string,
  depth: number,
  glob: Glob,
  walk: GlobWalk,
  budget: Budget,
): Promise<Level | null> {
  const parts = [...above.parts, name];
  const skip = (why: string): null => {
    walk.leftOut({ place: placeAsWritten(glob, parts), why, isLost: true });
    return null;
  };
  if (depth >= MAX_DEPTH) return skip(`is more than ${MAX_DEPTH} directories deep`);
  try {
    return await levelOf(above.folder.child(name, true), parts, glob, walk, budget);
  } catch (error) {
    if (error instanceof ItemsError || walk.signal.aborted) throw error;
    return skip(fileFault(error));
  }
}

async function levelOf(
  folder: Descriptor,
  parts: readonly string[],
  glob: Glob,
  walk: GlobWalk,
  budget: Budget,
): Promise<Level> {
  const entries: { name: string; folder: boolean }[] = [];
  try {
    for await (const { name: raw, type } of entriesOf(folder)) {
      if (--budget.entries < 0)
        throw new ItemsError(
          `${glob.pattern}: there are more than ${MAX_ENTRIES} files to check; use a narrower pattern`,
        );
      const name = raw.toString();
      const path = [...parts, name];
      const meant = glob.matches(path.join("/"));
      // A link's target is not checked; it might be such a directory.
      const held = (type === "directory" || type === "link") && glob.mayHold(path);
      if (!held && !meant) continue;
      if (type !== "link" && !isUtf8(raw))
        walk.leftOut({ place: placeAsWritten(glob, [...parts, bytesShown(raw)]), why: NOT_UTF8, isLost: true });
      else if (type === "link") walk.leftOut({ place: placeAsWritten(glob, path), why: LINK });
      else if (held || type === "file") entries.push({ name, folder: held });
      else if (type === "other") walk.leftOut({ place: placeAsWritten(glob, path), why: "is not a regular file" });
      if (entries.length > MAX_NAMES) {
        const place = placeAsWritten(glob, parts);
        throw new ItemsError(`${glob.pattern}: ${place} has more than ${MAX_NAMES} files; list them in a manifest`);
      }
    }
  } catch (error) {
    folder[Symbol.dispose]();
    throw error;
  }
  entries.sort((a, b) => comparePaths(a.name, b.name));
  return { folder, parts, entries, next: 0 };
}

/** Relative if the pattern is relative. */
export function placeAsWritten(glob: Glob, parts: readonly string[]): string {
  const lead = glob.pattern.startsWith("/") ? "/" : (/^(\.\.?\/+)*/.exec(glob.pattern)?.[0] ?? "");
  return posix.normalize(`${lead}${[...glob.base, ...parts].join("/")}`);
}
