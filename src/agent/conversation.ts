import type { ModelMessage } from "ai";

/** One tool call of a model. */
export interface AskedCall {
  readonly id: string;
  readonly tool: string;
  readonly input: unknown;
  /** Why the call is invalid: an unknown tool, or an input that is not JSON; null if it is valid. */
  readonly fault: string | null;
}

/** Tokens of a model's answer; null: not reported by the provider. */
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
  /** The messages that represent the answer in the conversation. */
  readonly messages: readonly ModelMessage[];
  /** All characters of the answer, to estimate tokens that the provider did not report. */
  readonly characters: number;
}

/** Something that a model can call: a tool under its run's sandbox, or another worker. */
export interface AgentTool {
  /** Letters, digits, `_` and `-`, which every provider accepts. */
  readonly name: string;
  readonly description: string;
  /** JSON Schema of its input. */
  readonly inputSchema: Readonly<Record<string, unknown>>;
  /** True if calls of one answer may run concurrently, because none changes what another one sees. */
  readonly parallel: boolean;
  /** A refusal is an answer. Rejects for bugs and engine errors, and with the reason of `signal`. */
  run(input: unknown, signal: AbortSignal): Promise<AgentToolAnswer>;
}

export interface AgentToolAnswer {
  readonly ok: boolean;
  /** The code of a refusal; null if it is none. */
  readonly code: string | null;
  readonly text: string;
  readonly image?: { readonly mimeType: string; readonly base64: string };
}
