import { setImmediate as turn } from "node:timers/promises";
import { causeOf, type ItemRequest, type ItemStreams, isFailure } from "../model/item.ts";
import {
  type Claim,
  type ClaimedItem,
  type FleetQueue,
  type IntendedSettlement,
  type ItemCounts,
  LONGEST_DELAY_MS,
  MAX_CLAIM,
  type NewAttempt,
  type Settlement,
  type Taken,
} from "../model/queue.ts";
import type { GroupCommit } from "../stored/group-commit.ts";
import {
  boundedResult,
  encodedStreams,
  type FleetRow,
  fencedOff,
  MAX_FLEET_BYTES,
  msOf,
  takenFrom,
} from "../stored/rows.ts";
import type { Database, JournalWrite } from "./database.ts";
import { countsOf } from "./fleets.ts";

/** The streams of one fleet, within its budget. */
class StreamStore {
  readonly #db: Database;
  readonly #fleet: number;
  #bytes: number | null = null;

  constructor(db: Database, fleet: number) {
    this.#db = db;
    this.#fleet = fleet;
  }

  /** Encoded outside of the transaction. `output`: of the result, if it is whole. */
  encoded(streams: ItemStreams, output: unknown): readonly [Buffer | null, Buffer | null] {
    const [out, err] = encodedStreams(streams, output, this.#used() >= MAX_FLEET_BYTES);
    this.#bytes = this.#used() + (out?.length ?? 0) + (err?.length ?? 0);
    return [out, err];
  }

  /** In place of what an earlier attempt printed. */
  keep(item: number, [stdout, stderr]: readonly [Uint8Array | null, Uint8Array | null], isFirst: boolean): void {
    if (stdout === null && stderr === null) {
      if (!isFirst) this.#db.run("DELETE FROM streams WHERE item = ?", item);
    } else this.#db.run("INSERT OR REPLACE INTO streams (item, stdout, stderr) VALUES (?, ?, ?)", item, stdout, stderr);
  }

  #used(): number {
    this.#bytes ??=
      this.#db.get<{ bytes: number }>(
        `SELECT coalesce(sum(coalesce(length(stdout), 0) + coalesce(length(stderr), 0)), 0) AS bytes
         FROM items JOIN streams ON streams.item = items.id WHERE fleet = ?`,
        this.#fleet,
      )?.bytes ?? 0;
    return this.#bytes;
  }
}

/** `not_before` of a new item is 0, so that new items sort before retries. */
const AT_ONCE = 1;
const CANCEL_CHUNK = 5000;

interface JournalQueueOptions {
  readonly db: Database;
  readonly writes: GroupCommit<JournalWrite>;
  /** The fleet's row number in the database. */
  readonly fleet: number;
  /** The claiming process. */
  readonly owner: string;
  readonly now: () => number;
}

/** The queue of a fleet that one process runs, stored in the journal. */
export class JournalQueue implements FleetQueue {
  readonly #options: JournalQueueOptions;
  readonly #streams: StreamStore;
  /** Items whose streams were recorded with their intents. */
  readonly #printed = new Set<number>();

  constructor(options: JournalQueueOptions) {
    this.#options = options;
    this.#streams = new StreamStore(options.db, options.fleet);
  }

