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
  /** What each of its files is afterwards; null for one that goes. */
  readonly ids: ReadonlyMap<string, string | null>;
}

export interface StagedFile {
  readonly path: VirtualPath;
  readonly change: "added" | "modified" | "deleted";
}

/** What one tree of runs knows of repositories; another tree knows nothing of it. */
export class TreeState {
  readonly staged = new Map<string, StagedCommit>();
  /** Of all that was ever staged, also of what was discarded: objects stay in the mirror for hours. */
  stagedBytes = 0;
  readonly #seen = new Map<string, Map<string, string | null>>();

  /** The version of each file (null: none) that the tree was given or told of, for one repository. */
  seenOf(repository: string): Map<string, string | null> {
    const seen = this.#seen.get(repository) ?? new Map<string, string | null>();
    this.#seen.set(repository, seen);
    return seen;
  }
}
