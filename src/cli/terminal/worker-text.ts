import { StringDecoder } from "node:string_decoder";
import { printable, printableLine } from "../../text/visible.ts";
import type { WatchedEvent } from "./terminal.ts";

/** What is said while an image is made: milestones, and each step of a build once. */
export class ImageLines {
  #last = "";

  see(event: WatchedEvent): string[] {
    if (event.type !== "image") return [];
    const { image, step, text } = event.progress;
    const head = `corral: ${printableLine(image, 80)}:`;
    if (step === undefined) return [`${head} ${printable(text)}`];
    const line = `${head} ${printableLine(step, 150)}`;
    if (line === this.#last) return [];
    this.#last = line;
    return [line];
  }
}

/** What is written of the bytes of one stream of a worker. */
export interface WorkerText {
  /** May be empty: a sequence or a character is not complete yet. */
  piece(bytes: Uint8Array | string): Uint8Array | string;
  /** What is left when no more bytes come. */
  end(): string;
}

/**
 * How bytes that a worker chose go to a stream. On a terminal, control sequences become text: they could change its title, clear it, write to
 * the clipboard, or have it type an answer. Elsewhere, and with `raw`, the bytes are exact. `isRecord`: no progress is
 * followed, and a carriage return would hide what its line had before. `isScreen`: programs have the whole terminal, but for what reaches beyond it.
 */
export function workerTextTo(
  { isTTY }: NodeJS.WriteStream,
  {
    raw = false,
    isRecord = false,
    isScreen = false,
  }: { readonly raw?: boolean; readonly isRecord?: boolean; readonly isScreen?: boolean } = {},
): WorkerText {
  if (isTTY && !raw && isScreen) return new ScreenText();
  if (isTTY && !raw) return new HarmlessText(isRecord ? "\n\t" : "\n\t\r");
  return { piece: (bytes) => bytes, end: () => (!isTTY ? "" : isScreen ? LEFT : RESET) };
}

const RESET = "\u001b[0m";
/** Another screen, pasting and the mouse as input, colours, a hidden cursor: whatever a program left switched on. */
const LEFT =
  "\u001b[?1047l\u001b[?2004l\u001b[?1000l\u001b[?1002l\u001b[?1003l\u001b[?1006l\u001b[!p\u001b[0m\u001b[?25h";
/** A style, or the rest of the line is cleared, as programs do beside colours. Both change nothing outside of the text. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: the escape that begins a sequence is what is looked for.
const HARMLESS = /(\u001b\[[\d;:]{0,60}m|\u001b\[0?K)/;
/** What may become one of these with the next bytes. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: as above.
const BEGUN = /\u001b(?:\[[\d;:]{0,60})?$/;
/** More styles at once no terminal shows; further ones take the place of the oldest. */
const MAX_STYLES = 16;

/**
 * Text with colours, tabs and line breaks; a carriage return begins its own line anew. A byte that is no UTF-8, such as a control
 * character of 8 bits, becomes U+FFFD.
 *
 * A piece leaves the terminal without a style, and the next one sets it again: what Corral writes between them has its own colours.
 */
class HarmlessText implements WorkerText {
  readonly #decoder = new StringDecoder("utf8");
  readonly #kept: string;
  #begun = "";
  #styles: string[] = [];

  constructor(kept: string) {
    this.#kept = kept;
  }

  piece(bytes: Uint8Array | string): string {
    const text = this.#begun + (typeof bytes === "string" ? bytes : this.#decoder.write(bytes));
    const cut = BEGUN.exec(text)?.index ?? text.length;
    this.#begun = text.slice(cut);
    return this.#shown(text.slice(0, cut));
  }

  end(): string {
    return this.#shown(this.#begun + this.#decoder.end());
  }

  #shown(text: string): string {
    if (text === "") return "";
    const before = this.#styles.join("");
    const shown = text.split(HARMLESS).map((part, index) => {
      if (index % 2 === 0) return printable(part, this.#kept, "stream");
      return part.endsWith("m") ? this.#styled(part) : part;
    });
    return `${before}${shown.join("")}${this.#styles.length === 0 ? "" : RESET}`;
  }

