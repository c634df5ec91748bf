import { setImmediate as nextTurn } from "node:timers/promises";
import type { Descriptor } from "../../files/host/descriptor.ts";
import { mountIdOf } from "../../files/host/kernel-mounts.ts";
import { hasCode } from "../../platform/errno.ts";
import type { EntryFacts } from "../model/changeset.ts";
import { factsOf, type RawName, rawChild, rawNamesIn, rawStat } from "../model/raw-name.ts";

/** One name of a directory as it was when its view was made. */
export interface BaseNode {
  /** Null for what is neither a file, a directory nor a link. */
  readonly facts: EntryFacts | null;
  /** True for what the view does not show: what may not or cannot be read, and what is no file. Its absence there says nothing. */
  hidden: boolean;
  /** Of a directory. */
  readonly children: BaseTree | null;
  /** Of a copied file or link, what the copy was: while it is the same, nobody has touched it. */
  copied?: { readonly inode: string; readonly ctimeNs: string };
  /**
   * True for what the run itself made and has brought back already, in an overlay. The kernel does not know that there
   * is another one below it by now: where the run takes its own away, that one is seen again, and none is noted as gone.
   */
  readonly brought?: boolean;
}

export type BaseTree = ReadonlyMap<RawName, BaseNode>;

/** The largest directory that can be staged: each of its names is remembered while the run goes on. */
export const MAX_STAGED_ENTRIES = 200_000;
/** The deepest. */
export const MAX_STAGED_DEPTH = 128;
/** How many entries are looked at before others have their turn. */
const SLICE = 1000;

/** A directory holds more than can be staged. */
export class TooLargeToStage extends Error {}

export interface BaseRules {
  /** Whether a file of this size may be read; `names` leads to it from the root. */
  readonly shows: (names: readonly RawName[], size: number) => boolean;
  /** Places where something else is mounted: nothing at or below them belongs to this directory. */
  readonly isClosed: (names: readonly RawName[]) => boolean;
  /** The one name of the root that is looked at; null: all of them. */
  readonly only: RawName | null;
  readonly signal?: AbortSignal | undefined;
}

/** Everything that a directory holds now, by descriptor and without following links; what is mounted in it is left out. */
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
    if (names.length > MAX_STAGED_DEPTH) throw new TooLargeToStage(`it is deeper than ${MAX_STAGED_DEPTH} levels`);
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
      // It went away, or may not be looked into by the user that Corral runs as: then it is not shown.
      if (hasCode(error, "ENOENT", "ENOTDIR", "EACCES")) return { facts, hidden: true, children: null };
      throw error;
    }
  }

  /** A file of another device is one of this directory all the same where that is an overlay. */
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
    if (this.#entries > MAX_STAGED_ENTRIES)
      throw new TooLargeToStage(`it holds more than ${MAX_STAGED_ENTRIES} entries`);
    if (this.#entries % SLICE !== 0) return;
    this.#rules.signal?.throwIfAborted();
    await nextTurn();
  }
}
