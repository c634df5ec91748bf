import { type FileHandle, mkdir, open, readdir, readFile, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { hasCode } from "../platform/errno.ts";
import { projectPaths } from "../state/state-paths.ts";
import { type KeptTranscript, noTranscripts, type TranscriptSink, type Transcripts } from "./transcript.ts";

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
