import type { IBuffer, IBufferCell } from "@xterm/headless";
import { type AnsiLine, type AnsiLook, nearestColor, paletteColor, type Span } from "./ansi.ts";

/* What is between a terminal's emulation and the page: its rows as lines that the page draws, and the keys that a person presses as bytes. */

/** One row. What would hide text is not followed: same colours, and concealed. `cursor`: the column; null: it is in no column of this row. */
export function screenRow(buffer: IBuffer, y: number, cursor: number | null): AnsiLine {
  const row = buffer.getLine(y);
  if (row === undefined) return [];
  const spans: { text: string; readonly look: AnsiLook }[] = [];
  const whole = Math.max(row.translateToString(true).length, 0);
  let cell: IBufferCell | undefined;
  for (let x = 0; x < row.length; x += 1) {
    cell = row.getCell(x, cell);
    // The second half of a wide character.
    if (cell === undefined || cell.getWidth() === 0) continue;
    const isCursor = x === cursor;
    if (x >= whole && !isCursor && cell.isBgDefault() && !cell.isInverse() && (cursor === null || x > cursor)) continue;
    const look = lookOf(cell, isCursor);
    const text = cell.getChars() || " ";
    const last = spans.at(-1);
    if (last !== undefined && isSame(last.look, look)) last.text += text;
    else spans.push({ text, look });
  }
  return spans satisfies readonly Span[];
}

function lookOf(cell: IBufferCell, isCursor: boolean): AnsiLook {
  const color = colorOf(cell.isFgDefault(), cell.isFgRGB(), cell.getFgColor());
  const ground = colorOf(cell.isBgDefault(), cell.isBgRGB(), cell.getBgColor());
  return {
    color,
    ground: color === ground ? null : ground,
    isBold: cell.isBold() !== 0,
    isDim: cell.isDim() !== 0,
    isItalic: cell.isItalic() !== 0,
    isUnderlined: cell.isUnderline() !== 0,
    ...(cell.isInverse() === 0 ? {} : { isInverse: true }),
    ...(isCursor ? { isCursor } : {}),
  };
}

function colorOf(isDefault: boolean, isRgb: boolean, color: number): number | null {
  if (isDefault) return null;
  return isRgb ? nearestColor(color >> 16, (color >> 8) & 255, color & 255) : paletteColor(color);
}

function isSame(a: AnsiLook, b: AnsiLook): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

type Key = Pick<KeyboardEvent, "key" | "ctrlKey" | "altKey" | "metaKey" | "shiftKey">;

/** `CSI` or, in the application mode of a terminal, `SS3`, and this. */
const CURSOR_KEYS: Readonly<Record<string, string>> = {
  ArrowUp: "A",
  ArrowDown: "B",
  ArrowRight: "C",
  ArrowLeft: "D",
  Home: "H",
  End: "F",
};
const KEYS: Readonly<Record<string, string>> = {
  Enter: "\r",
  Backspace: "\x7f",
  Tab: "\t",
  Escape: "\x1b",
  Insert: "\x1b[2~",
  Delete: "\x1b[3~",
  PageUp: "\x1b[5~",
  PageDown: "\x1b[6~",
  F1: "\x1bOP",
  F2: "\x1bOQ",
  F3: "\x1bOR",
  F4: "\x1bOS",
  F5: "\x1b[15~",
  F6: "\x1b[17~",
  F7: "\x1b[18~",
  F8: "\x1b[19~",
  F9: "\x1b[20~",
  F10: "\x1b[21~",
};

/** What a key sends. Null: it is text, which comes as such; or the browser's, such as Shift-Tab, which leaves the terminal. */
export function keyText({ key, ctrlKey, altKey, metaKey, shiftKey }: Key, isApplication: boolean): string | null {
  if (metaKey) return null;
  const cursor = CURSOR_KEYS[key];
  if (cursor !== undefined && !altKey) {
    if (ctrlKey) return `\x1b[1;5${cursor}`;
    return `\x1b${isApplication ? "O" : "["}${cursor}`;
  }
  const sent = KEYS[key];
  if (sent !== undefined && !ctrlKey) return shiftKey && key === "Tab" ? null : altKey ? `\x1b${sent}` : sent;
  if (ctrlKey && !altKey && !shiftKey && key !== "v") {
    if (/^[a-z]$/.test(key)) return String.fromCharCode(key.charCodeAt(0) & 31);
    return { " ": "\0", "[": "\x1b", "\\": "\x1c", "]": "\x1d", "/": "\x1f" }[key] ?? null;
  }
  return altKey && !ctrlKey && /^[\x20-\x7e]$/.test(key) ? `\x1b${key}` : null;
}

/** A text that was pasted. It can neither end its own brackets, nor press another key than Enter and Tab. */
export function pastedText(text: string, isBracketed: boolean): string {
  const plain = text.replaceAll(/\r\n|\n/g, "\r").replaceAll(/[^\t\r\x20-\x7e\xa0-\u{10ffff}]/gu, "");
  return isBracketed ? `\x1b[200~${plain}\x1b[201~` : plain;
}
