import type { ItemRequest } from "../model/item.ts";
import { type Claim, type ClaimedItem, LONGEST_DELAY_MS, type NewAttempt, type Taken } from "../model/queue.ts";
import { QueueError } from "../model/queue-error.ts";
import { fencedOff } from "../stored/fenced-off.ts";
import type { Statements } from "./connection.ts";
import type { Place } from "./place.ts";
import { ACTIVE, outerState } from "./states.ts";
import type { Answer } from "./turns.ts";

/** What a settled item leaves behind, ready for its columns. */
export interface Ending {
  readonly run: string | null;
  readonly status: string;
  readonly code: string;
  readonly failed: number;
  readonly endedAt: number;
  readonly durationMs: number;
  readonly cacheKey: string | null;
  readonly cause: string | null;
  readonly json: string;
  readonly stdout: Buffer | null;
  readonly stderr: Buffer | null;
}

export interface Begun {
  readonly json: string;
  readonly cacheKey: string | null;
  readonly isPrinted: boolean;
  readonly stdout: Buffer | null;
  readonly stderr: Buffer | null;
}

/** A write to the queue of the fleet with this number. */
export type Write = { readonly fleet: number } & (
  | { readonly kind: "claim"; readonly attempts: readonly NewAttempt[] }
  | { readonly kind: "settle"; readonly index: number; readonly attempt: number; readonly ending: Ending }
  | { readonly kind: "begin"; readonly index: number; readonly attempt: number; readonly begun: Begun }
  /** `waitMs`: from now. */
  | { readonly kind: "requeue"; readonly index: number; readonly attempt: number; readonly waitMs: number }
);
type Of<Kind extends Write["kind"]> = Extract<Write, { kind: Kind }>;
type ItemWrite = Exclude<Write, Of<"claim">>;

/** `not_before` of a new item is 0, so that new items sort before retries. */
export const AT_ONCE = 1;

/**
 * Commits writes together. Those to different items do not depend on each other, so each kind is one statement; a second write to
 * the same item is in a later one. Claims come last: they see what the others left.
 */
export async function commitWrites(place: Place, writes: readonly Write[]): Promise<Answer[]> {
  return await place.db.transaction(async (within, again) => {
    const answers = new Map<Write, Answer>();
    for (const fleet of new Set(writes.map((write) => write.fleet))) {
      const own = writes.filter((write) => write.fleet === fleet);
      const turn = new Turn(place, within, fleet, again);
      for (const wave of wavesOf(own.filter((write) => write.kind !== "claim")))
        for (const [write, answer] of await turn.change(wave)) answers.set(write, answer);
      const claims = own.filter((write) => write.kind === "claim");
      if (claims.length > 0) for (const [write, answer] of await turn.claim(claims)) answers.set(write, answer);
    }
    return writes.map((write) => answers.get(write) ?? { error: new Error("a write has no answer") });
  });
}

/** Each wave has an item once. */
function wavesOf(writes: readonly ItemWrite[]): ItemWrite[][] {
  const waves: { readonly items: Set<number>; readonly writes: ItemWrite[] }[] = [];
  for (const write of writes) {
    let wave = waves.at(-1);
    if (wave === undefined || wave.items.has(write.index)) {
      wave = { items: new Set(), writes: [] };
      waves.push(wave);
    }
    wave.items.add(write.index);
    wave.writes.push(write);
  }
  return waves.map((wave) => wave.writes);
}

/** The writes to one fleet in one transaction. */
class Turn {
  readonly #place: Place;
  readonly #db: Statements;
  readonly #fleet: number;
  /** The same may have been committed before: what is as it was to become is taken. */
  readonly #again: boolean;

  constructor(place: Place, db: Statements, fleet: number, again: boolean) {
    this.#place = place;
    this.#db = db;
    this.#fleet = fleet;
    this.#again = again;
  }

