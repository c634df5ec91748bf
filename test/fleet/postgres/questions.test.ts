import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { NewAttempt } from "../../../src/fleet/model/queue.ts";
import type { FleetStore } from "../../../src/fleet/model/store.ts";
import {
  type AskedElsewhere,
  type AttemptDelivery,
  MAX_ASKED_BY_MACHINE,
  MAX_ASKED_BYTES_BY_MACHINE,
  MAX_QUESTION_BYTES,
  MAX_QUESTIONS,
  type Membership,
  type QuestionName,
  type WorkStore,
} from "../../../src/fleet/model/work.ts";
import { attempts, items, noCollisions, SPEC, settlementOf } from "../journal/journal-fixture.ts";
import { type PostgresFixture, postgresFixture } from "./postgres-fixture.ts";

let fixture: PostgresFixture;
let store: FleetStore;
let work: WorkStore;
let newAttempt: () => NewAttempt;
let fleet: string;
let member: Membership;
const members: Membership[] = [];

const nameOf = (index: number, number = 0, attempt = 1): QuestionName => ({ fleet, index, attempt, number });
const DELIVERY: AttemptDelivery = { result: settlementOf(0).result, streams: null, changeset: null, more: null };

/** What waits for the owner of the fleet, with its texts. */
async function asked(at: WorkStore | null = work): Promise<readonly AskedElsewhere[]> {
  return (await at?.readQuestions(fleet, await at.questions(fleet, 9))) ?? [];
}

/** Asks by the statement, which has no bound of one attempt. */
async function flood({ id }: Membership, index: number, count: number, characters: number): Promise<void> {
  await fixture.query(
    `INSERT INTO corral.questions (fleet, position, attempt, number, machine, machine_name, asked_at, json)
     SELECT f.id, $2, 1, n, $3, 'hostile', n, repeat('x', $5::int) FROM corral.fleets f, generate_series(0, $4::int - 1) n WHERE f.name = $1`,
    [fleet, index, id, count, characters],
  );
}

async function machine(name: string): Promise<Membership> {
  const joined = await work.join({ name, labels: [], slots: 9, version: "0" });
  members.push(joined);
  return joined;
}

beforeEach(async () => {
  fixture = postgresFixture();
  store = await fixture.open(`coordinator-${fixture.project}`);
  if (store.work === null) throw new Error("machines cannot reach this store");
  work = store.work;
  newAttempt = attempts();
  fleet = await store.create({ ...SPEC, machines: { needs: [], priority: 0, weight: 1 } });
  await store.load(fleet, items(3), noCollisions);
  await work.offer(fleet, { declarations: {}, images: {}, trees: {} });
  member = await machine("m");
  await member.claim([fleet], 2, newAttempt);
});
afterEach(async () => {
  for (const each of members.splice(0)) await each[Symbol.asyncDispose]();
  await store[Symbol.asyncDispose]();
  await fixture.query("UPDATE corral.fleets SET agreement = NULL");
});

