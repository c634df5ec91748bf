import { filledIn, textBeside } from "../../platform/text-beside.ts";
import type { ItemRequest } from "../model/item.ts";
import {
  type Claim,
  type ClaimedItem,
  LONGEST_DELAY_MS,
  type NewAttempt,
  QueueError,
  type Taken,
} from "../model/queue.ts";
import { ACTIVE } from "../stored/fleet-reads.ts";
import type { WriteOutcome } from "../stored/group-commit.ts";
import { fencedOff, outerState, takenFrom } from "../stored/rows.ts";
import type { Rows, Scope, Statement } from "./connection.ts";

/** What a settled item leaves behind, ready for its columns. */
export interface SettledColumns {
  readonly run: string | null;
  readonly status: string;
  readonly code: string;
  readonly failed: number;
  readonly endedAt: number;
  readonly durationMs: number;
  readonly cacheKey: string | null;
  readonly cause: string | null;
  readonly machine: string | null;
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
  | { readonly kind: "settle"; readonly index: number; readonly attempt: number; readonly ending: SettledColumns }
  | { readonly kind: "begin"; readonly index: number; readonly attempt: number; readonly begun: Begun }
  /** `waitMs`: from now. */
  | {
      readonly kind: "requeue";
      readonly index: number;
      readonly attempt: number;
      readonly waitMs: number;
      readonly isWithdrawn: boolean;
    }
);
export type WriteOf<Kind extends Write["kind"]> = Extract<Write, { kind: Kind }>;
export type ItemWrite = Exclude<Write, WriteOf<"claim">>;

/** A statement that does some writes. `rows`: those that it returned. */
export interface GroupStatement {
  readonly statement: Statement;
  done(rows: Rows): void;
}

/** The answers of a group of writes, as they become known. */
export type WriteOutcomes = Map<Write, WriteOutcome>;

/** `not_before` of a new item is 0, so that new items sort before retries. */
export const AT_ONCE = 1;

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
      fleet,
      writes.map(({ index }) => index),
      writes.map(({ attempt }) => attempt),
      writes.map(({ waitMs }) => waitMs),
      scope.now(),
      AT_ONCE,
      scope.self,
      writes.map(({ isWithdrawn }) => (isWithdrawn ? 1 : 0)),
    ],
  };
}

function begun({ self }: Scope, fleet: number, writes: readonly WriteOf<"begin">[]): Statement {
  return {
    text: BEGIN,
    values: [
      fleet,
      writes.map(({ index }) => index),
      writes.map(({ attempt }) => attempt),
      writes.map((write) => write.begun.json),
      writes.map((write) => write.begun.cacheKey),
      writes.map((write) => write.begun.isPrinted),
      writes.map((write) => write.begun.stdout),
      writes.map((write) => write.begun.stderr),
      self,
    ],
  };
}

function settled({ self }: Scope, fleet: number, writes: readonly WriteOf<"settle">[]): Statement {
  const column = <T>(of: (ending: SettledColumns) => T): T[] => writes.map(({ ending }) => of(ending));
  return {
    text: SETTLE,
    values: [
      fleet,
      writes.map(({ index }) => index),
      writes.map(({ attempt }) => attempt),
      column(({ status }) => status),
      column(({ code }) => code),
      column(({ failed }) => failed),
      column(({ endedAt }) => endedAt),
      column(({ durationMs }) => durationMs),
      column(({ cacheKey }) => cacheKey),
      column(({ cause }) => cause),
      column(({ json }) => json),
      column(({ stdout }) => stdout),
      column(({ stderr }) => stderr),
      column(({ machine }) => machine),
      self,
    ],
  };
}

/**
 * The fleet's row is locked, so that no other process can take the fleet over before the write is committed: of two that believe to own
 * it, one writes. A lease that has ended and that no process used harms nothing, so it is not asked for here.
 */
const owned = (self: string): string =>
  `owned AS MATERIALIZED (SELECT 1 FROM corral.fleets WHERE id = $1 AND owner = ${self} FOR SHARE)`;
const IS_OWNED = "EXISTS (SELECT 1 FROM owned)";

/*
 * A state is compared as `(i.state || '')`, so that items are found by their positions: PostgreSQL would take the index of active items for
 * smaller, but it has every change of state until it is vacuumed.
 */

const REQUEUE = filledIn(textBeside(import.meta.url, "sql/requeue.sql"), { OWNED: owned("$7"), IS_OWNED });

const BEGIN = filledIn(textBeside(import.meta.url, "sql/begin.sql"), { OWNED: owned("$9"), IS_OWNED });

/** The streams are those of the intent, if it has them. */
const SETTLE = filledIn(textBeside(import.meta.url, "sql/settle.sql"), { OWNED: owned("$15"), IS_OWNED });

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
        fleet,
        scope.now(),
        attempts.length,
        scope.self,
        attempts.map(({ run }) => run),
        attempts.map(({ cell }) => cell),
        again,
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
 * runs are known by their names. Items that are locked are found again by their places (docs/facts.md, fact: plans-without-statistics).
 */
const CLAIM = filledIn(textBeside(import.meta.url, "sql/claim.sql"), {
  AT_ONCE,
  NEXT_AFTER_NOW: nextAfter("(SELECT now FROM standing)"),
  LONGEST_DELAY_MS,
  NEXT_AFTER_CLOCK: nextAfter("(SELECT now FROM clock)"),
  ACTIVE,
});

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
