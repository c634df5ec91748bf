import { type Dirent, lstatSync, opendirSync, readdirSync, type Stats, statfsSync } from "node:fs";
import { join } from "node:path/posix";
import { setImmediate as nextTurn } from "node:timers/promises";
import { codeOf } from "../../platform/errno.ts";
import { canonicalMounts, carve } from "../../sandbox/access.ts";
import { deliveryOf } from "../../sandbox/expand.ts";
import { asksForHostExecuted, type EntryKind, FIRST_NAMES, hostExecutedBelow } from "../../sandbox/host-executed.ts";
import type { Mount } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { joinVirtual, type VirtualPath } from "../../sandbox/virtual-path.ts";

/** Each is a mount more in the cell. */
export const MAX_HELD = 250;

/**
 * How much of the writable direct mounts of one cell is looked at. `near`: the folders of a mount itself, those in it and what is in a
 * repository of these. They are always looked at, so that no worker hides one behind many others; more are refused. `far`: deeper ones,
 * shallow ones first. `read`: entries of one folder, and of all far ones, that are read; more of one folder only to find its folders.
 */
export interface SearchDepths {
  readonly near: number;
  readonly far: number;
  readonly readOfOne: number;
  readonly readOfFar: number;
  readonly readOfNear: number;
}
const REACH: SearchDepths = { near: 50_000, far: 5_000, readOfOne: 2_000, readOfFar: 100_000, readOfNear: 2_000_000 };

/** The sandbox as its cell has it: what programs of the host would execute is read-only in a writable direct mount. */
export type HeldSandbox =
  | {
      readonly ok: true;
      readonly sandbox: Sandbox;
      readonly held: readonly Mount[];
      /** Mounts that were not looked into wholly. */
      readonly partly: readonly VirtualPath[];
    }
  | { readonly ok: false; readonly violations: readonly Violation[] };

/**
 * Looks for names in the writable direct mounts that programs of the host would execute. A mount cannot ask, so those that exist cannot be
 * changed by the cell; those that do not exist could only be made in a view. It costs little however large a mount is: each start does it.
 */
export async function holdHostExecuted(sandbox: Sandbox, reach: SearchDepths = REACH): Promise<HeldSandbox> {
  const open = sandbox.mounts.filter(isWritableDirectly);
  if (open.length === 0 || !asksForHostExecuted(sandbox)) return { ok: true, sandbox, held: [], partly: [] };
  const search = new Search(new Set(sandbox.mounts.map(({ host }) => host)), reach);
  await search.all(open);
  if (search.violations.length > 0) return { ok: false, violations: search.violations };
  const { held, partly } = search;
  const mounts = canonicalMounts([...sandbox.mounts, ...held]);
  return { ok: true, sandbox: { ...sandbox, mounts }, held, partly: [...partly] };
}

/** True for a mount in which a cell makes changes on the host itself. */
export function isWritableDirectly(mount: Mount): boolean {
  return mount.mode === "rw" && mount.view === undefined && deliveryOf(mount) === "direct";
}

/** Of a mount that was not looked into wholly. */
export function partlyNote(path: VirtualPath): string {
  return `Corral has not looked into all of ${path} for what programs of the host would execute: it has too much in it, or folders that cannot be read. What exists there, deep below, can be changed. \`stage: true\` closes this.`;
}

const MAX_DEPTH = 100;
/** After so many folders, or entries of one, other work of the process gets a turn. */
const SLICE = 50;
const SLICE_OF_ENTRIES = 5_000;
/** Of a directory `.git`: in others of its folders nothing is executed, and they may be many. */
const OF_GIT: ReadonlySet<string> = new Set(["modules", "worktrees", "info", "objects"]);
/** Folders of other repositories in which nothing is executed, unless a submodule has such a name, or the repository only looks like one. */
const MANY: ReadonlySet<string> = new Set(["refs", "logs", "lfs", "annex", "objects"]);
const OF_BARE = ["HEAD", "objects", "refs"];
/** Packages bring settings of their editors and CI services by the hundred, and a person works in none of them. */
const OF_PACKAGES = "node_modules";
/** Of a directory: some thousands of entries at most. */
const SMALL_BYTES = 65_536;
/** File systems whose directories count their folders in `nlink`: ext4, xfs, tmpfs. */
const COUNTING: ReadonlySet<number> = new Set([0xef53, 0x58465342, 0x01021994]);

interface Folder {
  readonly mount: Mount;
  readonly parts: readonly string[];
  readonly isNear: boolean;
  /** In the own directory of a repository. */
  readonly isGits: boolean;
  /** Its path if what is around it is a repository that only its entries show. */
  readonly asGits: string | null;
  /** Looked at when nothing else is left; what cannot be held there is said, and refuses no run. */
  readonly isLate: boolean;
}

