import picomatch from "picomatch";

/** Which names a glob means. `dot`: a wildcard also matches a leading dot. */
export interface GlobOptions {
  readonly dot?: boolean;
  readonly strictSlashes?: boolean;
}

/**
 * The one place that compiles globs. Without the flag `s`, `*` and `**` would not match a name that has a line break, such as U+2028, and a rule
 * that denies could be escaped by such a name. What the caller did not escape is a wildcard.
 */
export function globMatcher(glob: string, options: GlobOptions): (text: string) => boolean {
  return picomatch(glob, { ...options, noextglob: true, nonegate: true, flags: "s" });
}
