import { type FileHandle, mkdir, open, readdir, readFile, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { hasCode } from "../platform/errno.ts";
import { projectPaths } from "../state/state-dir.ts";
import { present } from "../text/present.ts";
import type { AgentToolAnswer, AskedCall, ModelAnswer } from "./events.ts";

/** The run of a transcript. */
export interface TranscriptHead {
  readonly run: string;
  readonly root: string;
  readonly worker: string;
  readonly model: string;
  /** The process that runs it. */
  readonly owner?: string;
  /** The run whose conversation it continues. */
  readonly continues?: string;
}

/** A line of a transcript. The model's answers in it can be replayed (`model: script/FILE`). */
export type TranscriptEntry =
  | ({ readonly type: "begin"; readonly version: 1; readonly at: string } & TranscriptHead)
  | { readonly type: "system"; readonly text: string }
  | { readonly type: "told"; readonly text: string }
  | {
      readonly type: "answer";
      readonly say: string;
      readonly calls: readonly { readonly id: string; readonly tool: string; readonly input: unknown }[];
      readonly end: string;
      readonly usage: { readonly input: number; readonly output: number } | null;
    }
  | {
      readonly type: "result";
      readonly id: string;
      readonly tool: string;
      readonly code: string | null;
      readonly text: string;
      /** An image's type and size, without its content. */
      readonly image?: { readonly mimeType: string; readonly bytes: number };
    }
  | { readonly type: "end"; readonly status: string; readonly code: string | null; readonly message: string | null };

/** Writes a conversation line by line, as it happens. */
export class Transcript {
  readonly #write: (line: string) => Promise<void>;
  readonly #redact: (text: string) => string;

  /** `write` gets one line at a time, including its line break. */
  constructor(write: (line: string) => Promise<void>, redact: (text: string) => string) {
    this.#write = write;
    this.#redact = redact;
  }

  async begin(head: TranscriptHead, at: Date): Promise<void> {
    await this.#add({ type: "begin", version: 1, at: at.toISOString(), ...head });
  }

  async system(text: string): Promise<void> {
    await this.#add({ type: "system", text });
  }

  /** A message to the agent from its caller or from Corral. */
  async told(text: string): Promise<void> {
    await this.#add({ type: "told", text });
  }

  async answer({ text, calls, end, tokens: { input, output } }: ModelAnswer): Promise<void> {
    const usage = input === null || output === null ? null : { input, output };
    const asked = calls.map((call) => ({ id: call.id, tool: call.tool, input: call.input }));
    await this.#add({ type: "answer", say: text, calls: asked, end, usage });
  }

  async result({ id, tool }: AskedCall, { code, text, image }: AgentToolAnswer): Promise<void> {
    const shown = image && { mimeType: image.mimeType, bytes: Math.floor((image.base64.length * 3) / 4) };
    await this.#add({ type: "result", id, tool, code, text, ...present({ image: shown }) });
  }

  async end(status: string, error: { readonly code: string; readonly message: string } | null): Promise<void> {
    await this.#add({ type: "end", status, code: error?.code ?? null, message: error?.message ?? null });
  }

  async #add(entry: TranscriptEntry): Promise<void> {
    await this.#write(`${this.#redact(JSON.stringify(entry))}\n`);
  }
}

/** A transcript that is on the disk. */
export interface KeptTranscript {
  readonly run: string;
  readonly bytes: number;
  readonly modifiedMs: number;
}

/** The transcripts of one project. */
export interface Transcripts {
  /** Starts the transcript of a run. */
  open(run: string): Promise<TranscriptSink>;
  /** The newest first. */
  list(): Promise<KeptTranscript[]>;
  /** The lines of a transcript; null if it does not exist. */
  read(run: string): Promise<string | null>;
}

interface TranscriptSink extends AsyncDisposable {
  /** Writes one line with its line break. A write error is reported to the user, and the run continues. */
  write(line: string): Promise<void>;
}

/** Keeps no transcripts. */
export const noTranscripts: Transcripts = {
  list: async () => [],
  read: async () => null,
  open: async () => ({ write: async () => {}, [Symbol.asyncDispose]: async () => {} }),
};

/** The newest transcripts that pruning keeps. */
const MAX_KEPT = 1000;
/** Pruning reads every entry, so it starts only above this number. */
const PRUNE_ABOVE = 1100;
/** Longer transcripts are cut. */
export const MAX_TRANSCRIPT_BYTES = 64 * 1024 * 1024;
const RUN_ID = /^[0-9a-f]{12}$/;

/** The transcripts of one project in the state directory, which only its owner may read. */
export class TranscriptFolder implements Transcripts {
  readonly #dir: string;
  readonly #trouble: (detail: string) => void;

  /** `projectDir`: absolute, without symbolic links. */
  constructor(stateDir: string, projectDir: string, trouble: (detail: string) => void = () => {}) {
    this.#dir = projectPaths(stateDir, projectDir).transcripts;
    this.#trouble = trouble;
  }

  async open(run: string): Promise<TranscriptSink> {
    if (!RUN_ID.test(run)) throw new Error(`${JSON.stringify(run)} is not a run id`);
    try {
      await mkdir(this.#dir, { recursive: true, mode: 0o700 });
      await this.#prune();
      return this.#sink(run, await open(this.#file(run), "wx", 0o600));
    } catch (error) {
      this.#trouble(`the transcript of run ${run} cannot be written: ${(error as Error).message}`);
      return await noTranscripts.open(run);
    }
  }

  #sink(run: string, file: FileHandle): TranscriptSink {
    let bytes = 0;
    let isOver = false;
    const stop = (why: string): void => {
      isOver = true;
      this.#trouble(`the transcript of run ${run} ${why}`);
    };
    const write = async (line: string): Promise<void> => {
      if (isOver) return;
      bytes += Buffer.byteLength(line);
      if (bytes > MAX_TRANSCRIPT_BYTES)
        return stop(`is longer than ${MAX_TRANSCRIPT_BYTES} bytes; the rest is not kept`);
      try {
        await file.appendFile(line);
      } catch (error) {
        stop(`cannot be continued: ${(error as Error).message}`);
      }
    };
    return { write, [Symbol.asyncDispose]: () => file.close() };
  }

  /** The newest first. */
  async list(): Promise<KeptTranscript[]> {
    const names = await readdir(this.#dir).catch((error: unknown) => {
      if (hasCode(error, "ENOENT")) return [];
      throw error;
    });
    const kept: KeptTranscript[] = [];
    for (const name of names) {
      const run = name.replace(/\.jsonl$/, "");
      if (!RUN_ID.test(run) || run === name) continue;
      const found = await stat(join(this.#dir, name)).catch(() => null);
      if (found !== null) kept.push({ run, bytes: found.size, modifiedMs: found.mtimeMs });
    }
    return kept.toSorted((a, b) => b.modifiedMs - a.modifiedMs);
  }

  /** The lines of a transcript; null if it does not exist. */
  async read(run: string): Promise<string | null> {
    if (!RUN_ID.test(run)) return null;
    try {
      return await readFile(this.#file(run), "utf8");
    } catch (error) {
      if (hasCode(error, "ENOENT")) return null;
      throw error;
    }
  }

  #file(run: string): string {
    return join(this.#dir, `${run}.jsonl`);
  }

  async #prune(): Promise<void> {
    if ((await readdir(this.#dir)).length <= PRUNE_ABOVE) return;
    for (const { run } of (await this.list()).slice(MAX_KEPT)) await rm(this.#file(run), { force: true });
  }
}
