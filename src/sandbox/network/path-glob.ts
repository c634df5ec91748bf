/**
 * Paths of requests, and the patterns in rules: segments between `/`. `*` is one segment that is not empty; `**`, only at the
 * end, is one or more of which the first is not empty. So inclusion and intersection are exact.
 */
const ONE = "*";
const BELOW = "**";

/** What is wrong with a pattern, or null. */
export function patternFault(pattern: string): string | null {
  if (!pattern.startsWith("/")) return "must begin with `/`";
  if (!/^[!-~]{1,2000}$/.test(pattern))
    return "must be at most 2000 printable ASCII characters; escape others as `%20`";
  if (/[?#]/.test(pattern)) return "must be a path without `?` and `#`";
  const segments = segmentsOf(pattern);
  if (segments.some((segment, index) => segment === BELOW && index < segments.length - 1))
    return "must have `**` only at its end";
  if (segments.some((segment) => segment.includes("*") && segment !== ONE && segment !== BELOW))
    return "must have `*` only as a whole segment, as in `/repos/*/issues`";
  return isPlainPath(pattern) ? null : "must not have `//`, `.`, `..`, `\\`, or these as escapes";
}

/** True if no server can read the path in another way: no empty segment inside, no dots, no hidden separators. */
export function isPlainPath(path: string): boolean {
  if (!path.startsWith("/") || /[^!-~]|\\|%(2f|5c|00)/i.test(path)) return false;
  const segments = segmentsOf(path);
  return segments.every((segment, index) => {
    // Some servers cut `;…` off a segment before they look for dots.
    const name = segment.split(/;|%3b/i, 1)[0]?.replace(/%2e/gi, ".");
    return name !== "." && name !== ".." && (segment !== "" || index === segments.length - 1);
  });
}

/** True if the pattern has this path, which is without its query. */
export function pathMatches(pattern: string, path: string): boolean {
  // A `*` in a request is no pattern.
  return isPlainPath(path) && patternInside(path.replaceAll("*", "%2A"), pattern);
}

/** True if `outer` has every path that `inner` has. */
export function patternInside(inner: string, outer: string): boolean {
  // Lock files make lists of thousands of plain paths.
  return isPlain(outer) ? inner === outer : meetPatterns(inner, outer) === inner;
}

/** Finds whether one of the patterns includes another. */
export interface PatternIndex {
  includes(inner: string): boolean;
}

export function indexPatterns(patterns: readonly string[]): PatternIndex {
  const known = new Set(patterns);
  const globs = patterns.filter((pattern) => !isPlain(pattern));
  return { includes: (inner) => known.has(inner) || globs.some((glob) => patternInside(inner, glob)) };
}

/** Patterns without those that another one includes. */
export function widestPatterns(patterns: readonly string[]): string[] {
  const globs = patterns.filter((pattern) => !isPlain(pattern));
  return patterns.filter((path) => !globs.some((other) => other !== path && patternInside(path, other)));
}

/** The paths that are in one of either list. */
export function meetPatternLists(some: readonly string[], others: readonly string[]): string[] {
  const known = indexPatterns(others);
  return some.flatMap((path) => {
    if (isPlain(path)) return known.includes(path) ? [path] : [];
    return others.flatMap((other) => meetPatterns(path, other) ?? []);
  });
}

function isPlain(pattern: string): boolean {
  return !pattern.includes("*");
}

/** The paths of both: again one pattern, or null if there are none. */
export function meetPatterns(a: string, b: string): string | null {
  const [left, right] = [segmentsOf(a), segmentsOf(b)];
  const met: string[] = [];
  for (let index = 0; index < Math.max(left.length, right.length); index++) {
    const [one, other] = [left[index], right[index]];
    if (one === BELOW && other !== undefined)
      return other === "" ? null : joinedSegments([...met, ...right.slice(index)]);
    if (other === BELOW && one !== undefined) return one === "" ? null : joinedSegments([...met, ...left.slice(index)]);
    const both = one === other ? one : one === ONE ? other : other === ONE ? one : undefined;
    if (both === undefined || (both === "" && one !== other)) return null;
    met.push(both);
  }
  return joinedSegments(met);
}

/**
 * A pattern that ends in `**` as the three that it consists of: with one segment there, with one and a slash, and with one and
 * more below it. Empty for other patterns.
 */
export function splitPattern(pattern: string): string[] {
  const segments = segmentsOf(pattern);
  if (segments.at(-1) !== BELOW) return [];
  const above = segments.slice(0, -1);
  return [[ONE], [ONE, ""], [ONE, BELOW]].map((end) => joinedSegments([...above, ...end]));
}

export function segmentCount(pattern: string): number {
  return segmentsOf(pattern).length;
}

function segmentsOf(path: string): string[] {
  return path.split("/").slice(1);
}

function joinedSegments(segments: readonly string[]): string {
  return `/${segments.join("/")}`;
}
