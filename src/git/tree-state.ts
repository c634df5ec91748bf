import type { VirtualPath } from "../sandbox/virtual-path.ts";
import type { Repository } from "./repository.ts";

/** A commit that was made and not pushed. */
export interface StagedCommit {
  readonly repository: Repository;
  readonly commit: string;
  readonly ref: string;
  readonly message: string;
  readonly files: readonly StagedFile[];
  readonly diff: string;
  /** What the question about its push shows: all that is agreed to, as text or as digests. */
  readonly question: string;
  /** The id of each of its files afterwards. Null for a deleted file. */
  readonly ids: ReadonlyMap<string, string | null>;
}

export interface StagedFile {
  readonly path: VirtualPath;
  readonly change: "added" | "modified" | "deleted";
}

/** What one tree of runs knows of repositories. Trees share nothing. */
export class TreeState {
  readonly staged = new Map<string, StagedCommit>();
  /** All bytes ever staged, including discarded commits: their objects stay in the mirror for hours. */
  stagedBytes = 0;
  readonly #seen = new Map<string, Map<string, string | null>>();

  /** The version of each file of one repository (null: none) that the tree has seen. */
  seenOf(repository: string): Map<string, string | null> {
    const seen = this.#seen.get(repository) ?? new Map<string, string | null>();
    this.#seen.set(repository, seen);
    return seen;
  }
}
