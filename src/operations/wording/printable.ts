import type pc from "picocolors";

/**
 * Text that a worker chose, made fit for a person's terminal: a control or formatting character, which could move the
 * cursor or reverse the order of what is read, becomes its code. Line breaks stay.
 */
export function printable(text: string): string {
  return text.replace(/(?!\n)[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (character) => {
    const code = character.codePointAt(0) ?? 0;
    return `\\u{${code.toString(16)}}`;
  });
}

/** The same on one line of at most `max` characters. */
export function printableLine(text: string, max = 200): string {
  const line = printable(text.slice(0, max * 4)).replaceAll("\n", " ");
  return line.length > max ? `${line.slice(0, max - 1)}…` : line;
}

/** How a text is coloured; whether it is at all, its stream decides. */
export type Colors = ReturnType<typeof pc.createColors>;
