import type { Tokens } from "./messages/conversation.ts";

/** US dollars for a million tokens. */
export interface Price {
  readonly input: number;
  readonly output: number;
}

export interface SpendingLimits {
  /** Answers of the model in this run alone. */
  readonly steps: number;
  /** Tokens in and out together, those of the agents that it calls included. */
  readonly tokens: number;
  /** Null: not limited. */
  readonly costUsd: number | null;
}

/** Which limit is used up, and whose: an agent's own or that of one which called it. */
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
 * What an agent has used of what it may. What it uses is used by every agent above it too: no agent gets round its
 * limits by having others do the work.
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

  /** Those of the agents that it called are among them. */
  get tokens(): { readonly input: number; readonly output: number } {
    return { input: this.#input, output: this.#output };
  }

  /** Of what has a price. */
  get costUsd(): number {
    return this.#costUsd;
  }

  /** True where some of it has no price that anybody knows: `costUsd` is not all of it. */
  get isUnpriced(): boolean {
    return this.#isUnpriced;
  }

  /** True where some of it was not told by a provider, and was counted by the length of texts. */
  get isEstimated(): boolean {
    return this.#isEstimated;
  }

  /** True where somebody, here or above, may spend only so much: what has no price cannot be counted then. */
  get limitsCost(): boolean {
    return this.#limits.costUsd !== null || this.#caller?.limitsCost === true;
  }

  /** Counts one more answer, or says why there may be none. */
  takeStep(): Exhausted | null {
    const exhausted = this.exhausted();
    if (exhausted !== null) return exhausted;
    if (this.#steps >= this.#limits.steps) {
      const text = `Agent ${this.#worker} has had all of its ${this.#limits.steps} steps.`;
      return { limit: "steps", worker: this.#worker, text };
    }
    this.#steps += 1;
    return null;
  }

  /** The first limit of tokens or cost that is used up, here or above. */
  exhausted(): Exhausted | null {
    const { tokens, costUsd } = this.#limits;
    const worker = this.#worker;
    if (this.#input + this.#output >= tokens)
      return { limit: "tokens", worker, text: `Agent ${worker} has used its ${tokens} tokens.` };
    if (costUsd !== null && this.#costUsd >= costUsd)
      return { limit: "cost", worker, text: `Agent ${worker} has spent its ${costUsd} US dollars.` };
    return this.#caller?.exhausted() ?? null;
  }

  /** `estimate`: what stands in for what the provider did not say. `price`: null where it is not known. */
  add(tokens: Tokens, estimate: { readonly input: number; readonly output: number }, price: Price | null): void {
    const [told, answered] = [counted(tokens.input), counted(tokens.output)];
    const input = told ?? estimate.input;
    const output = answered ?? estimate.output;
    const cost = price === null ? 0 : (input * price.input + output * price.output) / 1_000_000;
    const isEstimated = told === null || answered === null;
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
 * Null also for what is no count: a server that says less than nothing gives nobody back what was used, and one that
 * says nothing at all, or that it was nothing, does not count. One that says more than can be added up does not either.
 */
function counted(tokens: number | null): number | null {
  return tokens !== null && tokens > 0 && tokens <= MAX_COUNTED ? tokens : null;
}

/** Far beyond what any answer has used, and small enough that its sums and prices stay numbers. */
const MAX_COUNTED = 1_000_000_000_000;
