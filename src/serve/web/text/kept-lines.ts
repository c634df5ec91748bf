import { AnsiLines, type Line } from "./ansi.ts";

const MAX_LINES = 50_000;
const MAX_CHARS = 8 * 1024 ** 2;
/** What is removed at once, so that not every line moves all others. */
const STEP = 5000;

/** The last lines of an output, within limits. */
export class KeptLines {
  readonly #parser = new AnsiLines();
  readonly #decoder = new TextDecoder();
  #lines: Line[] = [];
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

  at(index: number): Line {
    return this.#lines[index] ?? this.#parser.rest;
  }
}

function charsIn(line: Line): number {
  return line.reduce((sum, { text }) => sum + text.length, 16);
}
