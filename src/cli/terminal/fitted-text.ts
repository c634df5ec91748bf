/** A part of a line: what is to be read, and its colour. It is fit for a terminal already (see `printableLine`). */
export interface Piece {
  readonly text: string;
  readonly paint?: (text: string) => string;
}

/** One line of at most `columns` columns: what does not fit is cut, with a mark. */
export function fittedLine(pieces: readonly Piece[], columns: number): string {
  let line = "";
  let left = columns;
  for (const { text, paint = (plain: string) => plain } of pieces) {
    const fitted = fittedText(text, left);
    left -= columnsOf(fitted);
    if (fitted !== "") line += paint(fitted);
    if (fitted !== text) break;
  }
  return line;
}

/** At most `columns` columns of a text. */
export function fittedText(text: string, columns: number): string {
  if (columnsOf(text) <= columns) return text;
  let fitted = "";
  let left = columns - 1;
  for (const character of text) {
    left -= columnsOfCharacter(character);
    if (left < 0) break;
    fitted += character;
  }
  return columns < 1 ? "" : `${fitted}…`;
}

/** Cut or filled up to just so many columns. */
export function paddedText(text: string, columns: number): string {
  const fitted = fittedText(text, columns);
  return fitted + " ".repeat(Math.max(0, columns - columnsOf(fitted)));
}

export function columnsOf(text: string): number {
  let columns = 0;
  for (const character of text) columns += columnsOfCharacter(character);
  return columns;
}

/** Never less than a terminal takes: what may be wide counts as wide, and a mark that takes no column of its own as one. */
function columnsOfCharacter(character: string): number {
  const code = character.codePointAt(0) ?? 0;
  if (code < 0x1100) return 1;
  return code >= 0x2000 && code < 0x2e80 && !/\p{Emoji_Presentation}/u.test(character) ? 1 : 2;
}
