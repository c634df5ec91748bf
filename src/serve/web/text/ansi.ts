import type { IBuffer, IBufferCell } from "@xterm/headless";

const MAX_LINES = 50_000;
const MAX_CHARS = 8 * 1024 ** 2;
/** What is removed at once, so that not every line moves all others. */
const STEP = 5000;

/** The last lines of an output, within limits. */
export class KeptLines {
  readonly #parser = new AnsiLines();
  readonly #decoder = new TextDecoder();
  #lines: AnsiLine[] = [];
  #chars = 0;
  #dropped = 0;

  push(bytes: Uint8Array): void {
    for (const line of this.#parser.push(this.#decoder.decode(bytes, { stream: true }))) {
      this.#lines.push(line);
      this.#chars += charsIn(line);
    }
    while (this.#lines.length > MAX_LINES || (this.#chars > MAX_CHARS && this.#lines.length > 1)) {
      const gone = this.#lines.splice(0, Math.min(STEP, this.#lines.length - 1));
      this.#dropped += gone.length;
      this.#chars -= gone.reduce((sum, line) => sum + charsIn(line), 0);
    }
  }

  /** With the line that is not ended yet. */
  get count(): number {
    return this.#lines.length + (this.#parser.rest.length > 0 ? 1 : 0);
  }

  /** Lines before the first one that is kept. */
  get dropped(): number {
    return this.#dropped;
  }

  at(index: number): AnsiLine {
    return this.#lines[index] ?? this.#parser.rest;
  }
}

function charsIn(line: AnsiLine): number {
  return line.reduce((sum, { text }) => sum + text.length, 16);
}

/** How a piece of a terminal's text looks. Colours are 0 to 7, of the page's own palette. */
export interface AnsiLook {
  readonly color: number | null;
  readonly ground: number | null;
  readonly isBold: boolean;
  readonly isDim: boolean;
  readonly isItalic: boolean;
  readonly isUnderlined: boolean;
  /** Text and ground change places. */
  readonly isInverse?: boolean;
  readonly isCursor?: boolean;
}

interface Span {
  readonly text: string;
  readonly look: AnsiLook;
}

export type AnsiLine = readonly Span[];

const PLAIN: AnsiLook = {
  color: null,
  ground: null,
  isBold: false,
  isDim: false,
  isItalic: false,
  isUnderlined: false,
};

/**
 * A sequence of a terminal: of colours (`m`), of anything else that begins with ESC [, of titles and links (OSC) and other strings, and
 * what has two or three characters. All but the first are left out: they move cursors, and no page has one.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these sequences are made of control characters.
const SEQUENCE = /\x1b(?:\[([0-9;:<=>?]*)[ -/]*([@-~])|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])/g;
/** A sequence that may continue in the next piece. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: as above.
const UNFINISHED = /\x1b(?:\[[0-9;:<=>?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)$/;
/** A longer one is no sequence that anything understands. */
const MAX_SEQUENCE = 4096;
const MAX_LINE_CHARS = 4000;

/** Takes text of a terminal in pieces, and gives lines. What would hide text is not followed: same colours, and concealed. */
export class AnsiLines {
  #look = PLAIN;
  #pending = "";
  #line: Span[] = [];
  #lineChars = 0;
  #leftOut = 0;
  #wasReturn = false;

