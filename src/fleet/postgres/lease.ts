import { setTimeout as sleep } from "node:timers/promises";
import type { Connection } from "./connection.ts";

/** A process whose lease has ended counts as dead. */
export const LEASE_MS = 15_000;
export const RENEW_MS = 3000;
/** A database that is away may stay away: then the lease ends by itself. */
const LEAVE_MS = 5000;
/** An item that a machine holds in an open transaction keeps nothing waiting, and is no other's: such transactions are looked for. */
const RENEWALS_BETWEEN_LOOKS = 5;
const HELD_MS = 30_000;

/** This process as an owner of fleets: others see by its lease that it lives. It begins when it is needed. */
export class OwnerLease implements AsyncDisposable {
  readonly #db: Connection;
  readonly #self: string;
  #begun: Promise<void> | null = null;
  #timer: NodeJS.Timeout | undefined;
  #isRenewing = false;
  #renewals = 0;

  constructor(db: Connection, self: string) {
    this.#db = db;
    this.#self = self;
  }

  async begin(): Promise<void> {
    this.#begun ??= this.#start();
    await this.#begun;
  }

  async #start(): Promise<void> {
    await this.#renew();
    // If it fails, the next one may succeed; until then others see the lease end.
    this.#timer = setInterval(() => void this.#renewAgain(), RENEW_MS).unref();
  }

  /** Each tries for a while: a second one beside it would take a connection from what waits for one. */
  async #renewAgain(): Promise<void> {
    if (this.#isRenewing) return;
    this.#isRenewing = true;
    await this.#renew().catch(() => {});
    this.#isRenewing = false;
    if (this.#renewals % RENEWALS_BETWEEN_LOOKS === 0) await this.#db.endHolders(HELD_MS).catch(() => {});
    this.#renewals += 1;
  }

  async #renew(): Promise<void> {
    await this.#db.query(
      `INSERT INTO corral.processes (id, is_machine, name, joined_at, seen_at, lease_until)
       SELECT $1, false, '', now, now, now + $2 FROM corral.now_ms() AS now
       ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, lease_until = excluded.lease_until`,
      [this.#self, LEASE_MS],
      { withinMs: RENEW_MS },
    );
  }

  /** Fleets that it still owns can be taken over at once. */
  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    if (this.#begun === null) return;
    await this.#begun.catch(() => {});
    const leaving = this.#db.query("DELETE FROM corral.processes WHERE id = $1", [this.#self]).catch(() => {});
    const waited = new AbortController();
    await Promise.race([leaving, sleep(LEAVE_MS, undefined, { signal: waited.signal }).catch(() => {})]);
    waited.abort();
  }
}
