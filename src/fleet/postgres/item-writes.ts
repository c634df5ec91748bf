import type { Taken } from "../model/queue.ts";
import type { Statement } from "./connection.ts";
import type { Answer } from "./group-commit.ts";
import type { Scope } from "./scope.ts";
import { type Answers, AT_ONCE, type Ending, type ItemWrite, type Step, type WriteOf } from "./write.ts";

/** One statement for each kind of write. Those that changed nothing get no answer. */
export function itemSteps(scope: Scope, fleet: number, wave: readonly ItemWrite[], answers: Answers): Step[] {
  const requeues = wave.filter((write) => write.kind === "requeue");
  const begins = wave.filter((write) => write.kind === "begin");
  const settles = wave.filter((write) => write.kind === "settle");
  const statements = [
    ...(requeues.length === 0 ? [] : [requeued(scope, fleet, requeues)]),
    ...(begins.length === 0 ? [] : [begun(scope, fleet, begins)]),
    ...(settles.length === 0 ? [] : [settled(scope, fleet, settles)]),
  ];
  const byIndex = new Map(wave.map((write) => [write.index, write]));
  const done: Step["done"] = (rows) => {
    for (const { position } of rows as readonly { readonly position: number }[]) {
      const write = byIndex.get(position);
      if (write !== undefined) answers.set(write, TAKEN);
    }
  };
  return statements.map((statement) => ({ statement, done }));
}

const TAKEN: Answer = { value: { ok: true } satisfies Taken };

function requeued(scope: Scope, fleet: number, writes: readonly WriteOf<"requeue">[]): Statement {
  return {
    text: REQUEUE,
    values: [
      ...[fleet, writes.map(({ index }) => index), writes.map(({ attempt }) => attempt)],
      ...[writes.map(({ waitMs }) => waitMs), scope.now(), AT_ONCE, scope.self],
      writes.map(({ isWithdrawn }) => (isWithdrawn ? 1 : 0)),
    ],
  };
}

function begun({ self }: Scope, fleet: number, writes: readonly WriteOf<"begin">[]): Statement {
  return {
    text: BEGIN,
    values: [
      ...[fleet, writes.map(({ index }) => index), writes.map(({ attempt }) => attempt)],
      ...[writes.map((write) => write.begun.json), writes.map((write) => write.begun.cacheKey)],
      ...[writes.map((write) => write.begun.isPrinted), writes.map((write) => write.begun.stdout)],
      ...[writes.map((write) => write.begun.stderr), self],
    ],
  };
}

function settled({ self }: Scope, fleet: number, writes: readonly WriteOf<"settle">[]): Statement {
  const column = <T>(of: (ending: Ending) => T): T[] => writes.map(({ ending }) => of(ending));
  return {
    text: SETTLE,
    values: [
      ...[fleet, writes.map(({ index }) => index), writes.map(({ attempt }) => attempt)],
      ...[column(({ status }) => status), column(({ code }) => code), column(({ failed }) => failed)],
      ...[column(({ endedAt }) => endedAt), column(({ durationMs }) => durationMs), column(({ cacheKey }) => cacheKey)],
      ...[column(({ cause }) => cause), column(({ json }) => json)],
      ...[column(({ stdout }) => stdout), column(({ stderr }) => stderr), column(({ machine }) => machine)],
      self,
    ],
  };
}

/**
 * Written so that items are found by their positions: PostgreSQL would take the index of active items for smaller, but it has every
 * change of state until it is vacuumed.
 */
const stateIs = (states: string): string => `(i.state || '') IN (${states})`;

/**
 * The fleet's row is locked, so that no other process can take the fleet over before the write is committed: of two that believe to own
 * it, one writes. A lease that has ended and that no process used harms nothing, so it is not asked for here.
 */
const owned = (self: string): string =>
  `owned AS MATERIALIZED (SELECT 1 FROM corral.fleets WHERE id = $1 AND owner = ${self} FOR SHARE)`;
const IS_OWNED = "EXISTS (SELECT 1 FROM owned)";

const REQUEUE = `
  WITH ${owned("$7")},
  asked AS (SELECT * FROM unnest($2::int[], $3::int[], $4::float8[], $8::int[])
    AS asked (position, attempt, wait, withdrawn)),
  queued AS (UPDATE corral.items i SET state = 'queued', run = NULL, cell = NULL, owner = NULL, earlier = i.earlier + withdrawn,
    not_before = CASE WHEN wait <= 0 THEN $6 ELSE greatest(ceil(coalesce($5::bigint, corral.now_ms()) + wait), $6) END
    FROM asked WHERE ${IS_OWNED} AND i.fleet = $1 AND i.position = asked.position AND i.attempt = asked.attempt
      AND ${stateIs("'running', 'delivered'")} RETURNING i.position),
  gone AS (DELETE FROM corral.deliveries d USING queued WHERE d.fleet = $1 AND d.position = queued.position)
  SELECT position FROM queued`;

const BEGIN = `
  WITH ${owned("$9")}, asked AS (SELECT * FROM unnest($2::int[], $3::int[], $4::text[], $5::text[], $6::bool[], $7::bytea[], $8::bytea[])
    AS asked (position, attempt, json, cache_key, is_printed, stdout, stderr)),
  begun AS (UPDATE corral.items i SET state = 'applying' FROM asked
    WHERE ${IS_OWNED} AND i.fleet = $1 AND i.position = asked.position AND i.attempt = asked.attempt
      AND ${stateIs("'running', 'delivered', 'applying'")} RETURNING i.position),
  kept AS (INSERT INTO corral.intents (fleet, position, json, cache_key, is_printed, stdout, stderr)
    SELECT $1, position, json, cache_key, is_printed, stdout, stderr FROM asked JOIN begun USING (position)
    ON CONFLICT (fleet, position) DO UPDATE SET json = excluded.json, cache_key = excluded.cache_key,
      is_printed = excluded.is_printed, stdout = excluded.stdout, stderr = excluded.stderr)
  SELECT position FROM begun`;

/** The streams are those of the intent, if it has them. */
const SETTLE = `
  WITH ${owned("$15")}, asked AS (
    SELECT * FROM unnest($2::int[], $3::int[], $4::text[], $5::text[], $6::int[], $7::bigint[], $8::float8[], $9::text[],
      $10::text[], $11::text[], $12::bytea[], $13::bytea[], $14::text[])
    AS asked (position, attempt, status, code, failed, ended_at, duration_ms, cache_key, cause, json, stdout, stderr, machine)),
  ended AS (
    UPDATE corral.items i SET state = 'done', status = a.status, code = a.code, failed = a.failed, ended_at = a.ended_at,
      duration_ms = a.duration_ms, cache_key = a.cache_key, cause = a.cause, machine = a.machine, cell = NULL, owner = NULL
    FROM asked a WHERE ${IS_OWNED} AND i.fleet = $1 AND i.position = a.position AND i.attempt = a.attempt
      AND ${stateIs("'running', 'delivered', 'applying'")}
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
