import type { ItemRequest } from "../model/item.ts";
import { type Claim, type ClaimedItem, LONGEST_DELAY_MS, QueueError, type Taken } from "../model/queue.ts";
import { fencedOff, takenFrom } from "../stored/fenced-off.ts";
import type { Scope, Statement } from "./connection.ts";
import { ACTIVE, outerState } from "./fleets.ts";
import {
  AT_ONCE,
  type GroupStatement,
  type ItemWrite,
  type SettledColumns,
  type Write,
  type WriteOf,
  type WriteOutcome,
  type WriteOutcomes,
} from "./group-commit.ts";

/** One statement for each kind of write. Those that changed nothing get no answer. */
function itemSteps(scope: Scope, fleet: number, wave: readonly ItemWrite[], answers: WriteOutcomes): GroupStatement[] {
  const requeues = wave.filter((write) => write.kind === "requeue");
  const begins = wave.filter((write) => write.kind === "begin");
  const settles = wave.filter((write) => write.kind === "settle");
  const statements = [
    ...(requeues.length === 0 ? [] : [requeued(scope, fleet, requeues)]),
    ...(begins.length === 0 ? [] : [begun(scope, fleet, begins)]),
    ...(settles.length === 0 ? [] : [settled(scope, fleet, settles)]),
  ];
  const byIndex = new Map(wave.map((write) => [write.index, write]));
  const done: GroupStatement["done"] = (rows) => {
    for (const { position } of rows as readonly { readonly position: number }[]) {
      const write = byIndex.get(position);
      if (write !== undefined) answers.set(write, TAKEN);
    }
  };
  return statements.map((statement) => ({ statement, done }));
}

const TAKEN: WriteOutcome = { value: { ok: true } satisfies Taken };

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
  const column = <T>(of: (ending: SettledColumns) => T): T[] => writes.map(({ ending }) => of(ending));
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

/** Claims for all of these together, in their order. */
function claimStep(
  scope: Scope,
  fleet: number,
  claims: readonly WriteOf<"claim">[],
  { answers, again }: { readonly answers: WriteOutcomes; readonly again: boolean },
): GroupStatement {
  const attempts = claims.flatMap((claim) => claim.attempts);
  return {
    statement: {
      text: CLAIM,
      values: [
        ...[fleet, scope.now(), attempts.length, scope.self],
        ...[attempts.map(({ run }) => run), attempts.map(({ cell }) => cell), again],
      ],
    },
    done(rows) {
      const answerOf = answersFrom(rows as readonly ClaimRow[], scope);
      let from = 0;
      for (const claim of claims) {
        answers.set(claim, answerOf(from, claim.attempts.length));
        from += claim.attempts.length;
      }
    },
  };
}

type AnswerOf = (from: number, count: number) => WriteOutcome;

function answersFrom(rows: readonly ClaimRow[], { self, now }: Scope): AnswerOf {
  const [first] = rows;
  const failed = (error: Error): AnswerOf => {
    return () => ({ error });
  };
  if (first === undefined) return failed(new QueueError("the fleet was removed from the queue"));
  if (first.state === "loading") return failed(new Error("the items of this fleet are not loaded yet"));
  const { elsewhere, next } = first;
  const fleet = first.state === "running" && first.owner !== self ? "taken" : first.state;
  // The caller compares it with its own clock.
  const nextAtMs = fleet !== "running" || next === null ? null : next - first.now + (now() ?? Date.now());
  const items = rows.flatMap(({ json, attempt, earlier, run, cell }): ClaimedItem[] =>
    json === null ? [] : [{ request: JSON.parse(json) as ItemRequest, attempt, earlier, run, cell }],
  );
  return (from, count) => {
    return { value: { items: items.slice(from, from + count), nextAtMs, fleet, elsewhere } satisfies Claim };
  };
}

interface ClaimRow extends Omit<ClaimedItem, "request"> {
  readonly state: "loading" | Claim["fleet"];
  readonly owner: string | null;
  readonly now: number;
  readonly next: number | null;
  readonly elsewhere: number;
  /** Null if no item was claimed; then there is one row. */
  readonly json: string | null;
}

const nextAfter = (time: string): string =>
  `(SELECT not_before FROM corral.items WHERE fleet = $1 AND state = 'queued' AND not_before > ${time}
    ORDER BY not_before LIMIT 1)`;

/**
 * The fleet's row is locked first, so that no other process can take the fleet over before these claims are committed. If the next
 * item waits longer than any does, the clock was set back: then that item's time has come. What an earlier try claimed counts: its
 * runs are known by their names. Items that are locked are found again by their places (docs/architecture.md, fact: plans-without-statistics).
 */
