import type { wrapLanguageModel } from "ai";
import type { AgentBudget } from "../declarations/worker/worker-yaml.ts";
import type { RedactedPieces } from "../secrets/read-secret.ts";
import type { AgentFailure, ModelTokens } from "./events.ts";

/** US dollars per million tokens. */
export interface Price {
  readonly input: number;
  readonly output: number;
}

interface Used {
  /** With those of the agents that it called. */
  readonly input: number;
  readonly output: number;
  /** The cost of all tokens with a known price. */
  readonly costUsd: number;
  /** True if a provider did not report some tokens, and they were estimated by text length. */
  readonly isEstimated: boolean;
  /** True if some tokens have no known price, so that `costUsd` is incomplete. */
  readonly isUnpriced: boolean;
}

/**
 * What an agent has used of its limits. Its use also counts for every agent above it, so no agent can bypass its limits by
 * calling others.
 */
export class Spending {
  readonly #worker: string;
  readonly #limits: AgentBudget;
  readonly #caller: Spending | null;
  #steps = 0;
  #used: Used = { input: 0, output: 0, costUsd: 0, isEstimated: false, isUnpriced: false };

  constructor(worker: string, limits: AgentBudget, caller: Spending | null) {
    this.#worker = worker;
    this.#limits = limits;
    this.#caller = caller;
  }

  get steps(): number {
    return this.#steps;
  }

  get used(): Used {
    return this.#used;
  }

  /** True if this agent or one above has a cost limit; then a model needs a price. */
  get limitsCost(): boolean {
    return this.#limits.costUsd !== null || this.#caller?.limitsCost === true;
  }

  /** Counts one more answer, or returns the limit that forbids it. */
  takeStep(): AgentFailure | null {
    const exhausted = this.exhausted();
    if (exhausted !== null) return exhausted;
    if (this.#steps >= this.#limits.steps) return this.#limit("STEP_LIMIT", `${this.#limits.steps} steps`);
    this.#steps += 1;
    return null;
  }

  /** The first token or cost limit that is used up, of this agent or one above. */
  exhausted(): AgentFailure | null {
    const { tokens, costUsd } = this.#limits;
    const used = this.#used;
    if (used.input + used.output >= tokens) return this.#limit("TOKEN_LIMIT", `${tokens} tokens`);
    if (costUsd !== null && used.costUsd >= costUsd) return this.#limit("COST_LIMIT", `${costUsd} US dollars`);
    return this.#caller?.exhausted() ?? null;
  }

  #limit(code: AgentFailure["code"], limit: string): AgentFailure {
    return { code, message: `Agent ${this.#worker} reached its limit of ${limit}.` };
  }

  /** `estimate` replaces counts that the provider did not report. `price`: null if unknown. */
  add(tokens: ModelTokens, estimate: { readonly input: number; readonly output: number }, price: Price | null): void {
    const [countedInput, countedOutput] = [counted(tokens.input), counted(tokens.output)];
    const input = countedInput ?? estimate.input;
    const output = countedOutput ?? estimate.output;
    const cost = price === null ? 0 : (input * price.input + output * price.output) / 1_000_000;
    const isEstimated = countedInput === null || countedOutput === null;
    this.#count({ input, output, costUsd: cost, isEstimated, isUnpriced: price === null });
  }

  #count(one: Used): void {
    const used = this.#used;
    this.#used = {
      input: used.input + one.input,
      output: used.output + one.output,
      costUsd: used.costUsd + one.costUsd,
      isEstimated: used.isEstimated || one.isEstimated,
      isUnpriced: used.isUnpriced || one.isUnpriced,
    };
    const caller = this.#caller;
    if (caller !== null) caller.#count(one);
  }
}

/**
 * Null for counts that are not plausible: zero, negative, missing or too large to add up. A server must not be able to reduce
 * the use, or to make the sum invalid.
 */
function counted(tokens: number | null): number | null {
  return tokens !== null && tokens > 0 && tokens <= MAX_COUNTED ? tokens : null;
}

/** More than any answer can use, and small enough that sums and costs stay finite. */
const MAX_COUNTED = 1_000_000_000_000;

/* Types of the interface between `ai` and its providers, which `ai` does not export directly. */

export type LanguageModel = ReturnType<typeof wrapLanguageModel>;
export type ModelRequest = Parameters<LanguageModel["doStream"]>[0];
export type ModelStream = Awaited<ReturnType<LanguageModel["doStream"]>>;
export type StreamPart = ModelStream["stream"] extends ReadableStream<infer Part> ? Part : never;

/** A model that can be asked. Its output does not contain the provider's key. */
export interface OpenedModel {
  /** As named in the worker's file. */
  readonly name: string;
  readonly model: LanguageModel;
  /** Where the model gets an image that a tool returned. */
  readonly images: "in the result" | "after the result" | "never";
  /** Null: unknown. */
  readonly price: Price | null;
  /** Removes the provider's key from a text. */
  redact(text: string): string;
  /** The same for a text that comes in parts. */
  redactPieces(): RedactedPieces;
  /** The same for every string in a parsed value, because JSON can write a key with escapes. */
  redactValue(value: unknown): unknown;
}
