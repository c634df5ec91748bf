import type { AgentToolAnswer, Answer, AskedCall } from "../messages/conversation.ts";

/** Whose conversation it is. */
export interface TranscriptHead {
  readonly run: string;
  readonly root: string;
  readonly worker: string;
  readonly model: string;
}

/** A line of a transcript. What a model said and asked for is enough to play its part again (`model: script/FILE`). */
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
      /** Of an image only what it is. */
      readonly image?: { readonly mimeType: string; readonly bytes: number };
    }
  | { readonly type: "end"; readonly status: string; readonly code: string | null; readonly message: string | null };

/** Where a conversation is written down, line by line as it goes on. */
export class Transcript {
  readonly #write: (line: string) => Promise<void>;
  readonly #redact: (text: string) => string;

  /** `write` is given one line at a time, with its end. */
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

  /** What the agent was told by its caller, or by Corral. */
  async told(text: string): Promise<void> {
    await this.#add({ type: "told", text });
  }

  async answer({ text, calls, end, tokens: { input, output } }: Answer): Promise<void> {
    const usage = input === null || output === null ? null : { input, output };
    const asked = calls.map((call) => ({ id: call.id, tool: call.tool, input: call.input }));
    await this.#add({ type: "answer", say: text, calls: asked, end, usage });
  }

  async result({ id, tool }: AskedCall, { code, text, image }: AgentToolAnswer): Promise<void> {
    const shown = image && { mimeType: image.mimeType, bytes: Math.floor((image.base64.length * 3) / 4) };
    await this.#add({ type: "result", id, tool, code, text, ...(shown === undefined ? {} : { image: shown }) });
  }

  async end(status: string, error: { readonly code: string; readonly message: string } | null): Promise<void> {
    await this.#add({ type: "end", status, code: error?.code ?? null, message: error?.message ?? null });
  }

  async #add(entry: TranscriptEntry): Promise<void> {
    await this.#write(`${this.#redact(JSON.stringify(entry))}\n`);
  }
}

/** Where the conversations of one project are kept. */
export interface Transcripts {
  /** Begins the transcript of a run. */
  open(run: string): Promise<TranscriptSink>;
}

export interface TranscriptSink extends AsyncDisposable {
  /** One line, with its end. What cannot be written is told to a person, and the run goes on. */
  write(line: string): Promise<void>;
}

/** For what only looks, and for whoever wants none. */
export const noTranscripts: Transcripts = {
  open: async () => ({ write: async () => {}, [Symbol.asyncDispose]: async () => {} }),
};
