/** Cuts are made this often; what is left after them is one piece, so that a long text does not take forever. */
const MAX_CUTS = 200;

/** Sizes of pieces in bytes: they fit no event, so that some pieces hold half an event and some the ends of two. */
const SIZES = [23, 1, 211, 5, 64];

/** Cuts bytes where a reader is likely to err: inside each character of several bytes, and where no event ends. */
export function awkwardPieces(bytes: Uint8Array): Uint8Array[] {
  const pieces: Uint8Array[] = [];
  let start = 0;
  for (let at = 1; at < bytes.length && pieces.length < MAX_CUTS; at++) {
    if (!insideCharacter(bytes, at) && at - start < (SIZES[pieces.length % SIZES.length] ?? 1)) continue;
    pieces.push(bytes.subarray(start, at));
    start = at;
  }
  pieces.push(bytes.subarray(start));
  return pieces;
}

function insideCharacter(bytes: Uint8Array, at: number): boolean {
  return ((bytes[at] ?? 0) & 0xc0) === 0x80;
}

/**
 * Cuts a text into the deltas a model streams: 1, 2, 3, 5 characters, then again. A delta is a string of its own in JSON,
 * so no code point is halved here (no API does that); a letter and its accent, or the parts of an emoji, may be parted.
 */
export function deltas(text: string): string[] {
  const points = [...text];
  const result: string[] = [];
  for (let at = 0; at < points.length; ) {
    const size = result.length < MAX_CUTS ? ([1, 2, 3, 5][result.length % 4] ?? 1) : points.length;
    result.push(points.slice(at, at + size).join(""));
    at += size;
  }
  return result;
}