  /** The lines that this piece ends. */
  push(piece: string): AnsiLine[] {
    let text = this.#pending + piece;
    const rest = UNFINISHED.exec(text);
    this.#pending = rest !== null && text.length - rest.index <= MAX_SEQUENCE ? text.slice(rest.index) : "";
    text = text.slice(0, text.length - this.#pending.length);
    const ended: AnsiLine[] = [];
    let from = 0;
    for (const match of text.matchAll(SEQUENCE)) {
      this.#write(text.slice(from, match.index), ended);
      if (match[2] === "m") this.#look = lookAfter(this.#look, match[1] ?? "");
      from = match.index + match[0].length;
    }
    this.#write(text.slice(from), ended);
    return ended;
  }

  /** The line that is not ended yet. */
  get rest(): AnsiLine {
    return this.#closed();
  }

  #write(text: string, ended: AnsiLine[]): void {
    for (const [index, part] of text.split("\n").entries()) {
      if (index > 0) {
        ended.push(this.#closed());
        this.#clear();
      }
      // What is after a return takes the place of what was before it, as with progress bars.
      for (const [at, piece] of part.split("\r").entries()) {
        if (at > 0) this.#wasReturn = true;
        if (piece === "") continue;
        if (this.#wasReturn) this.#clear();
        this.#add(piece);
      }
    }
  }

  #add(text: string): void {
    const room = Math.max(0, MAX_LINE_CHARS - this.#lineChars);
    const kept = text.slice(0, room);
    this.#lineChars += kept.length;
    this.#leftOut += text.length - kept.length;
    if (kept !== "") this.#line.push({ text: kept, look: this.#look });
  }

  #closed(): AnsiLine {
    if (this.#leftOut === 0) return [...this.#line];
    return [...this.#line, { text: ` … ${this.#leftOut} more characters`, look: { ...PLAIN, isDim: true } }];
  }

  #clear(): void {
    this.#line = [];
    this.#lineChars = 0;
    this.#leftOut = 0;
    this.#wasReturn = false;
  }
}

function lookAfter(before: AnsiLook, parameters: string): AnsiLook {
  const codes = parameters.split(/[;:]/).map(Number);
  let look = before;
  for (let at = 0; at < codes.length && at < 32; at += 1) {
    const code = codes[at] ?? 0;
    if (code === 38 || code === 48) {
      const [color, used] = extended(codes.slice(at + 1));
      look = code === 38 ? { ...look, color } : { ...look, ground: color };
      at += used;
    } else look = simple(look, code);
  }
  // A text in the colour of its ground would be hidden.
  return look.color !== null && look.color === look.ground ? { ...look, ground: null } : look;
}

function simple(look: AnsiLook, code: number): AnsiLook {
  if (code === 0) return PLAIN;
  if (code === 1) return { ...look, isBold: true };
  if (code === 2) return { ...look, isDim: true };
  if (code === 3) return { ...look, isItalic: true };
  if (code === 4) return { ...look, isUnderlined: true };
  if (code === 22) return { ...look, isBold: false, isDim: false };
  if (code === 23) return { ...look, isItalic: false };
  if (code === 24) return { ...look, isUnderlined: false };
  if (code === 39) return { ...look, color: null };
  if (code === 49) return { ...look, ground: null };
  if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) return { ...look, color: code % 10 };
  if ((code >= 40 && code <= 47) || (code >= 100 && code <= 107)) return { ...look, ground: code % 10 };
  return look;
}

/** Of 256 colours, or of red, green and blue: the nearest of the palette, and how many codes that took. */
function extended([kind, ...rest]: readonly number[]): readonly [number | null, number] {
  if (kind === 2) return [nearestColor(rest[0] ?? 0, rest[1] ?? 0, rest[2] ?? 0), 4];
  return kind === 5 ? [paletteColor(rest[0] ?? 0), 2] : [null, 1];
}

/** Of 256 colours the nearest of the page's own. */
function paletteColor(index: number): number {
  if (index < 16) return index % 8;
  if (index >= 232) return index >= 244 ? 7 : 0;
  const [red, green, blue] = [Math.floor((index - 16) / 36), Math.floor((index - 16) / 6) % 6, (index - 16) % 6];
  return nearestColor(red * 51, green * 51, blue * 51);
}

function nearestColor(red: number, green: number, blue: number): number {
  const least = Math.max(red, green, blue) * 0.6;
  if (Math.max(red, green, blue) < 48) return 0;
  return (red >= least ? 1 : 0) + (green >= least ? 2 : 0) + (blue >= least ? 4 : 0);
}

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
