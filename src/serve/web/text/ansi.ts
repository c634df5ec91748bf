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

export interface Span {
  readonly text: string;
  readonly look: AnsiLook;
}

export type AnsiLine = readonly Span[];

export const PLAIN: AnsiLook = {
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
export function paletteColor(index: number): number {
  if (index < 16) return index % 8;
  if (index >= 232) return index >= 244 ? 7 : 0;
  const [red, green, blue] = [Math.floor((index - 16) / 36), Math.floor((index - 16) / 6) % 6, (index - 16) % 6];
  return nearestColor(red * 51, green * 51, blue * 51);
}

export function nearestColor(red: number, green: number, blue: number): number {
  const least = Math.max(red, green, blue) * 0.6;
  if (Math.max(red, green, blue) < 48) return 0;
  return (red >= least ? 1 : 0) + (green >= least ? 2 : 0) + (blue >= least ? 4 : 0);
}