  async change(wave: readonly ItemWrite[]): Promise<[Write, Answer][]> {
    const changed = new Set<number>([
      ...(await this.#requeue(wave.filter((write) => write.kind === "requeue"))),
      ...(await this.#begin(wave.filter((write) => write.kind === "begin"))),
      ...(await this.#settle(wave.filter((write) => write.kind === "settle"))),
    ]);
    const refused = wave.filter(({ index }) => !changed.has(index));
    const reasons = refused.length === 0 ? new Map() : await this.#reasons(refused);
    return wave.map((write) => [write, changed.has(write.index) ? TAKEN : reasons.get(write)]);
  }

  async claim(claims: readonly Of<"claim">[]): Promise<[Write, Answer][]> {
    const { fleet, now, next, elsewhere } = await this.#standing();
    if (fleet !== "running") {
      const none: Claim = { items: [], nextAtMs: null, fleet, elsewhere };
      return claims.map((claim) => [claim, { value: none }]);
    }
    // If the next item waits longer than any does, the clock was set back: then that item's time has come.
    const isBack = next !== null && next - now > LONGEST_DELAY_MS;
    const nowMs = isBack ? next : now;
    const items = await this.#due(
      nowMs,
      claims.flatMap(({ attempts }) => attempts),
    );
    const later = isBack ? await this.#nextAfter(nowMs) : next;
    // The caller compares it with its own clock.
    const nextAtMs = later === null ? null : later - now + (this.#place.now() ?? Date.now());
    let from = 0;
    return claims.map((claim) => {
      const own = items.slice(from, from + claim.attempts.length);
      from += own.length;
      return [claim, { value: { items: own, nextAtMs, fleet, elsewhere } satisfies Claim }];
    });
  }

  async #requeue(writes: readonly Of<"requeue">[]): Promise<number[]> {
    if (writes.length === 0) return [];
    const rows = await this.#db.query<{ position: number }>(
      `WITH asked AS (SELECT * FROM unnest($2::int[], $3::int[], $4::float8[]) AS asked (position, attempt, wait)),
       gone AS (DELETE FROM corral.deliveries d USING asked
         WHERE d.fleet = $1 AND d.position = asked.position AND d.attempt = asked.attempt)
       UPDATE corral.items i SET state = 'queued', run = NULL, cell = NULL, owner = NULL,
         not_before = CASE WHEN wait <= 0 THEN $6 ELSE greatest(ceil(coalesce($5::bigint, corral.now_ms()) + wait), $6) END
       FROM asked WHERE i.fleet = $1 AND i.position = asked.position AND i.attempt = asked.attempt
         AND i.state IN ('running', 'delivered') RETURNING i.position`,
      [
        ...[this.#fleet, writes.map(({ index }) => index), writes.map(({ attempt }) => attempt)],
        ...[writes.map(({ waitMs }) => waitMs), this.#place.now(), AT_ONCE],
      ],
    );
    return rows.map(({ position }) => position);
  }

  async #begin(writes: readonly Of<"begin">[]): Promise<number[]> {
    if (writes.length === 0) return [];
    const rows = await this.#db.query<{ position: number }>(
      `WITH asked AS (SELECT * FROM unnest($2::int[], $3::int[], $4::text[], $5::text[], $6::bool[], $7::bytea[], $8::bytea[])
         AS asked (position, attempt, json, cache_key, is_printed, stdout, stderr)),
       begun AS (UPDATE corral.items i SET state = 'applying' FROM asked
         WHERE i.fleet = $1 AND i.position = asked.position AND i.attempt = asked.attempt
           AND i.state IN ('running', 'delivered', 'applying') RETURNING i.position),
       kept AS (INSERT INTO corral.intents (fleet, position, json, cache_key, is_printed, stdout, stderr)
         SELECT $1, position, json, cache_key, is_printed, stdout, stderr FROM asked JOIN begun USING (position)
         ON CONFLICT (fleet, position) DO UPDATE SET json = excluded.json, cache_key = excluded.cache_key,
           is_printed = excluded.is_printed, stdout = excluded.stdout, stderr = excluded.stderr)
       SELECT position FROM begun`,
      [
        ...[this.#fleet, writes.map(({ index }) => index), writes.map(({ attempt }) => attempt)],
        ...[writes.map(({ begun }) => begun.json), writes.map(({ begun }) => begun.cacheKey)],
        ...[writes.map(({ begun }) => begun.isPrinted), writes.map(({ begun }) => begun.stdout)],
        writes.map(({ begun }) => begun.stderr),
      ],
    );
    return rows.map(({ position }) => position);
  }

  async #settle(writes: readonly Of<"settle">[]): Promise<number[]> {
    if (writes.length === 0) return [];
    const column = <T>(of: (ending: Ending) => T): T[] => writes.map(({ ending }) => of(ending));
    const rows = await this.#db.query<{ position: number }>(SETTLE, [
      ...[this.#fleet, writes.map(({ index }) => index), writes.map(({ attempt }) => attempt)],
      ...[column(({ status }) => status), column(({ code }) => code), column(({ failed }) => failed)],
      ...[column(({ endedAt }) => endedAt), column(({ durationMs }) => durationMs), column(({ cacheKey }) => cacheKey)],
      ...[column(({ cause }) => cause), column(({ json }) => json)],
      ...[column(({ stdout }) => stdout), column(({ stderr }) => stderr)],
    ]);
    return rows.map(({ position }) => position);
  }

