import { posix } from "node:path";
import picomatch from "picomatch";
import { ItemsError } from "./faults.ts";

/** A pattern for files below a directory. */
export interface Glob {
  readonly pattern: string;
  /** The directory where the walk starts: `cwd`, a directory above it, or `/`. Links on the way to it are followed. */
  start(cwd: string): string;
  /** The literal names of the pattern below `start`. None of them may be a link. */
  readonly base: readonly string[];
  /** `start` and `base` together. */
  folder(cwd: string): string;
  /** True for a file below the base; `relative` is from there. */
  matches(relative: string): boolean;
  /** True if a directory below the base may contain a match. */
  mayHold(parts: readonly string[]): boolean;
}

const MAX_PATTERN_CHARS = 4096;
/** Every additional wildcard multiplies the matching time of a hostile name. */
const MAX_STARS_PER_NAME = 3;
const MAX_GLOBSTARS = 3;
const MAX_BRACES = 4;

/**
 * Parses a pattern: `*` and `?` within a name, `[…]` and `{…,…}`, and `**` between slashes for any directories. Names that
 * start with a dot match only if the pattern has that dot. Throws an `ItemsError` if the pattern is invalid.
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
    // The walk has already tested the directories above.
    if (last < fixed.length) return fixed[last]?.(name) ?? false;
    return globstar >= 0 && (hidden || !name.startsWith("."));
  };
}

function whyUnfit(pattern: string): string | null {
  if (pattern === "") return "an empty pattern matches nothing";
  if (pattern.length > MAX_PATTERN_CHARS) return `the pattern is longer than ${MAX_PATTERN_CHARS} characters`;
  if (/[\\\p{Cc}]/u.test(pattern)) return "a pattern cannot contain backslashes or control characters";
  if (pattern.endsWith("/"))
    return "this names a directory; add `*` for the files in it, or `**` for all files below it";
  const parts = pattern.split("/").filter((part) => part !== "" && part !== ".");
  if (parts.every((part) => part === "..")) return "this names a directory; add `/*` for the files in it";
  if (
    pattern.startsWith("/")
      ? parts.includes("..")
      : parts.slice(parts.findIndex((part) => part !== "..")).includes("..")
  )
    return "`..` is allowed only at the start of a pattern";
  if (/\{[^}]*\/|\[[^\]]*\//.test(pattern)) return "a group in braces or brackets cannot contain a `/`";
  if (parts.filter((part) => part === "**").length > MAX_GLOBSTARS)
    return `a pattern can have \`**\` at most ${MAX_GLOBSTARS} times`;
  if (parts.some((part) => part !== "**" && part.includes("**"))) return "`**` must be alone between two slashes";
  if (parts.some((part) => part !== "**" && part.split("*").length - 1 > MAX_STARS_PER_NAME))
    return `a pattern can have at most ${MAX_STARS_PER_NAME} wildcards between two slashes`;
  if (pattern.split("{").length - 1 > MAX_BRACES) return `a pattern can have at most ${MAX_BRACES} groups in braces`;
  return null;
}

/** Makes parentheses and similar characters literal. `[!a]` has its meaning in a shell: it does not match a leading dot. */
function literally(name: string): string {
  return name.replaceAll(/\[[!^]|[()+|^$@!]/g, (found, at: number) =>
    found.startsWith("[") ? (at === 0 ? "[^." : "[^") : `\\${found}`,
  );
}
