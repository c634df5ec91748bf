/**
 * Finds `wanted`, which is not empty, in `text`, without overlaps. Uses Knuth-Morris-Pratt, whose time is linear: `indexOf`
 * is quadratic in the worst case, so a crafted text could block the process for hours.
 */
export function placesIn(text: string, wanted: string, max: number = Number.POSITIVE_INFINITY): number[] {
  const codes = codesOf(wanted);
  const fallback = fallbacksOf(codes);
  const places: number[] = [];
  let matched = 0;
  for (let at = 0; at < text.length && places.length < max; at += 1) {
    const code = text.charCodeAt(at);
    while (matched > 0 && code !== codes[matched]) matched = fallback[matched - 1] ?? 0;
    if (code === codes[matched]) matched += 1;
    if (matched < codes.length) continue;
    places.push(at + 1 - matched);
    matched = 0;
  }
  return places;
}

/** As numbers, of which each is compared many times. */
function codesOf(text: string): Uint16Array {
  const codes = new Uint16Array(text.length);
  for (let at = 0; at < text.length; at += 1) codes[at] = text.charCodeAt(at);
  return codes;
}

/** The failure function: for each prefix of the text, the length of its longest proper prefix that is also a suffix. */
function fallbacksOf(codes: Uint16Array): Int32Array {
  const fallback = new Int32Array(codes.length);
  let matched = 0;
  for (let at = 1; at < codes.length; at += 1) {
    const code = codes[at];
    while (matched > 0 && code !== codes[matched]) matched = fallback[matched - 1] ?? 0;
    if (code === codes[matched]) matched += 1;
    fallback[at] = matched;
  }
  return fallback;
}