  /** Why writes changed nothing; or that they did, before the connection was lost. */
  async #reasons(refused: readonly ItemWrite[]): Promise<Map<ItemWrite, Answer>> {
    const rows = await this.#db.query<{ position: number; state: string; attempt: number; run: string | null }>(
      "SELECT position, state, attempt, run FROM corral.items WHERE fleet = $1 AND position = ANY ($2::int[])",
      [this.#fleet, refused.map(({ index }) => index)],
    );
    const items = new Map(rows.map((row) => [row.position, row]));
    return new Map(
      refused.map((write): [ItemWrite, Answer] => {
        const item = items.get(write.index);
        if (item === undefined) return [write, { error: new Error(`the fleet has no item ${write.index}`) }];
        const isRecorded =
          this.#again && write.kind === "settle" && item.state === "done" && item.attempt === write.attempt;
        if (isRecorded && item.run === write.ending.run) return [write, TAKEN];
        return [write, { value: fencedOff(write.index, write.attempt, { ...item, state: outerState(item.state) }) }];
      }),
    );
  }

  /** The row is locked, so that no other process can take the fleet over before these claims are committed. */
  async #standing(): Promise<{ fleet: Claim["fleet"]; now: number; next: number | null; elsewhere: number }> {
    const [row] = await this.#db.query<StandingRow>(STANDING, [this.#fleet, this.#place.now()]);
    if (row === undefined) throw new QueueError("the fleet was removed from the queue");
    const { state, owner, now, next, elsewhere } = row;
    if (state === "loading") throw new Error("the items of this fleet are not loaded yet");
    const fleet = state === "running" && owner !== this.#place.self ? "taken" : state;
    return { fleet, now: Math.max(now, AT_ONCE), next, elsewhere };
  }

  async #due(nowMs: number, attempts: readonly NewAttempt[]): Promise<ClaimedItem[]> {
    const rows = await this.#db.query<DueRow>(CLAIM, [
      ...[this.#fleet, nowMs, attempts.length, this.#place.self],
      ...[attempts.map(({ run }) => run), attempts.map(({ cell }) => cell), this.#again],
    ]);
    return rows.map(({ json, ...item }) => ({ request: JSON.parse(json) as ItemRequest, ...item }));
  }

  async #nextAfter(nowMs: number): Promise<number | null> {
    const [row] = await this.#db.query<{ next: number | null }>(
      "SELECT min(not_before) AS next FROM corral.items WHERE fleet = $1 AND state = 'queued' AND not_before > $2",
      [this.#fleet, nowMs],
    );
    return row?.next ?? null;
  }
}

const TAKEN: Answer = { value: { ok: true } satisfies Taken };

interface StandingRow {
  readonly state: "loading" | Claim["fleet"];
  readonly owner: string | null;
  readonly now: number;
  readonly next: number | null;
  readonly elsewhere: number;
}

interface DueRow extends Omit<ClaimedItem, "request"> {
  readonly json: string;
}

const STANDING = `
  SELECT f.state, f.owner, n.now,
    (SELECT not_before FROM corral.items WHERE fleet = f.id AND state = 'queued' AND not_before > n.now
     ORDER BY not_before LIMIT 1) AS next,
    CASE WHEN f.needs IS NULL THEN 0 ELSE (
      SELECT count(*)::int FROM corral.items WHERE fleet = f.id AND ${ACTIVE} AND state IN ('away', 'delivered')
    ) END AS elsewhere
  FROM corral.fleets f, LATERAL (SELECT greatest(coalesce($2::bigint, corral.now_ms()), 1) AS now) n
  WHERE f.id = $1 FOR SHARE OF f`;