const CLAIM = `
  WITH standing AS MATERIALIZED (
    SELECT state, owner, needs IS NOT NULL AS is_shared, greatest(coalesce($2::bigint, corral.now_ms()), ${AT_ONCE}) AS now
    FROM corral.fleets WHERE id = $1 FOR SHARE),
  waiting AS MATERIALIZED (SELECT ${nextAfter("(SELECT now FROM standing)")} AS next),
  clock AS MATERIALIZED (
    SELECT CASE WHEN w.next - s.now > ${LONGEST_DELAY_MS} THEN w.next ELSE s.now END AS now
    FROM standing s CROSS JOIN waiting w WHERE s.state = 'running' AND s.owner = $4),
  attempts AS (SELECT * FROM unnest($5::text[], $6::text[]) WITH ORDINALITY AS attempts (run, cell, n)),
  before AS (
    SELECT i.position, i.attempt, i.earlier, a.run, a.cell, a.n FROM attempts a JOIN corral.items i USING (run)
    WHERE $7 AND i.fleet = $1 AND i.state = 'running' AND i.owner = $4),
  free AS (SELECT run, cell, row_number() OVER (ORDER BY n) AS n FROM attempts WHERE run NOT IN (SELECT run FROM before)),
  due AS (
    SELECT place, row_number() OVER (ORDER BY not_before, position) AS n FROM (
      SELECT ctid AS place, position, not_before FROM corral.items
      WHERE fleet = $1 AND state = 'queued' AND not_before <= (SELECT now FROM clock)
      ORDER BY not_before, position LIMIT $3 FOR UPDATE SKIP LOCKED) AS first),
  taken AS (
    UPDATE corral.items i SET state = 'running', attempt = i.attempt + 1, run = free.run, cell = free.cell, owner = $4
    FROM due JOIN free USING (n) WHERE i.ctid = due.place
    RETURNING i.position, i.attempt, i.earlier, i.run, i.cell, free.n),
  claimed AS (
    SELECT n, attempt, earlier, run, cell,
      (SELECT r.json FROM corral.requests r WHERE r.fleet = $1 AND r.position = c.position) AS json
    FROM (SELECT * FROM before UNION ALL SELECT * FROM taken) AS c)
  SELECT s.state, s.owner, s.now,
    CASE WHEN w.next = (SELECT now FROM clock) THEN ${nextAfter("(SELECT now FROM clock)")} ELSE w.next END AS next,
    CASE WHEN s.is_shared THEN (
      SELECT count(*)::int FROM corral.items WHERE fleet = $1 AND ${ACTIVE} AND state IN ('away', 'delivered')
    ) ELSE 0 END AS elsewhere, c.attempt, c.earlier, c.run, c.cell, c.json
  FROM standing s CROSS JOIN waiting w LEFT JOIN claimed c ON true ORDER BY c.n`;

/**
 * Commits writes together, in one round trip. Those to different items do not depend on each other, so each kind is one statement; a
 * second write to the same item is in a later one. Claims come last: they see what the others left.
 */
export async function commitWrites(scope: Scope, writes: readonly Write[]): Promise<WriteOutcome[]> {
  const answers: WriteOutcomes = new Map();
  let steps: readonly GroupStatement[] = [];
  let isAgain = false;
  const rows = await scope.db.together((again) => {
    isAgain = again;
    steps = stepsOf(scope, writes, answers, again);
    return steps.map(({ statement }) => statement);
  });
  for (const [at, step] of steps.entries()) step.done(rows[at] ?? []);
  const refused = writes.filter((write): write is ItemWrite => write.kind !== "claim" && !answers.has(write));
  await explain(scope, refused, isAgain, answers);
  return writes.map((write) => answers.get(write) ?? { error: new Error("a write has no answer") });
}

function stepsOf(scope: Scope, writes: readonly Write[], answers: WriteOutcomes, again: boolean): GroupStatement[] {
  const steps: GroupStatement[] = [];
  for (const fleet of new Set(writes.map((write) => write.fleet))) {
    const own = writes.filter((write) => write.fleet === fleet);
    const items = own.filter((write) => write.kind !== "claim");
    for (const wave of wavesOf(items)) steps.push(...itemSteps(scope, fleet, wave, answers));
    const claims = own.filter((write) => write.kind === "claim");
    if (claims.length > 0) steps.push(claimStep(scope, fleet, claims, { answers, again }));
  }
  return steps;
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

/** Why writes changed nothing; or that they did, before the connection was lost. */
async function explain(
  { db, self }: Scope,
  refused: readonly ItemWrite[],
  isAgain: boolean,
  answers: WriteOutcomes,
): Promise<void> {
  if (refused.length === 0) return;
  try {
    const rows = await db.query<{
      fleet: number;
      position: number;
      state: string;
      attempt: number;
      run: string | null;
      owned: boolean;
    }>(
      `SELECT i.fleet, i.position, i.state, i.attempt, i.run, f.owner IS NOT DISTINCT FROM $3 AS owned
       FROM corral.items i JOIN corral.fleets f ON f.id = i.fleet
       JOIN unnest($1::bigint[], $2::int[]) AS asked (fleet, position) USING (fleet, position)`,
      [refused.map(({ fleet }) => fleet), refused.map(({ index }) => index), self],
    );
    const items = new Map(rows.map((row) => [`${row.fleet} ${row.position}`, row]));
    for (const write of refused) {
      const item = items.get(`${write.fleet} ${write.index}`);
      answers.set(write, item === undefined ? unknown(write) : { value: whyRefused(write, item, isAgain) });
    }
  } catch (error) {
    // The others are committed.
    for (const write of refused) answers.set(write, { error });
  }
}

function whyRefused(
  write: ItemWrite,
  item: { readonly state: string; readonly attempt: number; readonly run: string | null; readonly owned: boolean },
  isAgain: boolean,
): Taken {
  if (!item.owned) return takenFrom(write.index, write.attempt, isInherited(write, item));
  const isRecorded = isAgain && write.kind === "settle" && item.state === "done" && item.attempt === write.attempt;
  if (isRecorded && item.run === write.ending.run) return { ok: true };
  return fencedOff(write.index, write.attempt, { ...item, state: outerState(item.state) });
}

/** An item that this process ran itself, and that had begun nothing, runs again as another attempt. */
function isInherited({ attempt }: ItemWrite, item: { readonly state: string; readonly attempt: number }): boolean {
  return item.attempt === attempt && item.state !== "queued" && item.state !== "running";
}

function unknown({ index }: ItemWrite): WriteOutcome {
  return { error: new Error(`the fleet has no item ${index}`) };
}
