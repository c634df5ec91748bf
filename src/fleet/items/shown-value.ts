const MAX_SHOWN_CHARS = 80;

/** A hostile value in a message: cut, quoted, and escaped, so that it cannot draw on a terminal. */
export function shownValue(value: string): string {
  const cut = value.length > MAX_SHOWN_CHARS ? `${value.slice(0, MAX_SHOWN_CHARS)}…` : value;
  return JSON.stringify(cut).replaceAll(
    /[\p{Cf}\u007f-\u009f\u2028\u2029]/gu,
    (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`,
  );
}
