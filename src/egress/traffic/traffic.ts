import type { AllowedTraffic, DeniedTraffic, NetworkReport } from "../../sandbox/network/judge.ts";
import type { NetworkLimits } from "../../sandbox/network/rule.ts";
import type { HostTraffic, Refusal } from "../model/outlet.ts";

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

/** More different hosts than this are counted, but not kept apart. */
const MAX_KEPT = 1000;
const MAX_LISTED = 200;

/** Counts what a cell did on its network, bounded. */
export class Traffic {
  readonly #meter: Meter;
  readonly #onDenied: (denied: DeniedTraffic) => void;
  readonly #allowed = new Map<string, Counts>();
  readonly #denied = new Map<string, { count: number; readonly refusal: Refusal }>();
  #unlisted = 0;

  constructor(meter: Meter, onDenied: (denied: DeniedTraffic) => void) {
    this.#meter = meter;
    this.#onDenied = onDenied;
  }

  line(to: string): HostTraffic {
    const known = this.#allowed.get(to);
    const counts = known ?? { connections: 0, requests: 0, up: 0, down: 0 };
    if (known === undefined && this.#allowed.size < MAX_KEPT) this.#allowed.set(to, counts);
    else if (known === undefined) this.#unlisted += 1;
    const taken = (
      what: "uploadBytes" | "downloadBytes" | "requests",
      count: keyof Counts,
      amount: number,
    ): boolean => {
      if (!this.#meter.take(what, amount)) return false;
      counts[count] += amount;
      return true;
    };
    return {
      connected: () => {
        counts.connections += 1;
      },
      request: () => taken("requests", "requests", 1),
      up: (bytes) => taken("uploadBytes", "up", bytes),
      down: (bytes) => taken("downloadBytes", "down", bytes),
    };
  }

  /** Reports the first refusal of a host for one reason at once; further ones are counted. */
  denied(refusal: Refusal): void {
    const key = `${refusal.reason} ${refusal.to}`;
    const known = this.#denied.get(key);
    if (known !== undefined) known.count += 1;
    else if (this.#denied.size >= MAX_KEPT) this.#unlisted += 1;
    else {
      this.#denied.set(key, { count: 1, refusal });
      this.#onDenied({ ...refusal, count: 1 });
    }
  }

  report(): NetworkReport {
    const used = [...this.#allowed].filter(([, { connections, requests }]) => connections + requests > 0);
    const allowed: AllowedTraffic[] = used
      .map(([to, counts]) => ({ to, ...counts }))
      .toSorted((a, b) => b.connections + b.requests - a.connections - a.requests);
    const denied: DeniedTraffic[] = [...this.#denied.values()]
      .map(({ refusal, count }) => ({ ...refusal, count }))
      .toSorted((a, b) => b.count - a.count);
    const cut = Math.max(0, allowed.length - MAX_LISTED) + Math.max(0, denied.length - MAX_LISTED);
    return {
      allowed: allowed.slice(0, MAX_LISTED),
      denied: denied.slice(0, MAX_LISTED),
      unlisted: this.#unlisted + cut,
    };
  }
}

interface Counts {
  connections: number;
  requests: number;
  up: number;
  down: number;
}
