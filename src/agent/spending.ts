import type { Tokens } from "./messages/conversation.ts";

/** US dollars per million tokens. */
export interface Price {
  readonly input: number;
  readonly output: number;
}

export interface SpendingLimits {
  /** Answers of the model in this run. */
  readonly steps: number;
  /** Input and output tokens together, including those of called agents. */
  readonly tokens: number;
  /** Null: no limit. */
  readonly costUsd: number | null;
}

/** The limit that is used up, and its agent: this one or one above it. */
export interface Exhausted {
  readonly limit: "steps" | "tokens" | "cost";
  readonly worker: string;
  readonly text: string;
}

interface Used {
  readonly input: number;
  readonly output: number;
  readonly costUsd: number;
  readonly isEstimated: boolean;
  readonly isUnpriced: boolean;
}

/**
 * What an agent has used of its limits. Its use also counts for every agent above it, so no agent can bypass its limits by
 * calling others.
 */
export class Spending {
  readonly #worker: string;
  readonly #limits: SpendingLimits;
  readonly #caller: Spending | null;
  #steps = 0;
  #input = 0;
  #output = 0;
  #costUsd = 0;
  #isEstimated = false;
  #isUnpriced = false;

  constructor(worker: string, limits: SpendingLimits, caller: Spending | null) {
    this.#worker = worker;
    this.#limits = limits;
    this.#caller = caller;
  }

  get steps(): number {
    return this.#steps;
  }

  /** Includes the agents that it called. */
  get tokens(): { readonly input: number; readonly output: number } {
    return { input: this.#input, output: this.#output };
  }

  /** The cost of all tokens with a known price. */
  get costUsd(): number {
    return this.#costUsd;
  }

  /** True if some tokens have no known price, so that `costUsd` is incomplete. */
  get isUnpriced(): boolean {
    return this.#isUnpriced;
  }

  /** True if a provider did not report some tokens, and they were estimated by text length. */
  get isEstimated(): boolean {
    return this.#isEstimated;
  }

  /** True if this agent or one above has a cost limit; then a model needs a price. */
  get limitsCost(): boolean {
    return this.#limits.costUsd !== null || this.#caller?.limitsCost === true;
  }

  /** Counts one more answer, or returns the limit that forbids it. */
  takeStep(): Exhausted | null {
    const exhausted = this.exhausted();
    if (exhausted !== null) return exhausted;
    if (this.#steps >= this.#limits.steps) {
      const text = `Agent ${this.#worker} reached its limit of ${this.#limits.steps} steps.`;
      return { limit: "steps", worker: this.#worker, text };
    }
    this.#steps += 1;
    return null;
  }

  /** The first token or cost limit that is used up, of this agent or one above. */
  exhausted(): Exhausted | null {
    const { tokens, costUsd } = this.#limits;
    const worker = this.#worker;
    if (this.#input + this.#output >= tokens)
      return { limit: "tokens", worker, text: `Agent ${worker} reached its limit of ${tokens} tokens.` };
    if (costUsd !== null && this.#costUsd >= costUsd)
      return { limit: "cost", worker, text: `Agent ${worker} reached its limit of ${costUsd} US dollars.` };
    return this.#caller?.exhausted() ?? null;
  }

  /** `estimate` replaces counts that the provider did not report. `price`: null if unknown. */
  add(tokens: Tokens, estimate: { readonly input: number; readonly output: number }, price: Price | null): void {
    const [countedInput, countedOutput] = [counted(tokens.input), counted(tokens.output)];
    const input = countedInput ?? estimate.input;
    const output = countedOutput ?? estimate.output;
    const cost = price === null ? 0 : (input * price.input + output * price.output) / 1_000_000;
    const isEstimated = countedInput === null || countedOutput === null;
    this.#count({ input, output, costUsd: cost, isEstimated, isUnpriced: price === null });
  }

  #count(used: Used): void {
    this.#input += used.input;
    this.#output += used.output;
    this.#costUsd += used.costUsd;
    this.#isEstimated ||= used.isEstimated;
    this.#isUnpriced ||= used.isUnpriced;
    const caller = this.#caller;
    if (caller !== null) caller.#count(used);
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
