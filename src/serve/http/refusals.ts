import type { Log } from "../logging/log.ts";

/** Why a client was refused or closed before its request had an effect. */
export type Refusal =
  /** Too many connections that have shown no token: the oldest was closed. */
  | "connections"
  /** Too many requests in a row, without waiting for the answers. */
  | "pipelined"
  | "malformed"
  | "unauthorized"
  /** The token has its share of connections, streams, memory or disk. */
  | "share"
  /** The client did not read its answer. */
  | "unread"
  | "broken_off";

const LOG_EVERY_MS = 60_000;

/** Counts refused clients. The log has a line for the first of a kind, and then at most one a minute. */
export class Refusals {
  readonly #log: Log;
  readonly #counted: (reason: Refusal) => void;
  readonly #since = new Map<Refusal, { loggedAt: number; count: number }>();

  constructor(log: Log, counted: (reason: Refusal) => void) {
    this.#log = log;
    this.#counted = counted;
  }

  count(reason: Refusal): void {
    this.#counted(reason);
    const now = performance.now();
    const seen = this.#since.get(reason) ?? { loggedAt: Number.NEGATIVE_INFINITY, count: 0 };
    seen.count += 1;
    this.#since.set(reason, seen);
    if (now - seen.loggedAt < LOG_EVERY_MS) return;
    this.#log.warn({ reason, count: seen.count }, "clients were refused");
    seen.loggedAt = now;
    seen.count = 0;
  }
}
