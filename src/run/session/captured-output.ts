import { createWriteStream, type WriteStream } from "node:fs";
import { finished } from "node:stream/promises";

/** How much of a stream's beginning and of its end an answer holds; what is between stands in the file. */
const HEAD_BYTES = 12_000;
const TAIL_BYTES = 12_000;

export interface CapturedText {
  /** UTF-8; where something is left out, a line says how much and where the whole of it is. */
  readonly text: string;
  readonly bytes: number;
  readonly cut: boolean;
}

/**
 * One output stream of a command: its beginning and its end in memory, and all of it in a file once it is longer than
 * both, so that a command that prints gigabytes costs memory for neither the worker nor Corral.
 */
export class CapturedOutput {
  readonly #host: string;
  readonly #shownAs: string;
  #file: WriteStream | null = null;
  #fileError: Error | null = null;
  #head = Buffer.alloc(0);
  #tail = Buffer.alloc(0);
  #bytes = 0;

  /** `host`: where the whole of it goes when it is long; `shownAs`: the path by which the worker reads that. */
  constructor(host: string, shownAs: string) {
    this.#host = host;
    this.#shownAs = shownAs;
  }

  get bytes(): number {
    return this.#bytes;
  }

  add(chunk: Buffer): void {
    this.#bytes += chunk.length;
    const toHead = chunk.subarray(0, HEAD_BYTES - this.#head.length);
    if (toHead.length > 0) this.#head = Buffer.concat([this.#head, toHead]);
    const beyond = chunk.subarray(toHead.length);
    if (beyond.length === 0) return;
    if (this.#file === null) this.#open();
    this.#file?.write(beyond);
    const tail = beyond.length >= TAIL_BYTES ? beyond : Buffer.concat([this.#tail, beyond]);
    // Copied, so that the whole chunk that it was cut from can go.
    this.#tail = Buffer.from(tail.subarray(-TAIL_BYTES));
  }

  /** True while what was written waits in memory for the disk; the command's stream should pause. */
  get isBehind(): boolean {
    return this.#file?.writableNeedDrain ?? false;
  }

  /** Closes the file, and answers with what a caller is shown. */
  async end(): Promise<CapturedText> {
    if (this.#file === null) return { text: this.#head.toString("utf8"), bytes: this.#bytes, cut: false };
    this.#file.end();
    await finished(this.#file).catch((error: Error) => {
      this.#fileError ??= error;
    });
    const left = this.#bytes - this.#head.length - this.#tail.length;
    if (left <= 0) {
      return { text: Buffer.concat([this.#head, this.#tail]).toString("utf8"), bytes: this.#bytes, cut: false };
    }
    const where = this.#fileError === null ? `the whole output is in ${this.#shownAs}` : "the rest could not be kept";
    const mark = `\n[… ${left} bytes left out; ${where} …]\n`;
    return {
      text: wholeCharacters(this.#head, "end") + mark + wholeCharacters(this.#tail, "start"),
      bytes: this.#bytes,
      cut: true,
    };
  }

  #open(): void {
    this.#file = createWriteStream(this.#host, { flags: "wx", mode: 0o644 });
    this.#file.on("error", (error) => {
      this.#fileError = error;
    });
    this.#file.write(this.#head);
  }
}

/** Without the half of a character that was cut off at that side. */
function wholeCharacters(bytes: Buffer, side: "start" | "end"): string {
  if (side === "end") return new TextDecoder("utf-8").decode(bytes, { stream: true });
  let at = 0;
  while (at < 3 && at < bytes.length && ((bytes[at] ?? 0) & 0xc0) === 0x80) at += 1;
  return bytes.subarray(at).toString("utf8");
}
