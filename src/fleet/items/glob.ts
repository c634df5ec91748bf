import { posix } from "node:path";
import picomatch from "picomatch";
import { ItemsError } from "./faults.ts";

/** A pattern over the files of a folder. */
export interface Glob {
  readonly pattern: string;
  /** The folder from which the walk begins, whatever links lead there: `cwd`, one above it, or `/`. */
  start(cwd: string): string;
  /** The names below it that the pattern spells out: none of them may be a link. */
  readonly base: readonly string[];
  /** `start` and `base` together. */
  folder(cwd: string): string;
  /** True for a file below the base; `relative` is from there. */
  matches(relative: string): boolean;
  /** True where a folder below the base might hold such a file. */
  mayHold(parts: readonly string[]): boolean;
}

const MAX_PATTERN_CHARS = 4096;
/** Each further wildcard multiplies the time that a hostile name can cost. */
const MAX_STARS_PER_NAME = 3;
const MAX_GLOBSTARS = 3;
const MAX_BRACES = 4;

/**
 * Parses a pattern: `*` and `?` within a name, `[…]` and `{…,…}`, and `**` between two slashes for any folders. What begins
 * with a dot is matched only where the pattern has that dot. Throws an `ItemsError` where the pattern cannot be taken.
 */
export function parseGlob(pattern: string): Glob {
  const fault = whyUnfit(pattern);
  if (fault !== null) throw new ItemsError(`${pattern}: ${fault}`);
  const names = pattern.split("/").filter((name) => name !== "" && name !== ".");
  const above = names.findIndex((name) => name !== "..");
  const absolute = pattern.startsWith("/");
  const up = names.slice(0, Math.max(0, above));
  const below = names.slice(up.length);
  const spelled = below.findIndex((name, index) => MAGIC.test(name) || index === below.length - 1);
  const base = below.slice(0, spelled);
  const rest = below.slice(spelled);
  const start = (cwd: string): string => (absolute ? "/" : posix.resolve(cwd, ...up));
  const whole = picomatch(rest.map(literally).join("/"), OPTIONS);
  return {
    pattern,
    start,
    base,
    folder: (cwd) => posix.join(start(cwd), ...base),
    matches: (relative) => whole(relative),
    mayHold: folderTest(rest),
  };
}

const OPTIONS = { noextglob: true, nonegate: true, strictSlashes: true } as const;
const MAGIC = /[*?[\]{}]/;

function folderTest(rest: readonly string[]): Glob["mayHold"] {
  const globstar = rest.indexOf("**");
  const fixed = rest
    .slice(0, globstar < 0 ? rest.length - 1 : globstar)
    .map((name) => picomatch(literally(name), OPTIONS));
  const hidden = rest.slice(fixed.length).some((name) => name.startsWith("."));
  return (parts) => {
    const last = parts.length - 1;
    const name = parts[last] ?? "";
    // What stands above has been asked before.
    if (last < fixed.length) return fixed[last]?.(name) ?? false;
    return globstar >= 0 && (hidden || !name.startsWith("."));
  };
}

function whyUnfit(pattern: string): string | null {
  if (pattern === "") return "an empty pattern matches nothing";
  if (pattern.length > MAX_PATTERN_CHARS) return `the pattern is longer than ${MAX_PATTERN_CHARS} characters`;
  if (/[\\\p{Cc}]/u.test(pattern)) return "a pattern holds neither backslashes nor control characters";
  if (pattern.endsWith("/")) return "this names a folder; add `*` for the files in it, or `**` for those below as well";
  const parts = pattern.split("/").filter((part) => part !== "" && part !== ".");
  if (parts.every((part) => part === "..")) return "this names a folder; add `/*` for the files in it";
  if (
    pattern.startsWith("/")
      ? parts.includes("..")
      : parts.slice(parts.findIndex((part) => part !== "..")).includes("..")
  )
    return "`..` can only stand at the beginning of a pattern";
  if (/\{[^}]*\/|\[[^\]]*\//.test(pattern)) return "a group in braces or brackets cannot hold a `/`";
  if (parts.filter((part) => part === "**").length > MAX_GLOBSTARS)
    return `\`**\` can stand at most ${MAX_GLOBSTARS} times in a pattern`;
  if (parts.some((part) => part !== "**" && part.includes("**"))) return "`**` stands by itself between two slashes";
  if (parts.some((part) => part !== "**" && part.split("*").length - 1 > MAX_STARS_PER_NAME))
    return `at most ${MAX_STARS_PER_NAME} wildcards can stand between two slashes`;
  if (pattern.split("{").length - 1 > MAX_BRACES)
    return `at most ${MAX_BRACES} groups in braces can stand in a pattern`;
  return null;
}

/** Parentheses and their like are ordinary characters of names; `[!a]` is what a shell means by it: no dot to begin with. */
function literally(name: string): string {
  return name.replaceAll(/\[[!^]|[()+|^$@!]/g, (found, at: number) =>
    found.startsWith("[") ? (at === 0 ? "[^." : "[^") : `\\${found}`,
  );
}
