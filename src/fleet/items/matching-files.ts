import { isUtf8 } from "node:buffer";
import { posix } from "node:path";
import { faultOf } from "../../declarations/place/host-place.ts";
import { Descriptor } from "../../files/host/descriptor.ts";
import { entriesOf } from "../../files/host/tree.ts";
import { comparePaths } from "../../sandbox/virtual-path.ts";
import { ItemsError } from "./faults.ts";
import type { Glob } from "./glob.ts";

/** Something that a pattern might have meant, and that is no item. */
export interface LeftOut {
  /** As a person would write it. */
  readonly place: string;
  /** `is a symbolic link, and none is followed`. */
  readonly why: string;
}

export interface Walk {
  /** Absolute. */
  readonly cwd: string;
  readonly signal: AbortSignal;
  readonly leftOut: (what: LeftOut) => void;
}

/** Folders in each other; each holds a descriptor open. */
const MAX_DEPTH = 64;
/** Names of one folder, which are held in memory to be sorted. */
const MAX_NAMES = 1_000_000;
const MAX_ENTRIES = 100_000_000;

/**
 * The files that match, by their path from the pattern's folder; sorted, a folder at a time. Every folder is opened below
 * the one before and never through a link, so that none which is planted or swapped in meanwhile leads elsewhere.
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

/** The links on the way to where somebody stands are their own; those below may be a worker's. */
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
      if (stats.isSymbolicLink()) throw new ItemsError(`${glob.pattern}: ${at} ${LINK}; name the folder itself`);
      if (!stats.isDirectory()) throw new ItemsError(`${glob.pattern}: ${at} is not a folder`);
    }
    return current;
  } catch (error) {
    current?.[Symbol.dispose]();
    if (error instanceof ItemsError) throw error;
    throw new ItemsError(`${glob.pattern}: ${at} ${faultOf(error)}`, { cause: error });
  }
}

const LINK = "is a symbolic link, and none is followed";

/** Null where the folder cannot be looked into: one such folder is not to cost all others. */
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
  if (depth >= MAX_DEPTH) return skip(`is more than ${MAX_DEPTH} folders deep`);
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
        throw new ItemsError(`${glob.pattern}: there are more than ${MAX_ENTRIES} files to look at`);
      const name = raw.toString();
      const path = [...parts, name];
      const meant = glob.matches(path.join("/"));
      // What a link leads to is not looked at: it might have been such a folder.
      const held = (type === "directory" || type === "link") && glob.mayHold(path);
      if (!held && !meant) continue;
      const why = type === "link" ? LINK : isUtf8(raw) ? null : "has a name that is not UTF-8";
      if (why !== null) walk.leftOut({ place: placeOf(glob, path), why });
      else if (held || type === "file") entries.push({ name, folder: held });
      else if (type === "other") walk.leftOut({ place: placeOf(glob, path), why: "is not a regular file" });
      if (entries.length > MAX_NAMES) {
        const place = placeOf(glob, parts);
        throw new ItemsError(`${glob.pattern}: ${place} holds more than ${MAX_NAMES} files; name them in a manifest`);
      }
    }
  } catch (error) {
    folder[Symbol.dispose]();
    throw error;
  }
  entries.sort((a, b) => comparePaths(a.name, b.name));
  return { folder, parts, entries, next: 0 };
}

/** As the pattern is written: relative where it is. */
export function placeOf(glob: Glob, parts: readonly string[]): string {
  const lead = glob.pattern.startsWith("/") ? "/" : (/^(\.\.?\/+)*/.exec(glob.pattern)?.[0] ?? "");
  return posix.normalize(`${lead}${[...glob.base, ...parts].join("/")}`);
}
