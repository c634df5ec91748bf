import { spawn } from "node:child_process";
import fs, { readFileSync, readlinkSync } from "node:fs";
import { setImmediate as nextTurn } from "node:timers/promises";
import { type Descriptor, decodedMountField, mountIdOf } from "../../files/host/descriptor.ts";
import { SYSTEM_ENV } from "../../files/host/system-program.ts";
import { hasCode } from "../../platform/errno.ts";
import { onAbort } from "../../platform/within.ts";

/** How much disk space a directory tree takes. */
export interface TreeUsage {
  /** Blocks, and for every name at least one: an empty file is not free. */
  readonly bytes: number;
  readonly names: number;
  /** False if a folder could not be read, so that there is more than was counted. */
  readonly complete: boolean;
}

/** The least space that a name takes, in bytes. */
const LEAST_BYTES = 4096;
/** A block of `st_blocks` (stat(2)). */
const BLOCK_BYTES = 512;
/** How many files with several names are recognized; others count once for each name. */
const MAX_SHARED = 10_000;

/** Sums up a tree, name by name. */
class UsageSum {
  readonly #enough: number;
  readonly #shared = new Set<string>();
  #bytes = 0;
  #names = 0;
  #complete = true;

  constructor(enough: number) {
    this.#enough = enough;
  }