  async claim(count: number, newAttempt: () => NewAttempt): Promise<Claim> {
    return await this.#add((): Claim => {
      const fleet = this.#standing();
      if (fleet !== "running") return { items: [], nextAtMs: null, elsewhere: 0, fleet };
      const nowMs = this.#now();
      const items = this.#due(nowMs, Math.min(count, MAX_CLAIM)).map((due) => this.#begin(due, newAttempt()));
      return { items, nextAtMs: this.#nextAfter(nowMs), elsewhere: 0, fleet };
    });
  }

  async begin(index: number, attempt: number, { result, cacheKey, streams }: IntendedSettlement): Promise<Taken> {
    const { db, fleet } = this.#options;
    const { json, isWhole } = boundedResult(result);
    const [stdout, stderr] =
      streams === null ? NOTHING : this.#streams.encoded(streams, isWhole ? result.output : null);
    const begin = (): Taken => {
      if (!this.#isOwner()) return this.#takenFrom(index, attempt);
      const begun = db.run(
        `INSERT OR REPLACE INTO intents (item, json, cache_key, printed, stdout, stderr)
         SELECT id, ?, ?, ?, ?, ? FROM items WHERE fleet = ? AND position = ? AND state = 'running' AND attempt = ?`,
        ...[json, isWhole ? cacheKey : null, streams === null ? 0 : 1, stdout, stderr, fleet, index, attempt],
      );
      return begun === 1 ? { ok: true } : this.#fencedOff(index, attempt);
    };
    const taken = await this.#add(begin, true);
    if (taken.ok && streams !== null) this.#printed.add(index);
    return taken;
  }

  async settle(index: number, attempt: number, { result, cacheKey, streams }: Settlement): Promise<Taken> {
    const { db, fleet } = this.#options;
    const failed = isFailure(result.status) ? 1 : 0;
    const code = result.error?.code ?? "";
    const endedAt = msOf(result.endedAt);
    const { json, isWhole } = boundedResult(result);
    // A cached result must be the same as a run's result, so a cut one is not used.
    const foundBy = isWhole ? cacheKey : null;
    const cause = causeOf(result);
    const isPrinted = this.#printed.delete(index);
    const printed =
      streams === null || isPrinted ? NOTHING : this.#streams.encoded(streams, isWhole ? result.output : null);
    return await this.#add((): Taken => {
      if (!this.#isOwner()) return this.#takenFrom(index, attempt);
      const item = db.get<{ id: number; earlier: number }>(
        `UPDATE items SET state = 'done', status = ?, code = ?, failed = ?, ended_at = ?, duration_ms = ?, cache_key = ?,
           cause = ?, cell = NULL, owner = NULL
         WHERE fleet = ? AND position = ? AND state = 'running' AND attempt = ? RETURNING id, earlier`,
        ...[result.status, code, failed, endedAt, result.durationMs],
        ...[foundBy, cause, fleet, index, attempt],
      );
      if (item === undefined) return this.#fencedOff(index, attempt);
      db.run("INSERT OR REPLACE INTO results (item, json) VALUES (?, ?)", item.id, json);
      const begun = db.get<Begun>("DELETE FROM intents WHERE item = ? RETURNING printed, stdout, stderr", item.id);
      const streamed = begun?.printed === 1 ? ([begun.stdout, begun.stderr] as const) : printed;
      this.#streams.keep(item.id, streamed, item.earlier === 0);
      this.#tally(result.status, code, failed, 1);
      return { ok: true };
    });
  }

  async requeue(
    index: number,
    attempt: number,
    notBeforeMs: number,
    why: "failed" | "withdrawn" = "failed",
  ): Promise<Taken> {
    const { db, fleet } = this.#options;
    return await this.#add((): Taken => {
      if (!this.#isOwner()) return this.#takenFrom(index, attempt);
      const changed = db.run(
        `UPDATE items SET state = 'queued', not_before = ?, run = NULL, cell = NULL, owner = NULL, earlier = earlier + ?
         WHERE fleet = ? AND position = ? AND state = 'running' AND attempt = ?
           AND NOT EXISTS (SELECT 1 FROM intents WHERE item = items.id)`,
        ...[Math.max(Math.ceil(notBeforeMs), AT_ONCE), why === "withdrawn" ? 1 : 0, fleet, index, attempt],
      );
      return changed === 1 ? { ok: true } : this.#fencedOff(index, attempt);
    });
  }

  async counts(): Promise<ItemCounts> {
    const { db, fleet } = this.#options;
    return countsOf(db, fleet);
  }

  async cancelQueued(why: string): Promise<number> {
    const { db, writes, fleet } = this.#options;
    await writes.flushed();
    // The state changes first, so that nothing is claimed between the chunks.
    db.durably(() =>
      db.run(
        "UPDATE fleets SET state = 'cancelled', why = ? WHERE id = ? AND state IN ('running', 'paused')",
        why,
        fleet,
      ),
    );
    if (this.#row().state !== "cancelled") return 0;
    let cancelled = 0;
    for (;;) {
      const some = db.transaction(() => this.#cancelSome());
      if (some === 0) return cancelled;
      cancelled += some;
      await turn();
    }
  }

  #add<T>(write: () => T, isDurable = false): Promise<T> {
    return this.#options.writes.add<T>({ write, isDurable });
  }

  #cancelSome(): number {
    const { db, fleet, now } = this.#options;
    const kept = this.#keepSome();
    if (kept > 0) return kept;
    const some = db.run(
      `UPDATE items SET state = 'done', status = 'cancelled', code = 'cancelled', ended_at = ?, duration_ms = 0
       WHERE id IN (SELECT id FROM items WHERE fleet = ? AND state = 'queued' LIMIT ?)`,
      ...[now(), fleet, CANCEL_CHUNK],
    );
    if (some > 0) this.#tally("cancelled", "cancelled", 0, some);
    return some;
  }

  /** Items that wait to be retried: their earlier results count again. */
  #keepSome(): number {
    const { db, fleet } = this.#options;
    const kept = db.all<{ status: string; code: string; failed: number }>(
      `UPDATE items SET state = 'done'
       WHERE id IN (SELECT id FROM items WHERE fleet = ? AND state = 'queued' AND status IS NOT NULL LIMIT ?)
       RETURNING status, code, failed`,
      ...[fleet, CANCEL_CHUNK],
    );
    for (const { status, code, failed } of kept) this.#tally(status, code, failed, 1);
    return kept.length;
  }

  #standing(): Claim["fleet"] {
    const { state, owner } = this.#row();
    if (state === "running") return owner === this.#options.owner ? "running" : "taken";
    if (state === "loading") throw new Error("the items of this fleet are not loaded yet");
    return state;
  }

  /** If the next item waits longer than any does, the wall clock was set back: then that item's time has come. */
  #now(): number {
    const nowMs = Math.max(this.#options.now(), AT_ONCE);
    const nextMs = this.#nextAfter(nowMs);
    return nextMs !== null && nextMs - nowMs > LONGEST_DELAY_MS ? nextMs : nowMs;
  }

  #due(nowMs: number, count: number): Due[] {
    const { db, fleet } = this.#options;
    return db.all<Due>(
      `SELECT items.id, attempt, earlier, json FROM items JOIN requests ON requests.item = items.id
       WHERE fleet = ? AND state = 'queued' AND not_before <= ? ORDER BY not_before, position LIMIT ?`,
      ...[fleet, nowMs, count],
    );
  }

  #begin({ id, attempt, earlier, json }: Due, { run, cell }: NewAttempt): ClaimedItem {
    const { db, owner } = this.#options;
    db.run(
      "UPDATE items SET state = 'running', attempt = ?, run = ?, cell = ?, owner = ? WHERE id = ?",
      ...[attempt + 1, run, cell, owner, id],
    );
    return { request: JSON.parse(json) as ItemRequest, attempt: attempt + 1, earlier, run, cell };
  }

  #nextAfter(nowMs: number): number | null {
    const { db, fleet } = this.#options;
    const next = db.get<{ not_before: number }>(
      "SELECT not_before FROM items WHERE fleet = ? AND state = 'queued' AND not_before > ? ORDER BY not_before LIMIT 1",
      ...[fleet, nowMs],
    );
    return next?.not_before ?? null;
  }

  #tally(status: string, code: string, failed: number, count: number): void {
    const { db, fleet } = this.#options;
    db.run(
      `INSERT INTO tallies (fleet, status, code, failed, count) VALUES (?, ?, ?, ?, ?)
       ON CONFLICT (fleet, status, code) DO UPDATE SET count = count + excluded.count`,
      ...[fleet, status, code, failed, count],
    );
  }

  #fencedOff(index: number, attempt: number): Taken {
    const { db, fleet } = this.#options;
    const item = db.get<{ state: string; attempt: number }>(
      "SELECT state, attempt FROM items WHERE fleet = ? AND position = ?",
      ...[fleet, index],
    );
    if (item === undefined) throw new Error(`the fleet has no item ${index}`);
    return fencedOff(index, attempt, item);
  }

  /** Asked in the transaction of each write: another process may have found that this one has ended. */
  #isOwner(): boolean {
    return this.#row().owner === this.#options.owner;
  }

  #takenFrom(index: number, attempt: number): Taken {
    const { db, fleet } = this.#options;
    const inherited = db.get(
      `SELECT 1 FROM items WHERE fleet = ? AND position = ? AND attempt = ?
         AND (state = 'done' OR EXISTS (SELECT 1 FROM intents WHERE item = items.id))`,
      ...[fleet, index, attempt],
    );
    return takenFrom(index, attempt, inherited !== undefined);
  }

  #row(): Pick<FleetRow, "owner" | "state"> {
    const { db, fleet } = this.#options;
    const row = db.get<Pick<FleetRow, "owner" | "state">>("SELECT state, owner FROM fleets WHERE id = ?", fleet);
    if (row === undefined) throw new Error("the fleet was removed from the journal");
    return row;
  }
}

/** A run that did not print. */
const NOTHING = [null, null] as const;

interface Begun {
  readonly printed: number;
  readonly stdout: Uint8Array | null;
  readonly stderr: Uint8Array | null;
}

interface Due {
  readonly id: number;
  readonly attempt: number;
  readonly earlier: number;
  readonly json: string;
}
