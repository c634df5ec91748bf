import type { NetworkLimits } from "../../sandbox/network/rule.ts";

/** What a budget counts. Bytes are those of tunnels, of bodies, and of what a client writes into the head of a request: it carries data too. */
export type Counted = "uploadBytes" | "downloadBytes" | "requests" | "connections";

/**
 * The budget of one cell. What it takes is taken from its callers' budgets too, so that a run cannot use more through
 * the workers that it calls.
 */
export class Meter {
  readonly #parent: Meter | null;
  /** What was taken so far; connections that are open. */
  readonly used: Record<Counted, number> = { uploadBytes: 0, downloadBytes: 0, requests: 0, connections: 0 };
  #limits: NetworkLimits;

  constructor(limits: NetworkLimits = {}, parent: Meter | null = null) {
    this.#limits = limits;
    this.#parent = parent;
  }

  /** False if this budget, or that of a caller, does not have it; then nothing is taken. */
  take(what: Counted, amount: number): boolean {
    if (!this.#has(what, amount)) return false;
    this.#add(what, amount);
    return true;
  }

  /** Gives a connection back. */
  release(): void {
    this.#add("connections", -1);
  }

  /** What was used counts for the new limits. */
  limit(limits: NetworkLimits): void {
    this.#limits = limits;
  }

  #has(what: Counted, amount: number): boolean {
    const limit = this.#limits[what] ?? Number.POSITIVE_INFINITY;
    return this.used[what] + amount <= limit && (this.#parent === null || this.#parent.#has(what, amount));
  }

  #add(what: Counted, amount: number): void {
    this.used[what] += amount;
    if (this.#parent !== null) this.#parent.#add(what, amount);
  }
}