describe("a question of a machine", () => {
  it("reaches the coordinator once, and its answer the machine, until that has taken it", async () => {
    expect(await member.questions.ask(nameOf(1), '"may I?"')).toEqual({ ok: true });
    // The answer to the first call may have been lost.
    expect(await member.questions.ask(nameOf(1), '"may I?"')).toEqual({ ok: true });
    expect(await asked()).toEqual([
      {
        ...nameOf(1),
        run: expect.any(String),
        machine: "m",
        json: '"may I?"',
        request: expect.objectContaining({ index: 1 }),
      },
    ]);
    expect(await member.questions.answers()).toEqual([]);
    expect(await work.answer(nameOf(1), '"yes"')).toBe(true);
    expect(await work.answer(nameOf(1), '"no"')).toBe(false);
    expect(await asked()).toEqual([]);
    expect(await member.questions.answers()).toEqual([{ ...nameOf(1), json: '"yes"' }]);
    await member.questions.unask(nameOf(1));
    expect(await member.questions.answers()).toEqual([]);
    // Its number is not free again.
    await member.questions.ask(nameOf(1), '"another"');
    expect(await asked()).toEqual([]);
  });

  it("that no run waits for any more takes no answer", async () => {
    await member.questions.ask(nameOf(0), "1");
    await member.questions.unask(nameOf(0));
    expect(await work.answer(nameOf(0), "2")).toBe(false);
    expect(await member.questions.answers()).toEqual([]);
  });

  it("is over with its attempt: delivered, given back, or of a machine that is lost", async () => {
    const other = await machine("other");
    for (const index of [0, 1]) await member.questions.ask(nameOf(index), "1");
    await other.claim([fleet], 1, newAttempt);
    await other.questions.ask(nameOf(2), "1");
    expect(await asked()).toHaveLength(3);
    await member.deliver(fleet, 0, 1, DELIVERY);
    await member.giveBack(fleet, 1, 1, 0);
    expect(await work.answer(nameOf(0), "2")).toBe(false);
    expect(await work.answer(nameOf(1), "2")).toBe(false);
    expect((await asked()).map(({ index }) => index)).toEqual([2]);
    await fixture.query("UPDATE corral.processes SET lease_until = 0 WHERE id = $1", [other.id]);
    expect(await other.questions.ask(nameOf(2, 1), "1")).toMatchObject({ ok: false, reason: /lease/ });
    await work.reclaim(fleet, 60_000);
    expect(await asked()).toEqual([]);
    expect(
      await fixture.query("SELECT 1 FROM corral.questions q JOIN corral.fleets f ON f.id = q.fleet AND f.name = $1", [
        fleet,
      ]),
    ).toEqual([]);
  });

  it("waits for the next owner of its fleet if its coordinator has gone", async () => {
    await member.questions.ask(nameOf(0), "1");
    await fixture.query("UPDATE corral.fleets SET owner = 'dead' WHERE name = $1", [fleet]);
    expect(await asked()).toEqual([]);
    expect(await work.answer(nameOf(0), "2")).toBe(false);
    await using next = await fixture.open("next");
    await next.takeOver(fleet);
    expect(await asked(next.work)).toMatchObject([{ index: 0 }]);
    expect(await next.work?.answer(nameOf(0), "2")).toBe(true);
    expect(await member.questions.answers()).toMatchObject([{ json: "2" }]);
  });

  it("is refused for the attempt of another machine, and of an earlier one", async () => {
    const other = await machine("other");
    expect(await other.questions.ask(nameOf(0), "1")).toMatchObject({ ok: false });
    expect(await member.questions.ask(nameOf(0, 0, 2), "1")).toMatchObject({ ok: false });
    expect(await member.questions.ask(nameOf(2), "1")).toMatchObject({ ok: false, reason: /waits for a retry/ });
    await member.questions.ask(nameOf(0), "1");
    await other.questions.unask(nameOf(0));
    expect(await work.answer(nameOf(0), "2")).toBe(true);
    expect(await other.questions.answers()).toEqual([]);
  });

  it("is one of a bounded number, and of a bounded size", async () => {
    for (let number = 0; number < 50; number += 1)
      expect(await member.questions.ask(nameOf(0, number), "1")).toEqual({ ok: true });
    expect(await member.questions.ask(nameOf(0, 50), "1")).toMatchObject({ ok: false, reason: /too many/ });
    expect(await member.questions.ask(nameOf(1), "1")).toEqual({ ok: true });
    await expect(member.questions.ask(nameOf(1, MAX_QUESTIONS), "1")).rejects.toThrow(/too many/);
    await expect(member.questions.ask(nameOf(1, -1), "1")).rejects.toThrow(/too many/);
    const long = "é".repeat(MAX_QUESTION_BYTES / 2);
    await expect(member.questions.ask(nameOf(1, 2), `${long}!`)).rejects.toThrow(/too large/);
    expect(await member.questions.ask(nameOf(1, 2), long)).toEqual({ ok: true });
  });

  it("is named with its size, and read only then", async () => {
    await member.questions.ask(nameOf(1), '"é"');
    await member.questions.ask(nameOf(0), '"b"');
    // Both may have been asked in the same millisecond.
    await fixture.query("UPDATE corral.questions SET asked_at = asked_at + 1 WHERE position = 0");
    const names = await work.questions(fleet, 9);
    const [requests] = await fixture.query<{ bytes: number }>(
      "SELECT octet_length(json) AS bytes FROM corral.requests r JOIN corral.fleets f ON f.id = r.fleet WHERE f.name = $1 AND position = 1",
      [fleet],
    );
    expect(names).toEqual([
      { ...nameOf(1), bytes: 4 + (requests?.bytes ?? 0) },
      { ...nameOf(0), bytes: expect.any(Number) },
    ]);
    expect(await work.readQuestions(fleet, names.slice(1))).toMatchObject([{ ...nameOf(0), json: '"b"' }]);
    await member.questions.unask(nameOf(0));
    expect(await work.readQuestions(fleet, names)).toMatchObject([nameOf(1)]);
    expect(await work.readQuestions(fleet, [])).toEqual([]);
  });

  it("of one machine leaves room for those of others", async () => {
    await flood(member, 0, MAX_ASKED_BY_MACHINE + 20, 1);
    const other = await machine("other");
    await other.claim([fleet], 1, newAttempt);
    await other.questions.ask(nameOf(2), "1");
    const names = await work.questions(fleet, 1000);
    expect(names).toHaveLength(MAX_ASKED_BY_MACHINE + 1);
    expect(names.at(-1)).toMatchObject(nameOf(2));
  });

  it("of one machine has no more than its share of bytes at once, but for one", async () => {
    await flood(member, 0, 1, MAX_ASKED_BYTES_BY_MACHINE + 1);
    expect(await work.questions(fleet, 1000)).toHaveLength(1);
    await flood(member, 1, 3, MAX_ASKED_BYTES_BY_MACHINE / 2 - 2000);
    expect(await work.questions(fleet, 1000)).toMatchObject([nameOf(0)]);
    await member.questions.unask(nameOf(0));
    expect(await work.questions(fleet, 1000)).toMatchObject([nameOf(1, 0), nameOf(1, 1)]);
  });
});
