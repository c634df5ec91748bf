import picomatch from "picomatch";
import { MAX_TREE_DEPTH } from "../model/bounds.ts";
import { unfit } from "../model/refusals.ts";

export interface Pattern {
  /** The number of directory levels in which it can match. */
  readonly depth: number;
  /** True if it could match deeper than `depth`, which is then a limit. */
  readonly recursive: boolean;
  /** `relative` has no leading slash. */
  matches(relative: string): boolean;
}

const MAX_PATTERN_CHARS = 512;
/** Each further wildcard multiplies the time that a hostile name can take: 10 ms a name was measured with three. */
const MAX_STARS_PER_COMPONENT = 3;
const MAX_GLOBSTARS = 3;
const MAX_BRACES = 4;

/** Throws if the pattern is not supported. Parentheses and similar characters match themselves. */
export function parsePattern(listed: string, pattern: string | undefined): Pattern {
  if (pattern === undefined) return { depth: 1, recursive: false, matches: () => true };
  const refusal = whyUnfit(pattern);
  if (refusal !== null) throw unfit("list", listed, refusal);
  const relative = belowHere(pattern);
  const literal = relative.replace(/[()+|^$@!]/g, "\\$&");
  const matches = picomatch(literal, { dot: true, noextglob: true, nonegate: true, strictSlashes: true });
  const recursive = relative.includes("**");
  return { depth: recursive ? MAX_TREE_DEPTH : relative.split("/").length, recursive, matches };
}

function whyUnfit(pattern: string): string | null {
  if (belowHere(pattern) === "")
    return "an empty pattern matches nothing. `*` matches every direct entry of the directory.";
  if (pattern.length > MAX_PATTERN_CHARS) return `the pattern is longer than ${MAX_PATTERN_CHARS} characters.`;
  if (/[\\\p{Cc}]/u.test(pattern)) return "a pattern cannot contain backslashes or control characters.";
  const parts = pattern.split("/");
  if (parts.includes("..")) return "a pattern cannot contain `..`. List the parent directory instead.";
  if (parts.filter((part) => part.includes("**")).length > MAX_GLOBSTARS) {
    return `\`**\` can occur at most ${MAX_GLOBSTARS} times in a pattern.`;
  }
  if (parts.some((part) => part !== "**" && part.split("*").length - 1 > MAX_STARS_PER_COMPONENT)) {
    return `a pattern can have at most ${MAX_STARS_PER_COMPONENT} wildcards between two slashes.`;
  }
  if (pattern.split("{").length - 1 > MAX_BRACES) return `a pattern can have at most ${MAX_BRACES} groups in braces.`;
  return null;
}

/** Without a leading `./` or `/`. */
function belowHere(pattern: string): string {
  return pattern.replace(/^(\.?\/)+/, "");
}