/** What an earlier try claimed counts: its runs are known by their names. */
const CLAIM = `
  WITH attempts AS (SELECT * FROM unnest($5::text[], $6::text[]) WITH ORDINALITY AS attempts (run, cell, n)),
  before AS (
    SELECT i.position, i.attempt, i.earlier, a.run, a.cell, a.n FROM attempts a JOIN corral.items i USING (run)
    WHERE $7 AND i.fleet = $1 AND i.state = 'running' AND i.owner = $4),
  free AS (SELECT run, cell, row_number() OVER (ORDER BY n) AS n FROM attempts WHERE run NOT IN (SELECT run FROM before)),
  due AS (
    SELECT position, row_number() OVER (ORDER BY not_before, position) AS n FROM (
      SELECT position, not_before FROM corral.items
      WHERE fleet = $1 AND state = 'queued' AND not_before <= $2
      ORDER BY not_before, position LIMIT $3 FOR UPDATE SKIP LOCKED) AS first),
  taken AS (
    UPDATE corral.items i SET state = 'running', attempt = i.attempt + 1, run = free.run, cell = free.cell, owner = $4
    FROM due JOIN free USING (n) WHERE i.fleet = $1 AND i.position = due.position
    RETURNING i.position, i.attempt, i.earlier, i.run, i.cell, free.n)
  SELECT attempt, earlier, run, cell, json
  FROM (SELECT * FROM before UNION ALL SELECT * FROM taken) AS claimed
  JOIN corral.requests r ON r.fleet = $1 AND r.position = claimed.position ORDER BY n, claimed.position`;

/** The streams are those of the intent, if it has them. */
const SETTLE = `
  WITH asked AS (
    SELECT * FROM unnest($2::int[], $3::int[], $4::text[], $5::text[], $6::int[], $7::bigint[], $8::float8[], $9::text[],
      $10::text[], $11::text[], $12::bytea[], $13::bytea[])
    AS asked (position, attempt, status, code, failed, ended_at, duration_ms, cache_key, cause, json, stdout, stderr)),
  ended AS (
    UPDATE corral.items i SET state = 'done', status = a.status, code = a.code, failed = a.failed, ended_at = a.ended_at,
      duration_ms = a.duration_ms, cache_key = a.cache_key, cause = a.cause, cell = NULL, owner = NULL
    FROM asked a WHERE i.fleet = $1 AND i.position = a.position AND i.attempt = a.attempt
      AND i.state IN ('running', 'delivered', 'applying')
    RETURNING i.position, i.earlier),
  begun AS (
    DELETE FROM corral.intents t USING ended WHERE t.fleet = $1 AND t.position = ended.position
    RETURNING t.position, t.is_printed, t.stdout, t.stderr),
  delivered AS (DELETE FROM corral.deliveries t USING ended WHERE t.fleet = $1 AND t.position = ended.position),
  kept AS (
    INSERT INTO corral.results (fleet, position, json) SELECT $1, position, json FROM asked JOIN ended USING (position)
    ON CONFLICT (fleet, position) DO UPDATE SET json = excluded.json),
  printed AS (
    SELECT position, earlier, CASE WHEN b.is_printed THEN b.stdout ELSE a.stdout END AS stdout,
      CASE WHEN b.is_printed THEN b.stderr ELSE a.stderr END AS stderr
    FROM asked a JOIN ended USING (position) LEFT JOIN begun b USING (position)),
  silent AS (
    DELETE FROM corral.streams t USING printed p
    WHERE t.fleet = $1 AND t.position = p.position AND p.earlier > 0 AND p.stdout IS NULL AND p.stderr IS NULL),
  said AS (
    INSERT INTO corral.streams (fleet, position, stdout, stderr)
    SELECT $1, position, stdout, stderr FROM printed WHERE stdout IS NOT NULL OR stderr IS NOT NULL
    ON CONFLICT (fleet, position) DO UPDATE SET stdout = excluded.stdout, stderr = excluded.stderr),
  tallied AS (
    INSERT INTO corral.tallies (fleet, status, code, failed, count)
    SELECT $1, status, code, failed, count(*) FROM asked JOIN ended USING (position) GROUP BY status, code, failed
    ON CONFLICT (fleet, status, code) DO UPDATE SET count = corral.tallies.count + excluded.count)
  SELECT position FROM ended`;
