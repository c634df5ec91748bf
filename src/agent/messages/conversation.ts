import type { ModelMessage } from "ai";

/** One call that a model asks for. */
export interface AskedCall {
  readonly id: string;
  readonly tool: string;
  readonly input: unknown;
  /** What is wrong with the call itself, where there is no such tool or its input is no JSON; else null. */
  readonly fault: string | null;
}

/** What a model's answer used; null: the provider did not say. */
export interface Tokens {
  readonly input: number | null;
  readonly output: number | null;
}

/** How a model's answer ended. */
export type AnswerEnd = "stop" | "calls" | "length" | "declined";

/** One answer of a model. */
export interface Answer {
  readonly text: string;
  readonly calls: readonly AskedCall[];
  readonly end: AnswerEnd;
  readonly tokens: Tokens;
  /** What stands for it in the conversation from now on. */
  readonly messages: readonly ModelMessage[];
  /** Characters of all that came, for where the provider does not count. */
  readonly characters: number;
}

/** Something that a model may call: a tool under its run's sandbox, or a worker that it may call. */
export interface AgentTool {
  /** Letters, digits, `_` and `-`: what every provider takes. */
  readonly name: string;
  readonly description: string;
  /** JSON Schema of its input. */
  readonly inputSchema: Readonly<Record<string, unknown>>;
  /** True where calls of one answer may run beside each other: none of them changes what another one sees. */
  readonly parallel: boolean;
  /** A refusal is an answer. Rejects for bugs, trouble with the engine, and with the reason of `signal`. */
  run(input: unknown, signal: AbortSignal): Promise<AgentToolAnswer>;
}

export interface AgentToolAnswer {
  readonly ok: boolean;
  /** Null where it is no refusal. */
  readonly code: string | null;
  readonly text: string;
  readonly image?: AgentImage;
}

export interface AgentImage {
  readonly mimeType: string;
  readonly base64: string;
}
