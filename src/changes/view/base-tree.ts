import { setImmediate as nextTurn } from "node:timers/promises";
import { type Descriptor, mountIdOf } from "../../files/host/descriptor.ts";
import { hasCode } from "../../platform/errno.ts";
import { type EntryFacts, factsOf, type RawName, rawChild, rawNamesIn, rawStat } from "../model/changeset.ts";

/** One entry of a directory as it was when its view was made. */
export interface BaseNode {
  /** Null for anything but a file, a directory or a link. */
  readonly facts: EntryFacts | null;
  /** True if the view does not show it: it may not or cannot be read, or is not a file. Its absence is no deletion. */
  hidden: boolean;
  /** The entries of a directory. */
  readonly children: BaseTree | null;
  /** The identity of a copied file or link: while it is the same, the copy was not changed. */
  copied?: { readonly inode: string; readonly ctimeNs: string };
  /**
   * True, in an overlay, for an entry that the run made and that was applied already. If the run deletes it, the overlay shows
   * the applied one again and records no deletion, so the scan must know.
   */
  readonly brought?: boolean;
}

export type BaseTree = ReadonlyMap<RawName, BaseNode>;

/** The largest directory that can be staged. All its names are kept in memory during the run. */
export const MAX_STAGED_ENTRIES = 200_000;
/** The deepest directory that can be staged. */
export const MAX_STAGED_DEPTH = 128;
/** The number of entries after which other work of the process gets a turn. */
const SLICE = 1000;

/** A directory holds more than can be staged, or what cannot be opened now. */
export class CannotStage extends Error {}

export interface BaseRules {
  /** Whether a file of this size may be read. `names` lead to it from the root. */
  readonly shows: (names: readonly RawName[], size: number) => boolean;
  /** Whether another mount is at or above a place: it does not belong to this directory. */
  readonly isClosed: (names: readonly RawName[]) => boolean;
  /** The only name of the root that is read. Null: all. */
  readonly only: RawName | null;
  readonly signal?: AbortSignal | undefined;
}

/** Reads a whole directory by descriptor, without following links and without what is mounted inside. */
export async function readBaseTree(root: Descriptor, rules: BaseRules): Promise<BaseTree> {
  return await new Reader(rules, root).read(root, []);
}

class Reader {
  readonly #rules: BaseRules;
  readonly #device: bigint;
  readonly #mount: string;
  #entries = 0;

  constructor(rules: BaseRules, root: Descriptor) {
    this.#rules = rules;
    this.#device = BigInt(root.stat().dev);
    this.#mount = mountIdOf(root);
  }

  async read(folder: Descriptor, names: readonly RawName[]): Promise<BaseTree> {
    if (names.length > MAX_STAGED_DEPTH) throw new CannotStage(`it is deeper than ${MAX_STAGED_DEPTH} levels`);
    const { only } = this.#rules;
    const tree = new Map<RawName, BaseNode>();
    for (const name of names.length === 0 && only !== null ? [only] : rawNamesIn(folder)) {
      await this.#count();
      const at = [...names, name];
      const stats = rawStat(folder, name);
      if (stats === null || this.#rules.isClosed(at)) continue;
      const facts = factsOf(stats);
      if (facts?.type === "directory") tree.set(name, await this.#directory(folder, at, facts));
      else {
        const unread = facts?.type === "file" && !this.#rules.shows(at, facts.size);
        const hidden = facts === null || unread || (stats.dev !== this.#device && this.#isElsewhere(folder, name));
        tree.set(name, { facts, hidden, children: null });
      }
    }
    return tree;
  }

  async #directory(folder: Descriptor, at: readonly RawName[], facts: EntryFacts): Promise<BaseNode> {
    try {
      using named = rawChild(folder, at.at(-1) ?? "", true);
      if (mountIdOf(named) !== this.#mount) return { facts, hidden: true, children: null };
      return { facts, hidden: false, children: await this.read(named, at) };
    } catch (error) {
      // It disappeared, or the user that Corral runs as may not read it: the view does not show it.
      if (hasCode(error, "ENOENT", "ENOTDIR", "EACCES")) return { facts, hidden: true, children: null };
      throw error;
    }
  }

  /** In an overlay, files of one directory can have different devices, so the mount id decides. */
  #isElsewhere(folder: Descriptor, name: RawName): boolean {
    try {
      using named = rawChild(folder, name);
      return mountIdOf(named) !== this.#mount;
    } catch (error) {
      if (hasCode(error, "ENOENT")) return true;
      throw error;
    }
  }

  async #count(): Promise<void> {
    this.#entries += 1;
    if (this.#entries > MAX_STAGED_ENTRIES) throw new CannotStage(`it holds more than ${MAX_STAGED_ENTRIES} entries`);
    if (this.#entries % SLICE !== 0) return;
    this.#rules.signal?.throwIfAborted();
    await nextTurn();
  }
}
