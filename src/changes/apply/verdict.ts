import type { Change, ChangeOutcome } from "../model/changeset.ts";

/** What becomes of a change, and why where it is not applied: in words for people, with virtual paths only. */
export interface Verdict {
  readonly outcome: ChangeOutcome;
  readonly reason: string | null;
}

/** What became of one change. */
export interface Settled extends Verdict {
  readonly change: Change;
}

export const APPLIED: Verdict = { outcome: "applied", reason: null };

export function refused(reason: string): Verdict {
  return { outcome: "refused", reason };
}

/** Something else stands at the target than when the run began: it is never overwritten. */
export function conflict(reason: string): Verdict {
  return { outcome: "conflict", reason };
}

export function isVerdict(value: object): value is Verdict {
  return "outcome" in value;
}

/** What the system would not do, in words. What is no answer of the system is a bug, and is thrown on. */
export function impossible(error: unknown): Verdict {
  const { code, syscall } = error as NodeJS.ErrnoException;
  if (code === undefined || syscall === undefined) throw error;
  return refused(WORDS.get(code) ?? `the system would not do it (${code})`);
}

const WORDS: ReadonlyMap<string, string> = new Map([
  ["EACCES", "the user that corral runs as may not change it"],
  ["EPERM", "the user that corral runs as may not change it"],
  ["EROFS", "its file system is read-only"],
  ["ENOSPC", "the disk is full"],
  ["EDQUOT", "the disk quota is used up"],
  ["EFBIG", "it is too large for its file system"],
  ["ENAMETOOLONG", "its name is too long"],
  ["EEXIST", "somebody put something in the place of its temporary file"],
  ["EINVAL", "its file system does not take such a name"],
  ["EMFILE", "too many files are open; try again"],
  ["ENFILE", "too many files are open; try again"],
]);
