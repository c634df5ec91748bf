import type { Change, ChangeOutcome } from "../model/changeset.ts";

/** The outcome of a change and, if it was not applied, the reason: text for people, with virtual paths only. */
export interface Verdict {
  readonly outcome: ChangeOutcome;
  readonly reason: string | null;
}

/** A change with its outcome. */
export interface Settled extends Verdict {
  readonly change: Change;
}

export const APPLIED: Verdict = { outcome: "applied", reason: null };

export function refused(reason: string): Verdict {
  return { outcome: "refused", reason };
}

/** The target changed since the run began. It is never overwritten. */
export function conflict(reason: string): Verdict {
  return { outcome: "conflict", reason };
}

export function isVerdict(value: object): value is Verdict {
  return "outcome" in value;
}

/** The verdict for an error of the system. Any other error is a bug and is thrown again. */
export function impossible(error: unknown): Verdict {
  const { code, syscall } = error as NodeJS.ErrnoException;
  if (code === undefined || syscall === undefined) throw error;
  return refused(WORDS.get(code) ?? `the system refused it (${code})`);
}

const WORDS: ReadonlyMap<string, string> = new Map([
  ["EACCES", "the user that Corral runs as may not change it"],
  ["EPERM", "the user that Corral runs as may not change it"],
  ["EROFS", "its file system is read-only"],
  ["ENOSPC", "the disk is full"],
  ["EDQUOT", "the disk quota is used up"],
  ["EFBIG", "it is too large for its file system"],
  ["ENAMETOOLONG", "its name is too long"],
  ["EEXIST", "another process replaced its temporary file"],
  ["EINVAL", "its file system does not allow such a name"],
  ["EAGAIN", "another program holds it with a lease; try again after that program has closed it"],
  ["EMFILE", "too many files are open; try again"],
  ["ENFILE", "too many files are open; try again"],
]);