interface Listing {
  readonly entries: readonly (readonly [name: string, kind: EntryKind])[];
  readonly isBare: boolean;
}

class Search {
  readonly held: Mount[] = [];
  readonly violations: Violation[] = [];
  readonly partly = new Set<VirtualPath>();
  readonly #others: ReadonlySet<string>;
  readonly #reach: SearchDepths;
  readonly #near: Folder[] = [];
  readonly #far: Folder[] = [];
  readonly #last: Folder[] = [];
  readonly #counting = new Map<number, boolean>();
  #left: { near: number; far: number };

  constructor(others: ReadonlySet<string>, reach: SearchDepths) {
    this.#others = others;
    this.#reach = reach;
    this.#left = { near: reach.readOfNear, far: reach.readOfFar };
  }

  async all(mounts: readonly Mount[]): Promise<void> {
    this.#near.push(
      ...mounts.map((mount) => ({ mount, parts: [], isNear: true, isGits: false, asGits: null, isLate: false })),
    );
    await this.#each(this.#near, this.#reach.near);
    const [refused] = this.#near;
    if (refused !== undefined && this.violations.length === 0)
      this.#refuse(refused.mount, `it has more than ${this.#reach.near} folders in its top`);
    const visited = await this.#each(this.#far, this.#reach.far);
    await this.#each(this.#last, this.#reach.far - visited);
    for (const { mount } of [...this.#far, ...this.#last]) this.partly.add(mount.path);
  }

  /** Leaves those that are too many. */
  async #each(folders: Folder[], max: number): Promise<number> {
    let visited = 0;
    for (const folder of folders) {
      if (visited >= max || this.violations.length > 0) break;
      visited += 1;
      if (visited % SLICE === 0) await nextTurn();
      await this.#look(folder);
    }
    folders.splice(0, visited);
    return visited;
  }

  async #look(folder: Folder): Promise<void> {
    const { mount, parts } = folder;
    const host = join(mount.host, ...parts);
    const { entries, isBare } = await this.#entriesOf(folder, host);
    // Whatever its name: git takes a directory with these for a repository, and reads its configuration.
    const asGits = folder.asGits ?? (isBare ? "/x.git" : null);
    const whyByName = hostExecutedBelow(host);
    const whyAsGits = asGits === null ? () => null : hostExecutedBelow(asGits);
    for (const [name, kind] of entries) {
      const below = [...parts, name];
      if (this.#others.has(join(host, name))) continue;
      const why = whyByName(name, kind) ?? whyAsGits(name, kind);
      if (why !== null) this.#hold(folder, below, kind, why);
      else if (kind === "directory") this.#queue({ ...folder, asGits }, below, isBare);
    }
  }

