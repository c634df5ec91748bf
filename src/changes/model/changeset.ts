import type { VirtualPath } from "../../sandbox/virtual-path.ts";

/** What a name stood for when it was looked at. Numbers that need more than 53 bits are decimal text. */
export interface EntryFacts {
  readonly type: "file" | "directory" | "link";
  readonly inode: string;
  /** In bytes; of a link, the length of its text. */
  readonly size: number;
  /** Permission bits, `0o7777` at most. */
  readonly mode: number;
  readonly mtimeNs: string;
  /** The kernel sets it at every change of content, mode, owner or name, and no worker can choose it. */
  readonly ctimeNs: string;
}

/** One thing that a run changed in one of its views. */
export interface Change {
  /** Its place in the changeset, from 0: the order in which changes are applied. */
  readonly index: number;
  /** The directory that it is in, by its place in {@link Changeset.mounts}. */
  readonly mount: number;
  /** Below the mount; never empty, no component is `.` or `..`. */
  readonly parts: readonly string[];
  /** The path as the run saw it. */
  readonly path: VirtualPath;
  readonly kind: "create" | "modify" | "delete";
  readonly type: "file" | "directory" | "link";
  /** What stood there when the view was made; null where nothing did. Anything else there now is a conflict. */
  readonly base: EntryFacts | null;
  /** What the run left there; null for a deletion. Its content stands at the same parts below the mount's `content`. */
  readonly next: EntryFacts | null;
  /** Of a link, its text. */
  readonly linkText?: string;
  /** Why it must not be applied, in words for the worker's caller: whoever would agree to it. Null: it may. */
  readonly refusal: string | null;
}

/** A directory that changes are to be applied to. */
export interface ChangedMount {
  readonly path: VirtualPath;
  /** The host directory that receives the changes, and what it was (`device:inode`) when the view was made. */
  readonly target: string;
  readonly targetIdentity: string;
  /** Where the run's own versions stand: absolute, in Corral's state directory, and read-only from now on. */
  readonly content: string;
  /** Paths below which something else is mounted or which are the project's own: nothing there may be changed. */
  readonly closed: readonly VirtualPath[];
}

/**
 * Everything that one run changed in its staged mounts, in the order in which it is applied: first
 * what gives way to something of another type, then directories from the top, files and links, and last deletions from
 * the bottom.
 */
export interface Changeset {
  readonly version: 1;
  /** The run's id. A session that commits more than once counts: `RUN`, `RUN.2`. */
  readonly id: string;
  readonly run: string;
  readonly root: string;
  readonly worker: string;
  /** The project's directory. */
  readonly project: string;
  /** ISO 8601, UTC. */
  readonly createdAt: string;
  readonly mounts: readonly ChangedMount[];
  readonly changes: readonly Change[];
}

/** What became of one change. `held`: it waits, since its run failed or nobody agreed in time. */
export type ChangeOutcome = "applied" | "refused" | "conflict" | "denied" | "held";

/** The changeset with some of its changes. */
export function only(changeset: Changeset, indexes: ReadonlySet<number>): Changeset {
  return { ...changeset, changes: changeset.changes.filter(({ index }) => indexes.has(index)) };
}

/** A place of a changeset as one text, to be compared with others. */
export function placeKey(mount: number, parts: readonly string[]): string {
  return `${mount}:${parts.join("/")}`;
}

/** The keys of a change's place and of all directories above it, from the innermost. */
export function placesAbove({ mount, parts }: Pick<Change, "mount" | "parts">): [string, ...string[]] {
  return [placeKey(mount, parts), ...parts.slice(1).map((_, index) => placeKey(mount, parts.slice(0, -1 - index)))];
}