  /** `sharedAs`: the identity of a file with several names; else null. */
  add(blocks: number, sharedAs: string | null): void {
    this.#names += 1;
    if (sharedAs !== null) {
      if (this.#shared.has(sharedAs)) return;
      if (this.#shared.size < MAX_SHARED) this.#shared.add(sharedAs);
    }
    this.#bytes += Math.max(LEAST_BYTES, blocks * BLOCK_BYTES);
  }

  leaveOut(): void {
    this.#complete = false;
  }

  get names(): number {
    return this.#names;
  }

  /** True if counting more would not change the decision. */
  get isEnough(): boolean {
    return this.#bytes > this.#enough;
  }

  usage(): TreeUsage {
    return { bytes: this.#bytes, names: this.#names, complete: this.#complete };
  }
}

/** How many names are checked before the event loop has a turn. */
const SLICE = 500;
/** Deeper folders are not measured, and make the result incomplete. */
const MAX_DEPTH = 256;

/** Measures a tree in this process. Null if there are more names than `names`. */
export async function walkedUsage(
  root: Descriptor,
  { enough, names }: { readonly enough: number; readonly names: number },
  signal: AbortSignal,
): Promise<TreeUsage | null> {
  const walk = new Walk(new UsageSum(enough), names, root, signal);
  return (await walk.through(root, 0)) ? walk.sum.usage() : null;
}

class Walk {
  readonly sum: UsageSum;
  readonly #maxNames: number;
  readonly #device: number;
  readonly #mount: string;
  readonly #signal: AbortSignal;

  constructor(sum: UsageSum, maxNames: number, root: Descriptor, signal: AbortSignal) {
    this.sum = sum;
    this.#maxNames = maxNames;
    this.#device = root.stat().dev;
    this.#mount = mountIdOf(root);
    this.#signal = signal;
  }

  /** False if there are too many names. */
  async through(folder: Descriptor, depth: number): Promise<boolean> {
    for (const name of this.#ifAllowed(() => fs.readdirSync(folder.path(), { encoding: "buffer" })) ?? []) {
      if (this.sum.isEnough) return true;
      if (this.sum.names >= this.#maxNames) return false;
      if (this.sum.names % SLICE === 0) await nextTurn();
      this.#signal.throwIfAborted();
      const stats = this.#ifAllowed(() => fs.lstatSync(folder.path(name), { throwIfNoEntry: false }));
      if (!stats) continue;
      this.sum.add(stats.blocks, stats.nlink > 1 && !stats.isDirectory() ? `${stats.dev}:${stats.ino}` : null);
      if (!stats.isDirectory()) continue;
      if (depth >= MAX_DEPTH) this.sum.leaveOut();
      else if (!(await this.#below(folder, name, { depth, isOther: stats.dev !== this.#device }))) return false;
    }
    return true;
  }

  /** Another device may be another mount, or a subvolume of the same file system, which any program can have made. */
  async #below(
    folder: Descriptor,
    name: Buffer,
    { depth, isOther }: { readonly depth: number; readonly isOther: boolean },
  ): Promise<boolean> {
    try {
      using inner = folder.child(name, true);
      if (isOther && mountIdOf(inner) !== this.#mount) return true;
      return await this.through(inner, depth + 1);
    } catch (error) {
      // It was removed or replaced meanwhile.
      if (!hasCode(error, "ENOENT", "ENOTDIR")) throw error;
      return true;
    }
  }

  /** Null if this user may not look there: the result is incomplete then. */
  #ifAllowed<Found>(look: () => Found): Found | null {
    try {
      return look();
    } catch (error) {
      if (!hasCode(error, "EACCES")) throw error;
      this.sum.leaveOut();
      return null;
    }
  }
}

/** For each name: blocks, number of names of the file, type, and the file's identity. */
const FORMAT = "%b %n %y %D:%i\\n";

/**
 * Measures a tree with GNU find, in a process of its own: it has no limit of depth, and keeps only one folder's names in
 * memory. Null if there is no such program.
 */
export async function listedUsage(root: Descriptor, enough: number, signal: AbortSignal): Promise<TreeUsage | null> {
  signal.throwIfAborted();
  const sum = new UsageSum(enough);
  using folder = root.again().reopenFolder();
  const mounts = mountsBelow(root);
  if (mounts.length > MAX_MOUNTS) return null;
  // Not by their devices: a subvolume has one of its own, and any program can have made it.
  const pruned = mounts.flatMap((path) => [
    "-path",
    `/proc/self/fd/3/./${escaped(path)}`,
    "-prune",
    "-printf",
    FORMAT,
    "-o",
  ]);
  const args = ["/proc/self/fd/3/.", "-mindepth", "1", "-ignore_readdir_race", ...pruned, "-printf", FORMAT];
  const child = spawn("find", args, { stdio: ["ignore", "pipe", "ignore", folder.fd], env: SYSTEM_ENV });
  const ended = new Promise<number | null>((resolve) => {
    child.once("error", () => resolve(null)).once("close", resolve);
  });
  const stop = (): void => void child.kill("SIGKILL");
  using _ = onAbort(signal, stop);
  try {
    let rest = "";
    for await (const chunk of child.stdout?.setEncoding("latin1") ?? []) {
      const lines = (rest + chunk).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) addLine(sum, line);
      if (sum.isEnough) return sum.usage();
    }
    const code = await ended;
    signal.throwIfAborted();
    if (code !== 0 && sum.names === 0) return null;
    // find reports a folder that it could not read.
    if (code !== 0) sum.leaveOut();
    return sum.usage();
  } finally {
    stop();
    await ended;
  }
}

/** More of them make a command line long. */
const MAX_MOUNTS = 500;

/** Relative to the directory. */
function mountsBelow(root: Descriptor): string[] {
  const above = `${readlinkSync(root.path()).replace(/\/$/, "")}/`;
  const paths = readFileSync("/proc/self/mountinfo", "utf8")
    .split("\n")
    .map((line) => decodedMountField(line.split(" ")[4] ?? ""));
  return [...new Set(paths)].filter((path) => path.startsWith(above)).map((path) => path.slice(above.length));
}

/** Of a pattern. */
function escaped(path: string): string {
  return path.replace(/[*?[\\]/g, "\\$&");
}

function addLine(sum: UsageSum, line: string): void {
  const [blocks, names, type, file] = line.split(" ");
  sum.add(Number(blocks), Number(names) > 1 && type !== "d" ? (file ?? null) : null);
}

/** Above this many names another program measures: it takes a quarter of the time and does not block this process. */
export const MANY_NAMES = 4000;

/**
 * Measures a tree without following links or entering mounts; stops early above `enough` bytes. Files of any device count,
 * because an overlay shows files of several.
 */
export async function treeUsage(root: Descriptor, enough: number, signal: AbortSignal): Promise<TreeUsage> {
  const few = await walkedUsage(root, { enough, names: MANY_NAMES }, signal);
  const many = few ?? (await listedUsage(root, enough, signal));
  return many ?? (await walkedUsage(root, { enough, names: Number.POSITIVE_INFINITY }, signal)) ?? UNKNOWN;
}

const UNKNOWN: TreeUsage = { bytes: 0, names: 0, complete: false };
