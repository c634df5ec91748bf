import { posix } from "node:path";
import { type ItemResult, isFailure } from "./item.ts";

/** Failed items whose last words are the same, apart from numbers and the items' names. */
export interface FailureGroup {
  readonly count: number;
  readonly status: string;
  /** The error code. */
  readonly code: string;
  /** The last line of standard error, or else the error's message, of one of them. */
  readonly text: string;
  /** The key of that one. */
  readonly example: string;
}

const MAX_CAUSE_CHARS = 200;
/** A shorter name may be a word of the message. */
const MIN_STEM_CHARS = 3;

type Failure = Pick<ItemResult, "key" | "status" | "error" | "stderrLine">;

/** Why an item failed, in one line as the worker or Corral wrote it. */
export function causeText({ status, error, stderrLine }: Omit<Failure, "key">): string {
  return stderrLine !== null && HAS_LAST_WORDS.has(status) ? stderrLine : (error?.message ?? status);
}

/** The same for failures that differ only in numbers and the item's name; null if the item did not fail. */
export function causeOf(failure: Failure): string | null {
  if (!isFailure(failure.status)) return null;
  let text = causeText(failure).slice(0, 4 * MAX_CAUSE_CHARS);
  for (const name of namesOf(failure.key)) text = text.replaceAll(name, "<item>");
  return text
    .replaceAll(/\b(?:0x)?[0-9a-f]*\d[0-9a-f]*\b/gi, "N")
    .replaceAll(/\d+/g, "N")
    .replaceAll(/\s+/g, " ")
    .trim()
    .slice(0, MAX_CAUSE_CHARS)
    .toWellFormed();
}

/** For these statuses standard error may say why. */
export const HAS_LAST_WORDS: ReadonlySet<string> = new Set([
  "failed",
  "signaled",
  "timed_out",
  "oom_killed",
  "disk_limit",
  "output_limit",
]);

/** The longest first. */
function namesOf(key: string): string[] {
  const name = posix.basename(key);
  const stem = posix.basename(name, posix.extname(name));
  const dir = posix.dirname(key);
  const long = [key, name, stem, dir].filter((each) => each.length >= MIN_STEM_CHARS);
  return [...new Set(long)].toSorted((a, b) => b.length - a.length);
}