  #queue(folder: Folder, below: readonly string[], isBare: boolean): void {
    const { mount, parts, isNear, isGits, asGits, isLate } = folder;
    const [above = "", name = ""] = [parts.at(-1), below.at(-1)];
    const isRepository = isGits || isBare;
    if (above === ".git" && !OF_GIT.has(name)) return;
    if (isRepository && name === "objects") {
      // The objects themselves are thousands, and only one file beside them names another place.
      const info = { parts: [...below, "info"], asGits: asGits && join(asGits, name, "info") };
      this.#put({ ...folder, ...info, isGits: true });
      if (above === ".git") return;
    }
    const isOfMany = isRepository && MANY.has(name) && above !== "modules";
    this.#put({
      mount,
      parts: below,
      isNear: isNear && (parts.length === 0 || isRepository || name === ".git"),
      isGits: isRepository || name === ".git",
      asGits: asGits && join(asGits, name),
      isLate: isLate || isOfMany || (name === OF_PACKAGES && parts.length > 0),
    });
  }

  #put(folder: Folder): void {
    const { mount, parts, isNear, isLate } = folder;
    // A name that is no text leads nowhere.
    if (parts.length > MAX_DEPTH || parts.at(-1)?.includes("\ufffd")) this.partly.add(mount.path);
    else if (isLate) this.#last.push({ ...folder, isNear: false });
    else (isNear ? this.#near : this.#far).push(folder);
  }

  async #entriesOf({ mount, parts, isNear }: Folder, host: string): Promise<Listing> {
    const entries = new Map<string, EntryKind>();
    try {
      const stats = lstatSync(host);
      if (!stats.isDirectory()) return { entries: [], isBare: false };
      let folders = this.#foldersIn(stats, host);
      let isWhole = false;
      const left = isNear ? "near" : "far";
      let read = 0;
      for (const entry of entriesOf(host, this.#isCounting(stats.dev, host) && stats.size <= SMALL_BYTES)) {
        const isMuch = read >= this.#reach.readOfOne;
        isWhole = entry === null;
        if (entry === null || (isMuch && folders === 0) || this.#left[left] <= 0) break;
        read += 1;
        this.#left[left] -= 1;
        const kind: EntryKind = entry.isDirectory() ? "directory" : entry.isSymbolicLink() ? "link" : "file";
        if (kind === "directory" && folders !== null) folders -= 1;
        if (kind === "directory" || !isMuch) entries.set(entry.name, kind);
        if (read % SLICE_OF_ENTRIES === 0) await nextTurn();
      }
      if (!isWhole) {
        if (folders !== 0) this.#cut(mount, isNear);
        addByName(entries, host);
      }
    } catch (error) {
      const code = codeOf(error) ?? "";
      if (code === "EACCES" || code === "EPERM") this.#unreadable(mount, parts, entries, host);
      else if (!["ENOENT", "ENOTDIR", "ELOOP"].includes(code)) throw error;
    }
    return { entries: [...entries], isBare: parts.at(-1) !== ".git" && OF_BARE.every((wanted) => entries.has(wanted)) };
  }

  /** Null: not known. */
  #foldersIn({ dev, nlink }: Stats, host: string): number | null {
    return this.#isCounting(dev, host) && nlink >= 2 ? nlink - 2 : null;
  }

  #isCounting(dev: number, host: string): boolean {
    const known = this.#counting.get(dev);
    if (known !== undefined) return known;
    const found = COUNTING.has(statfsSync(host).type);
    this.#counting.set(dev, found);
    return found;
  }

  #cut(mount: Mount, isNear: boolean): void {
    if (isNear) this.#refuse(mount, `it has more than ${this.#reach.readOfNear} entries in its top`);
    else this.partly.add(mount.path);
  }

  /** Its owner, the worker, could make it readable again, and change what is in it. */
  #unreadable(mount: Mount, parts: readonly string[], entries: Map<string, EntryKind>, host: string): void {
    try {
      addByName(entries, host);
      this.partly.add(mount.path);
    } catch (error) {
      if (codeOf(error) !== "EACCES") throw error;
      const isOwn = lstatSync(host, { throwIfNoEntry: false })?.uid === process.getuid?.();
      if (isOwn)
        this.#refuse(mount, `${joinVirtual(mount.path, parts.join("/"))} cannot be looked into: \`chmod u+rx\` it`);
      else this.partly.add(mount.path);
    }
  }

  #hold({ mount, isLate }: Folder, parts: readonly string[], kind: EntryKind, why: string): void {
    const path = joinVirtual(mount.path, parts.join("/"));
    // Two ways lead to the folder beside objects.
    if (this.held.some((one) => one.path === path)) return;
    if (kind !== "link" && this.held.length < MAX_HELD) {
      const { stage: _, discard: __, ...carved } = carve(mount, path);
      this.held.push({ ...carved, mode: "ro" });
    } else if (isLate) this.partly.add(mount.path);
    else if (kind === "link") this.#refuse(mount, `${why}, and ${path} is a link, which cannot be made read-only`);
    else this.#refuse(mount, `it has more than ${MAX_HELD} names of what programs of the host would execute`);
  }

  #refuse({ path }: Mount, reason: string): void {
    const way = "Say `stage: true` of the mount, so that its changes are asked about, or mount less";
    const said = `${reason}. ${way}`;
    if (this.violations.some((one) => "reason" in one && one.reason === said)) return;
    this.violations.push({ code: "MOUNT_SOURCE_REFUSED", path, reason: said });
  }
}

/** Ends with null. What is small is read at once, which is much quicker. */
function* entriesOf(host: string, isSmall: boolean): Generator<Dirent | null> {
  if (isSmall) yield* readdirSync(host, { withFileTypes: true });
  else {
    const listing = opendirSync(host, { bufferSize: 256 });
    try {
      for (let entry = listing.readSync(); entry !== null; entry = listing.readSync()) yield entry;
    } finally {
      listing.closeSync();
    }
  }
  yield null;
}

/** Of a folder that is not read wholly: what is there under the names of the table. */
function addByName(entries: Map<string, EntryKind>, host: string): void {
  for (const name of [...FIRST_NAMES, ...OF_BARE]) {
    const stats = lstatSync(join(host, name), { throwIfNoEntry: false });
    if (stats === undefined) continue;
    entries.set(name, stats.isDirectory() ? "directory" : stats.isSymbolicLink() ? "link" : "file");
  }
}
