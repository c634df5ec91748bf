import { createWriteStream, type WriteStream } from "node:fs";
import { finished } from "node:stream/promises";

/** How much of a stream's beginning and end an answer holds; the file has all of it. */
const HEAD_BYTES = 12_000;
const TAIL_BYTES = 12_000;

export interface CapturedText {
  /** UTF-8; if something is left out, a line says how much, and which file has all of it. */
  readonly text: string;
  readonly bytes: number;
  readonly cut: boolean;
  /** How much of it is in the file. */
  readonly fileBytes: number;
}

/**
 * One output stream of a command: its beginning and its end in memory, and all of it in a file once it is longer than
 * its beginning, so that a command that prints gigabytes costs memory for neither the worker nor Corral.
 */
export class CapturedOutput {
  readonly #host: string;
  readonly #shownAs: string;
  readonly #tail = new LastBytes(TAIL_BYTES);
  #file: WriteStream | null = null;
  #fileError: Error | null = null;
  #behind: Promise<void> | null = null;
  #head = Buffer.alloc(0);
  #bytes = 0;

  /** `host`: the file for the whole of a long stream; `shownAs`: the path by which the worker reads it. */
  constructor(host: string, shownAs: string) {
    this.#host = host;
    this.#shownAs = shownAs;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** A promise while the disk is behind: until it settles, what is added waits in memory. Never rejects. */
  add(chunk: Buffer): Promise<void> | undefined {
    this.#bytes += chunk.length;
    const toHead = chunk.subarray(0, HEAD_BYTES - this.#head.length);
    if (toHead.length > 0) this.#head = Buffer.concat([this.#head, toHead]);
    const beyond = chunk.subarray(toHead.length);
    if (beyond.length === 0) return undefined;
    this.#tail.add(beyond);
    this.#file ??= this.#opened();
    if (this.#fileError === null && !this.#file.write(beyond)) this.#behind ??= this.#caughtUp(this.#file);
    return this.#behind ?? undefined;
  }

  /** Closes the file, and returns what a caller sees. */
  async end(): Promise<CapturedText> {
    const bytes = this.#bytes;
    if (this.#file === null) return { text: this.#head.toString("utf8"), bytes, cut: false, fileBytes: 0 };
    this.#file.end();
    await finished(this.#file).catch((error: Error) => {
      this.#fileError ??= error;
    });
    const fileBytes = this.#file.bytesWritten;
    const tail = this.#tail.bytes();
    const left = bytes - this.#head.length - tail.length;
    if (left <= 0) return { text: Buffer.concat([this.#head, tail]).toString("utf8"), bytes, cut: false, fileBytes };
    const where = this.#fileError === null ? `the whole output is in ${this.#shownAs}` : "the rest could not be kept";
    const mark = `\n[… ${left} bytes left out; ${where} …]\n`;
    return {
      text: wholeCharacters(this.#head, "end") + mark + wholeCharacters(tail, "start"),
      bytes,
      cut: true,
      fileBytes,
    };
  }

  #opened(): WriteStream {
    const file = createWriteStream(this.#host, { flags: "wx", mode: 0o644 });
    file.on("error", (error) => {
      this.#fileError = error;
    });
    file.write(this.#head);
    return file;
  }

  /** A file that fails closes, and does not block the command. */
  #caughtUp(file: WriteStream): Promise<void> {
    return new Promise((resolve) => {
      const caughtUp = (): void => {
        file.off("drain", caughtUp).off("close", caughtUp);
        this.#behind = null;
        resolve();
      };
      file.on("drain", caughtUp).on("close", caughtUp);
    });
  }
}

/** The end of a stream, compacted from time to time: otherwise a program that prints single bytes would cost thousands for each. */
class LastBytes {
  readonly #size: number;
  readonly #buffer: Buffer;
  #length = 0;

  constructor(size: number) {
    this.#size = size;
    this.#buffer = Buffer.alloc(2 * size);
  }

  add(chunk: Buffer): void {
    const last = chunk.subarray(-this.#size);
    if (this.#length + last.length > this.#buffer.length) {
      this.#buffer.copyWithin(0, this.#length - this.#size, this.#length);
      this.#length = this.#size;
    }
    this.#length += last.copy(this.#buffer, this.#length);
  }

  bytes(): Buffer {
    return this.#buffer.subarray(Math.max(0, this.#length - this.#size), this.#length);
  }
}

/** Removes a half character at the side where the text was cut. */
function wholeCharacters(bytes: Buffer, side: "start" | "end"): string {
  if (side === "end") return new TextDecoder("utf-8").decode(bytes, { stream: true });
  let at = 0;
  while (at < 3 && at < bytes.length && ((bytes[at] ?? 0) & 0xc0) === 0x80) at += 1;
  return bytes.subarray(at).toString("utf8");
}
