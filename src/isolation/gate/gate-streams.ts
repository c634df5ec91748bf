import { randomUUID } from "node:crypto";
import { chmod, copyFile, link, lstat, mkdir, rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { StringDecoder } from "node:string_decoder";
import { nullFor } from "../../platform/errno.ts";
import { onAbort } from "../../platform/within.ts";
import { GATE_PATH } from "../plan/plan.ts";
import { EngineTrouble, type StartRequest } from "../port/driver.ts";
import { BEGUN, END_OF_REPORT, MAX_REPORT_BYTES } from "./report.ts";

/** How long a started container may take to send its gate report. */
const REPORT_TIMEOUT_MS = 30_000;

/** Rejects with `EngineTrouble` if it is late, and with the signal's reason. */
export async function reportWithin(report: Promise<string>, signal: AbortSignal): Promise<string> {
  const { promise: stopped, reject } = Promise.withResolvers<never>();
  const late = (): void => reject(new EngineTrouble(`the cell sent no report within ${REPORT_TIMEOUT_MS / 1000} s`));
  const timer = setTimeout(late, REPORT_TIMEOUT_MS);
  using _ = onAbort(signal, () => reject(signal.reason));
  try {
    return await Promise.race([report, stopped]);
  } finally {
    clearTimeout(timer);
  }
}

/** The two streams of a cell: first the gate's report, and after {@link GateStreams.release} the worker's output. */
export class GateStreams {
  readonly #onOutput: StartRequest["onOutput"];
  readonly #gate = new GateOutput();
  readonly #beginning = new Beginning();
  readonly #lastWords = new LastWords();
  #released = false;
  #closed = false;

  constructor(onOutput: StartRequest["onOutput"]) {
    this.#onOutput = onOutput;
  }

  /** The whole report; rejects if the cell ends, or prints too much, before the report is complete. */
  get report(): Promise<string> {
    return this.#gate.report;
  }

  /** True if the gate has reported that it became the worker. */
  get hasBegun(): boolean {
    return this.#beginning.isOver;
  }

  /** Whether a signal ended the worker, whose exit code is `code`; absent if its init did not say it. When the streams have ended. */
  endedBySignal(code: number): boolean | undefined {
    return this.#lastWords.endedBySignal(code);
  }

  add(stream: "stdout" | "stderr", chunk: Buffer): void {
    if (this.#closed) return;
    if (!this.#released) this.#gate.add(stream, chunk);
    else this.#pass(stream, stream === "stdout" ? this.#lastWords.add(this.#beginning.add(chunk)) : chunk);
  }

  #pass(stream: "stdout" | "stderr", printed: Buffer): void {
    if (printed.length > 0) this.#onOutput(stream, printed);
  }

  release(): void {
    this.#released = true;
  }

  /** Nothing is delivered after this call. */
  close(): void {
    this.#closed = true;
  }

  /** The streams have ended. */
  end(): void {
    this.#gate.end();
    if (!this.#closed) this.#pass("stdout", this.#lastWords.end());
  }
}

const FIRST_WORDS = Buffer.from(`[INFO  tini (1)] Spawned child process '${GATE_PATH}' with pid '`);
const LAST_WORDS =
  /^[^\n]*\d'\n\[INFO {2}tini \(1\)\] Main child exited (?:normally \(with status '(\d+)'\)|with signal \(with signal '[^\n]*'\))\n$/;
const MAX_LAST_WORDS = 1024;
const [BRACKET = 0] = FIRST_WORDS;

/**
 * Takes what the init process prints when it ends out of the output: two lines in one write, after everything that the worker has printed; only
 * what that has left in the background may print once more (docs/facts.md, fact: last-words-of-init). What only begins like it is the worker's.
 */
export class LastWords {
  #held = Buffer.alloc(0);
  /** `code`: null after a signal. */
  #said: { readonly code: number | null } | null = null;

  /** The output without it, as far as that is known now. */
  add(chunk: Buffer): Buffer {
    if (this.#held.length === 0 && !chunk.includes(BRACKET)) return chunk;
    let rest = Buffer.concat([this.#held, chunk]);
    const passed: Buffer[] = [];
    for (;;) {
      const at = beginningIn(rest);
      passed.push(rest.subarray(0, at));
      rest = rest.subarray(at);
      const end = rest.indexOf("\n", rest.indexOf("\n") + 1) + 1;
      if (rest.length < FIRST_WORDS.length || (end === 0 && rest.length <= MAX_LAST_WORDS)) break;
      const words = LAST_WORDS.exec(rest.toString("latin1", 0, Math.min(end, MAX_LAST_WORDS)));
      if (words !== null) this.#said = { code: words[1] === undefined ? null : Number(words[1]) };
      else passed.push(rest.subarray(0, 1));
      rest = rest.subarray(words === null ? 1 : end);
    }
    this.#held = rest;
    return Buffer.concat(passed);
  }

  /** What was held back. */
  end(): Buffer {
    const rest = this.#held;
    this.#held = Buffer.alloc(0);
    return rest;
  }

  endedBySignal(code: number): boolean | undefined {
    if (this.#said === null || (this.#said.code !== null && this.#said.code !== code)) return undefined;
    return this.#said.code === null;
  }
}

/** Where the words begin, or a first part of them that the end cuts. */
function beginningIn(all: Buffer): number {
  const whole = all.indexOf(FIRST_WORDS);
  if (whole >= 0) return whole;
  let at = all.indexOf(BRACKET, Math.max(0, all.length - FIRST_WORDS.length));
  while (at >= 0 && !FIRST_WORDS.subarray(0, all.length - at).equals(all.subarray(at)))
    at = all.indexOf(BRACKET, at + 1);
  return at < 0 ? all.length : at;
}

/** Takes the gate's last line, which it prints when it becomes the worker, from the beginning of the output. */
class Beginning {
  #left = Buffer.from(BEGUN);

  get isOver(): boolean {
    return this.#left.length === 0;
  }

  /** What follows the line. */
  add(chunk: Buffer): Buffer {
    const length = Math.min(this.#left.length, chunk.length);
    // Anything else is of a gate that did not open: the worker has printed nothing.
    if (!chunk.subarray(0, length).equals(this.#left.subarray(0, length))) return Buffer.alloc(0);
    this.#left = this.#left.subarray(length);
    return chunk.subarray(length);
  }
}

/** Collects what the gate prints, and its errors for the message of a failure. */
class GateOutput {
  readonly #settle = Promise.withResolvers<string>();
  readonly report = this.#settle.promise;
  // A chunk may end in the middle of a character, because mount points may have any name.
  readonly #decoders = { stdout: new StringDecoder("utf8"), stderr: new StringDecoder("utf8") };
  #stdout = "";
  #stderr = "";

  constructor() {
    // The report is awaited only after the start; an earlier failure is reported then.
    this.report.catch(() => {});
  }

  add(stream: "stdout" | "stderr", chunk: Buffer): void {
    const text = this.#decoders[stream].write(chunk);
    if (stream === "stdout") this.#stdout += text;
    else this.#stderr += text;
    if (this.#stdout.length + this.#stderr.length > MAX_REPORT_BYTES) {
      this.#settle.reject(new EngineTrouble("the cell printed more than a gate report before its worker was released"));
    } else if (this.#stdout.endsWith(END_OF_REPORT)) this.#settle.resolve(this.#stdout);
  }

  end(): void {
    this.#settle.reject(
      new EngineTrouble(`the cell ended before its worker was released: ${this.#stderr.trim() || "no reason given"}`),
    );
  }
}

/**
 * A copy of the gate that only root can read and everyone can execute: then the kernel lets no process of the same user
 * trace it or open its descriptors (ptrace(2), `PR_SET_DUMPABLE`).
 */
export async function closedGate(gate: string): Promise<string> {
  const path = closedPath(gate);
  const dir = dirname(path);
  if ((await knownClosedGate(gate)) !== null) return path;
  const closed = await lstat(path).catch(() => null);
  await mkdir(dir, { recursive: true, mode: 0o755 });
  const draft = join(dir, `.${randomUUID()}`);
  await copyFile(gate, draft);
  await chmod(draft, 0o111);
  if (closed !== null) await rename(draft, path);
  else {
    // If the name exists already, another process made it just now and starts cells with that file: it stays.
    await link(draft, path).catch(nullFor("EEXIST"));
    await rm(draft);
  }
  return path;
}

/** The copy that was made before, or null. */
export async function knownClosedGate(gate: string): Promise<string | null> {
  const path = closedPath(gate);
  const [original, closed] = await Promise.all([lstat(gate), lstat(path).catch(() => null)]);
  return closed?.isFile() && (closed.mode & 0o777) === 0o111 && closed.size === original.size ? path : null;
}

/** The gate that {@link closedGate} copied, which everyone can read. */
export function originalOf(closed: string): string {
  return join(dirname(dirname(closed)), basename(closed));
}

function closedPath(gate: string): string {
  return join(dirname(gate), "closed", basename(gate));
}

/**
 * Writes `first` and then all of `rest`, as fast as `input` takes it, and ends it. Leaves `rest` alone once nobody reads any more, with what it still
 * has; an error of it ends the input.
 */
export function pour(first: Uint8Array, rest: Readable, input: Writable): void {
  input.write(first);
  if (rest.readableEnded || rest.destroyed) {
    input.end();
    return;
  }
  const end = (): void => void input.end();
  rest.once("error", end).once("close", end);
  input.once("close", () => {
    rest.unpipe(input).off("error", end).off("close", end).pause();
  });
  rest.pipe(input);
}
