import picomatch from "picomatch";
import { MAX_TREE_DEPTH } from "../model/bounds.ts";
import { unfit } from "../model/refusals.ts";

export interface Pattern {
  /** How many levels of directories it can match in. */
  readonly depth: number;
  /** True where it would match deeper than `depth`, had it no limit. */
  readonly recursive: boolean;
  /** `relative` has no leading slash. */
  matches(relative: string): boolean;
}

const MAX_PATTERN_CHARS = 512;
/** Each further wildcard multiplies the time that a hostile name can cost: measured 10 ms a name with three in a row. */
const MAX_STARS_PER_COMPONENT = 3;
const MAX_GLOBSTARS = 3;
const MAX_BRACES = 4;

/** Throws where the pattern cannot be taken. Parentheses and their like are ordinary characters of names. */
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
    return "an empty pattern matches nothing. `*` matches all that is directly in the directory.";
  if (pattern.length > MAX_PATTERN_CHARS) return `the pattern is longer than ${MAX_PATTERN_CHARS} characters.`;
  if (/[\\\p{Cc}]/u.test(pattern)) return "a pattern holds neither backslashes nor control characters.";
  const parts = pattern.split("/");
  if (parts.includes("..")) return "`..` cannot stand in a pattern. List the directory above instead.";
  if (parts.filter((part) => part.includes("**")).length > MAX_GLOBSTARS) {
    return `\`**\` can stand at most ${MAX_GLOBSTARS} times in a pattern.`;
  }
  if (parts.some((part) => part !== "**" && stars(part) > MAX_STARS_PER_COMPONENT)) {
    return `at most ${MAX_STARS_PER_COMPONENT} wildcards can stand between two slashes of a pattern.`;
  }
  if (pattern.split("{").length - 1 > MAX_BRACES)
    return `at most ${MAX_BRACES} groups in braces can stand in a pattern.`;
  return null;
}

/** Without the slashes that only say that it begins here. */
function belowHere(pattern: string): string {
  return pattern.replace(/^(\.?\/)+/, "");
}

function stars(part: string): number {
  return part.split("*").length - 1;
}
