/**
 * Finds `wanted`, which is not empty, in `text`, without overlaps. Uses Knuth-Morris-Pratt, whose time is linear: `indexOf`
 * is quadratic in the worst case, so a crafted text could block the process for hours.
 */
export function placesIn(text: string, wanted: string, max: number = Number.POSITIVE_INFINITY): number[] {
  const fallback = fallbacksOf(wanted);
  const places: number[] = [];
  let matched = 0;
  for (let at = 0; at < text.length && places.length < max; at += 1) {
    while (matched > 0 && text.charCodeAt(at) !== wanted.charCodeAt(matched)) matched = fallback[matched - 1] ?? 0;
    if (text.charCodeAt(at) === wanted.charCodeAt(matched)) matched += 1;
    if (matched < wanted.length) continue;
    places.push(at + 1 - matched);
    matched = 0;
  }
  return places;
}

/** The failure function: for each prefix of `wanted`, the length of its longest proper prefix that is also a suffix. */
function fallbacksOf(wanted: string): Int32Array {
  const fallback = new Int32Array(wanted.length);
  let matched = 0;
  for (let at = 1; at < wanted.length; at += 1) {
    while (matched > 0 && wanted.charCodeAt(at) !== wanted.charCodeAt(matched)) matched = fallback[matched - 1] ?? 0;
    if (wanted.charCodeAt(at) === wanted.charCodeAt(matched)) matched += 1;
    fallback[at] = matched;
  }
  return fallback;
}
