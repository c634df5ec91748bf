import { isUtf8 } from "node:buffer";
import { posix } from "node:path";
import { faultOf } from "../../declarations/place/host-place.ts";
import { Descriptor } from "../../files/host/descriptor.ts";
import { entriesOf } from "../../files/host/tree.ts";
import { comparePaths } from "../../sandbox/virtual-path.ts";
import { ItemsError } from "./faults.ts";
import type { Glob } from "./glob.ts";

/** An entry that a pattern may have meant, but that cannot be an item. */
export interface LeftOut {
  /** Its path, written as in the pattern. */
  readonly place: string;
  /** `is a symbolic link, which is not followed`. */
  readonly why: string;
}

export interface Walk {
  /** Absolute. */
  readonly cwd: string;
  readonly signal: AbortSignal;
  readonly leftOut: (what: LeftOut) => void;
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
export async function* matchingFiles(glob: Glob, walk: Walk): AsyncGenerator<string> {
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
    throw new ItemsError(`${glob.pattern}: ${at} ${faultOf(error)}`, { cause: error });
  }
}

const LINK = "is a symbolic link, which is not followed";

/** Null if the directory cannot be read; the walk continues with the others. */
async function levelBelow(
  above: Level,
  name: string,
  depth: number,
  glob: Glob,
  walk: Walk,
  budget: Budget,
): Promise<Level | null> {
  const parts = [...above.parts, name];
  const skip = (why: string): null => {
    walk.leftOut({ place: placeOf(glob, parts), why });
    return null;
  };
  if (depth >= MAX_DEPTH) return skip(`is more than ${MAX_DEPTH} directories deep`);
  try {
    return await levelOf(above.folder.child(name, true), parts, glob, walk, budget);
  } catch (error) {
    if (error instanceof ItemsError || walk.signal.aborted) throw error;
    return skip(faultOf(error));
  }
}

async function levelOf(
  folder: Descriptor,
  parts: readonly string[],
  glob: Glob,
  walk: Walk,
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
      const why = type === "link" ? LINK : isUtf8(raw) ? null : "has a name that is not UTF-8";
      if (why !== null) walk.leftOut({ place: placeOf(glob, path), why });
      else if (held || type === "file") entries.push({ name, folder: held });
      else if (type === "other") walk.leftOut({ place: placeOf(glob, path), why: "is not a regular file" });
      if (entries.length > MAX_NAMES) {
        const place = placeOf(glob, parts);
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
export function placeOf(glob: Glob, parts: readonly string[]): string {
  const lead = glob.pattern.startsWith("/") ? "/" : (/^(\.\.?\/+)*/.exec(glob.pattern)?.[0] ?? "");
  return posix.normalize(`${lead}${[...glob.base, ...parts].join("/")}`);
}
