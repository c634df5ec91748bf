import type { AllowedTraffic, DeniedTraffic, NetworkReport } from "../../sandbox/network/report.ts";
import type { Line } from "../model/outlet.ts";
import type { Refusal } from "../model/refusal.ts";
import type { Meter } from "./meter.ts";

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

  line(to: string): Line {
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