  #styled(sequence: string): string {
    const terms = visibleTerms(sequence.slice(2, -1).split(";"));
    if (terms.length === 0) return "";
    const style = `\u001b[${terms.join(";")}m`;
    const isReset = Number(terms[0]) === 0;
    if (isReset) this.#styles = terms.length === 1 ? [] : [style];
    else this.#styles = [...this.#styles, style].slice(-MAX_STYLES);
    return style;
  }
}

/** All but the one that hides text, 8, which is also a number of colours: `38;5;8`. */
function visibleTerms(terms: readonly string[]): string[] {
  const [first, kind] = terms;
  if (first === undefined) return [];
  const length = !/^0*[345]8$/.test(first) ? 1 : Number(kind) === 5 ? 3 : Number(kind) === 2 ? 5 : terms.length;
  const shown = Number.parseInt(first, 10) === 8 ? [] : terms.slice(0, length);
  return [...shown, ...visibleTerms(terms.slice(length))];
}

/** Control characters within a sequence act by themselves, and the sequence goes on. */
const WITHIN = "[\\x00-\\x17\\x19\\x1c-\\x1f\\x7f]*";
const PARAMETERS = "[\\x00-\\x17\\x19\\x1c-\\x3f\\x7f]*";
/**
 * What reaches beyond a screen: strings to the terminal itself (its title, the clipboard, notes, colours that it tells, devices), which begin here;
 * a question after its name (ENQ), its window and its title (`CSI … t`), and another encoding, in which other bytes begin sequences.
 */
const BEYOND = new RegExp(
  `(\\x1b${WITHIN}[\\]P^_Xk]|[\\x90\\x98\\x9d-\\x9f])|\\x05|\\x1b${WITHIN}%${WITHIN}[^\\x1b]|(?:\\x1b${WITHIN}\\[|\\x9b)${PARAMETERS}t`,
);
/** What may become one of these with what comes next. */
const BEGUN_BEYOND = new RegExp(`\\x1b${WITHIN}(?:%${WITHIN})?$|(?:\\x1b${WITHIN}\\[|\\x9b)${PARAMETERS}$`);
/** Where such a string ends; an escape also begins what comes next. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: the characters that end a string are what is looked for.
const STRING_END = /[\x07\x18\x1a\x1b\x9c]/;
/** Ends whatever sequence was begun, and does nothing else. */
const NOTHING = "\u001b\\";
/** No program has longer ones. */
const MAX_SEQUENCE = 256;

/** For programs that need the whole terminal, such as editors: what they draw, and no more. A byte that is no UTF-8 becomes U+FFFD. */
class ScreenText implements WorkerText {
  readonly #decoder = new StringDecoder("utf8");
  #begun = "";
  #isInString = false;

  piece(bytes: Uint8Array | string): string {
    let text = this.#begun + (typeof bytes === "string" ? bytes : this.#decoder.write(bytes));
    let shown = "";
    this.#begun = "";
    while (text !== "") {
      if (this.#isInString) {
        const end = STRING_END.exec(text);
        if (end === null) return shown;
        this.#isInString = false;
        text = text.slice(end.index + (end[0] === "\u001b" ? 0 : 1));
        continue;
      }
      const beyond = BEYOND.exec(text);
      if (beyond === null) break;
      shown += text.slice(0, beyond.index) + NOTHING;
      this.#isInString = beyond[1] !== undefined;
      text = text.slice(beyond.index + beyond[0].length);
    }
    const cut = BEGUN_BEYOND.exec(text)?.index ?? text.length;
    if (text.length - cut > MAX_SEQUENCE) return shown + text.slice(0, cut) + NOTHING;
    this.#begun = text.slice(cut);
    return shown + text.slice(0, cut);
  }

  end(): string {
    return LEFT;
  }
}
