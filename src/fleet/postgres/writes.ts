import type { Taken } from "../model/queue.ts";
import { fencedOff, takenFrom } from "../stored/fenced-off.ts";
import { claimStep } from "./claims.ts";
import type { Answer } from "./group-commit.ts";
import { itemSteps } from "./item-writes.ts";
import type { Scope } from "./scope.ts";
import { outerState } from "./states.ts";
import type { Answers, ItemWrite, Step, Write } from "./write.ts";

/**
 * Commits writes together, in one round trip. Those to different items do not depend on each other, so each kind is one statement; a
 * second write to the same item is in a later one. Claims come last: they see what the others left.
 */
export async function commitWrites(scope: Scope, writes: readonly Write[]): Promise<Answer[]> {
  const answers: Answers = new Map();
  let steps: readonly Step[] = [];
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

function stepsOf(scope: Scope, writes: readonly Write[], answers: Answers, again: boolean): Step[] {
  const steps: Step[] = [];
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
  answers: Answers,
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

function unknown({ index }: ItemWrite): Answer {
  return { error: new Error(`the fleet has no item ${index}`) };
}
