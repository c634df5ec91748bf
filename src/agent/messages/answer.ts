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
