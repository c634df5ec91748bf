import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Digest } from "../../../src/blobs/blob.ts";
import type { FleetSpec, ItemRequest } from "../../../src/fleet/model/item.ts";
import type { NewAttempt } from "../../../src/fleet/model/queue.ts";
import type { FleetStore } from "../../../src/fleet/model/store.ts";
import type { Agreement, AttemptDelivery, Membership, WorkStore } from "../../../src/fleet/model/work.ts";
import { attempts, items, noCollisions, SPEC, settlementOf } from "../journal/journal-fixture.ts";
import { type PostgresFixture, postgresFixture } from "./postgres-fixture.ts";

const AGREEMENT: Agreement = { declarations: { worker: "a".repeat(64) }, images: {}, trees: {} };
/** The store makes the ids of the runs of machines. */
const RUN = /^[0-9a-f]{12}$/;
const DAY_MS = 86_400_000;
const SHARED = { needs: [], priority: 0, weight: 1 };

let fixture: PostgresFixture;
let store: FleetStore;
let work: WorkStore;
/** Of one test: a store knows by the names of runs what it gave out already. */
let newAttempt: () => NewAttempt;
const members: Membership[] = [];

beforeEach(async () => {
  fixture = postgresFixture();
  store = await fixture.open(`coordinator-${fixture.project}`);
  work = workOf(store);
  newAttempt = attempts();
});
afterEach(async () => {
  for (const member of members.splice(0)) await member[Symbol.asyncDispose]();
  await store[Symbol.asyncDispose]();
  await fixture.query("UPDATE corral.fleets SET agreement = NULL");
});

function workOf({ work }: FleetStore): WorkStore {
  if (work === null) throw new Error("machines cannot reach this store");
  return work;
}

async function machine(name: string, labels: readonly string[] = [], at = work): Promise<Membership> {
  const member = await at.join({ name, labels, slots: 500, version: "0" });
  members.push(member);
  return member;
}

async function offered(count: number, machines: FleetSpec["machines"] = SHARED): Promise<string> {
  const fleet = await store.create({ ...SPEC, machines });
  await store.load(fleet, items(count), noCollisions);
  expect(await work.offer(fleet, AGREEMENT)).toBe(true);
  return fleet;
}

const deliveryOf = (index: number, attempt = 1): AttemptDelivery => ({
  result: settlementOf(index, { attempt }).result,
  streams: { stdout: `said ${index}\n`, stderr: "" },
  changeset: "c0ffee",
  more: { usage: 7 },
});

/** Ends the lease of a machine, as if it had not renewed it for long. */
async function endLease({ id }: Membership): Promise<void> {
  await fixture.query("UPDATE corral.processes SET lease_until = 0 WHERE id = $1", [id]);
}

const indexes = (claimed: readonly { request: { index: number } }[]) => claimed.map(({ request }) => request.index);

describe("the blobs that are referred to", () => {
  it("are those of fleets that are offered, and of deliveries that are not settled", async () => {
    const fleet = await offered(2);
    const tree = "b".repeat(64);
    await work.offer(fleet, { ...AGREEMENT, trees: { "/data": tree } });
    const member = await machine("m1");
    const [claimed] = await member.claim([fleet], 1, newAttempt);
    const { index = 0 } = claimed?.request ?? {};
    const changeset = `${"c".repeat(63)}${index}`;
    const before = await work.referred();
    expect(before.trees).toContain(tree);
    expect(before.changesets).not.toContain(changeset);
    await member.deliver(fleet, index, 1, { ...deliveryOf(index), changeset });
    expect((await work.referred()).changesets).toContain(changeset);
    const queue = await store.queue(fleet);
    expect(await queue.settle(index, 1, settlementOf(index))).toMatchObject({ ok: true });
    await work.drain(fleet);
    const after = await work.referred();
    expect(after.changesets).not.toContain(changeset);
    expect(after.trees).not.toContain(tree);
  });
});

describe("the attachments that items need", () => {
  const [first, second, third] = ["1", "2", "3"].map((digit) => digit.repeat(64) as Digest) as [Digest, Digest, Digest];
  const request = (index: number, digests: readonly Digest[]): ItemRequest => ({
    ...{ index, key: `k${index}`, place: "" },
    attachments: digests.map((digest, at) => ({ path: `/host/${at}`, name: `${at}`, sent: { digest, bytes: 3 } })),
  });

  it("are referred to until the items have ended, also while the fleet is paused", async () => {
    const fleet = await store.create({ ...SPEC, machines: SHARED });
    const both = [request(0, [first, second]), request(1, [second]), request(2, [])];
    await store.load(fleet, from(both), noCollisions);
    const files = async () =>
      (await work.referred()).files.filter((digest) => [first, second].includes(digest as Digest));
    expect((await files()).toSorted()).toEqual([first, second]);
    const queue = await store.queue(fleet);
    await queue.claim(1, newAttempt);
    expect(await queue.settle(0, 1, settlementOf(0))).toEqual({ ok: true });
    await store.pause(fleet, "a test");
    expect(await files()).toEqual([second]);
    const taken = await store.takeOver(fleet);
    expect(taken.ok).toBe(true);
    await queue.claim(2, newAttempt);
    for (const index of [1, 2]) await queue.settle(index, 1, settlementOf(index));
    expect(await files()).toEqual([]);
    await store.end(fleet);
  });

  it("are sent again if the item failed, and those of no other item are replaced", async () => {
    const fleet = await store.create({ ...SPEC, machines: SHARED });
    await store.load(fleet, from([request(0, [first]), request(1, [first])]), noCollisions);
    const sentOf = async (key: string) => (await store.item(fleet, key))?.request.attachments[0]?.sent?.digest;
    const queue = await store.queue(fleet);
    await queue.claim(2, newAttempt);
    await queue.settle(0, 1, settlementOf(0, { status: "failed" }));
    await queue.settle(1, 1, settlementOf(1));
    const other = await fixture.open("another");
    await workOf(other).replace(fleet, from([request(0, [second])]));
    expect(await sentOf("k0")).toBe(first);
    await other[Symbol.asyncDispose]();
    await work.replace(fleet, from([request(0, [third]), request(1, [third])]));
    await store.retryFailed(fleet);
    expect((await work.referred()).files).toContain(third);
    expect([await sentOf("k0"), await sentOf("k1")]).toEqual([third, first]);
  });
});

async function* from<T>(all: readonly T[]): AsyncGenerator<T> {
  yield* all;
}

describe("a machine", () => {
  it("takes items of a fleet that is offered, delivers, and leaves the rest to its coordinator", async () => {
    const fleet = await offered(4);
    const member = await machine("m1", ["gpu"]);
    expect(await member.offers()).toMatchObject([
      {
        fleet,
        project: fixture.project,
        agreement: AGREEMENT,
        ...SHARED,
        hasMore: true,
        spec: { worker: SPEC.worker },
      },
    ]);
    const claimed = await member.claim([fleet], 2, newAttempt);
    expect(claimed).toMatchObject([
      { fleet, request: { index: 0 }, attempt: 1, earlier: 0, run: expect.stringMatching(RUN) },
      { request: { index: 1 }, run: expect.stringMatching(RUN) },
    ]);
    const queue = await store.queue(fleet);
    expect(await queue.counts()).toMatchObject({ running: 2, queued: 2 });
    // What a machine runs is not its coordinator's to settle.
    expect(await queue.settle(0, 1, settlementOf(0))).toMatchObject({ ok: false });
    expect(await queue.requeue(0, 1, 0)).toMatchObject({ ok: false });
    expect(await member.deliver(fleet, 0, 1, deliveryOf(0))).toEqual({ ok: true });
    expect(await work.deliveries(fleet, 10)).toEqual([
      {
        ...deliveryOf(0),
        index: 0,
        key: "doc-0.pdf",
        attempt: 1,
        earlier: 0,
        run: expect.stringMatching(RUN),
        machine: "m1",
      },
    ]);
    expect((await queue.claim(0, newAttempt)).elsewhere).toBe(2);
    expect(await queue.begin(0, 1, settlementOf(0))).toEqual({ ok: true });
    expect(await work.deliveries(fleet, 10)).toEqual([]);
    expect(await queue.settle(0, 1, { ...settlementOf(0), streams: { stdout: "said 0\n", stderr: "" } })).toEqual({
      ok: true,
    });
    expect(await member.giveBack(fleet, 1, 1, 0)).toEqual({ ok: true });
    expect(indexes((await queue.claim(9, newAttempt)).items)).toEqual([2, 3, 1]);
    expect(await store.item(fleet, "doc-0.pdf")).toMatchObject({ state: "done", streams: { stdout: "said 0\n" } });
  });

  it("takes nothing of a fleet whose labels it has not, that is not offered, or whose coordinator has gone", async () => {
    const fleet = await offered(3, { ...SHARED, needs: ["gpu", "big"] });
    const small = await machine("small", ["gpu"]);
    const big = await machine("big", ["big", "gpu", "x"]);
    expect([await small.offers(), await small.claim([fleet], 1, newAttempt)]).toEqual([[], []]);
    expect(indexes(await big.claim([fleet], 1, newAttempt))).toEqual([0]);
    await work.drain(fleet);
    expect([await big.offers(), await big.claim([fleet], 1, newAttempt)]).toEqual([[], []]);
    expect(await big.withdrawn()).toEqual([{ fleet, index: 0, attempt: 1, why: "drained" }]);
    await work.offer(fleet, AGREEMENT);
    expect(await big.withdrawn()).toEqual([]);
    await fixture.query("UPDATE corral.processes SET lease_until = 0 WHERE NOT is_machine");
    expect([await big.offers(), await big.claim([fleet], 1, newAttempt)]).toEqual([[], []]);
  });

  it("whose lease has ended delivers nothing any more: its items run again, and the late answer is refused", async () => {
    const fleet = await offered(2);
    const [dead, other] = [await machine("dead"), await machine("other")];
    await dead.claim([fleet], 2, newAttempt);
    expect(await work.reclaim(fleet, DAY_MS)).toBe(0);
    await endLease(dead);
    expect(await dead.deliver(fleet, 0, 1, deliveryOf(0))).toMatchObject({ ok: false, reason: /lease/ });
    expect(await dead.claim([fleet], 1, newAttempt)).toEqual([]);
    expect(await work.reclaim(fleet, DAY_MS)).toBe(2);
    const again = await other.claim([fleet], 1, newAttempt);
    expect(again).toMatchObject([{ attempt: 2, earlier: 1, request: { index: 0 } }]);
    // Even if its lease were given back.
    await fixture.query("UPDATE corral.processes SET lease_until = corral.now_ms() + 9000 WHERE id = $1", [dead.id]);
    expect(await dead.deliver(fleet, 0, 1, deliveryOf(0))).toMatchObject({ ok: false, reason: /attempt 2 is running/ });
    expect(await dead.giveBack(fleet, 1, 1, 0)).toMatchObject({ ok: false, reason: /waits for a retry/ });
    expect(await dead.withdrawn()).toEqual([]);
    expect(await other.deliver(fleet, 0, 2, deliveryOf(0, 2))).toEqual({ ok: true });
    expect((await store.find(fleet))?.counts).toMatchObject({ queued: 1, running: 1 });
  });

  it("gives items back, or leaves, without a retry less for them", async () => {
    const fleet = await offered(2);
    const first = await machine("first");
    await first.claim([fleet], 2, newAttempt);
    await first.giveBack(fleet, 0, 1, 0);
    await first[Symbol.asyncDispose]();
    const other = await machine("other");
    const again = await other.claim([fleet], 2, newAttempt);
    expect(again.map(({ attempt, earlier }) => [attempt, earlier])).toEqual([
      [2, 1],
      [2, 1],
    ]);
  });

  it("takes what others wrote that cannot be read for nothing, and everything else as usual", async () => {
    const [fleet, broken] = [await offered(2), await offered(1)];
    const member = await machine("m");
    const idOf = "(SELECT id FROM corral.fleets WHERE name = $1)";
    await fixture.query(`UPDATE corral.requests SET json = '{"index":' WHERE fleet = ${idOf} AND position = 0`, [
      fleet,
    ]);
    await fixture.query("UPDATE corral.fleets SET spec = '{', agreement = '[[' WHERE name = $1", [broken]);
    expect((await member.offers()).map((offer) => [offer.fleet, typeof offer.spec, offer.agreement])).toEqual([
      [fleet, "object", AGREEMENT],
      [broken, "undefined", undefined],
    ]);
    expect(indexes(await member.claim([fleet], 2, newAttempt))).toEqual([1]);
  });

  it("is told of attempts that no longer count, and of cancelled fleets", async () => {
    const fleet = await offered(2);
    const member = await machine("m");
    await member.claim([fleet], 2, newAttempt);
    await fixture.query("UPDATE corral.items SET state = 'queued' WHERE position = 0 AND owner = $1", [member.id]);
    await (await store.queue(fleet)).cancelQueued("enough");
    expect(await member.withdrawn()).toEqual([
      { fleet, index: 0, attempt: 1, why: "fenced" },
      { fleet, index: 1, attempt: 1, why: "cancelled" },
    ]);
  });

  it("is named in lists and items, as long as it runs one and afterwards", async () => {
    const fleet = await offered(3);
    const queue = await store.queue(fleet);
    const member = await machine("alpha");
    const where = async () => (await store.items(fleet, {}, { after: -1, limit: 10 })).map(({ machine }) => machine);
    const itemAt = async (index: number) => await store.item(fleet, (await store.keys(fleet, 10))[index] ?? "");
    await queue.claim(1, newAttempt);
    await member.claim([fleet], 2, newAttempt);
    expect(await where()).toEqual([null, "alpha", "alpha"]);
    await member.deliver(fleet, 1, 1, deliveryOf(1));
    expect(await where()).toEqual([null, "alpha", "alpha"]);
    const failed = settlementOf(1, { status: "failed", machine: "alpha" });
    await queue.begin(1, 1, failed);
    expect(await where()).toEqual([null, "alpha", "alpha"]);
    await queue.settle(1, 1, failed);
    await member.giveBack(fleet, 2, 1, 0);
    expect(await where()).toEqual([null, "alpha", null]);
    expect(await itemAt(1)).toMatchObject({ machine: "alpha", result: { machine: "alpha" } });
    // What a machine ran counts for the attempt, and not for one after it.
    await store.retryFailed(fleet);
    expect(await itemAt(1)).toMatchObject({ state: "queued", machine: null, result: { machine: "alpha" } });
    expect(await work.runners(fleet)).toEqual([]);
  });

  it("is listed with the fleets of the asking project alone", async () => {
    const fleet = await offered(1);
    const other = postgresFixture();
    await using elsewhere = await other.open(`coordinator-${other.project}`);
    const member = await machine(`m-${fleet}`);
    await member.claim([fleet], 1, newAttempt);
    const listed = async (from: WorkStore) => (await from.machines()).find(({ name }) => name === `m-${fleet}`);
    expect(await listed(work)).toMatchObject({ running: 1, fleets: [{ fleet, running: 1 }] });
    expect(await listed(workOf(elsewhere))).toMatchObject({ running: 1, fleets: [] });
  });

  it("gives its items back when it leaves, and is no longer listed", async () => {
    const fleet = await offered(3);
    const member = await work.join({ name: `m-${fleet}`, labels: ["x"], slots: 2, version: "1.2" });
    await member.claim([fleet], 2, newAttempt);
    await member.refuses(fleet, "the image differs");
    const listed = async () => (await work.machines()).filter(({ name }) => name === `m-${fleet}`);
    expect(await listed()).toMatchObject([
      {
        labels: ["x"],
        slots: 2,
        version: "1.2",
        running: 2,
        recentRate: null,
        fleets: [{ fleet, running: 2, why: "the image differs" }],
      },
    ]);
    expect(await work.runners(fleet)).toEqual([{ name: `m-${fleet}`, running: 2 }]);
    // Its id is the machine's secret, and lists go to everybody who may read.
    expect((await listed())[0]?.id).toMatch(/^[0-9a-f]{12}$/);
    expect(JSON.stringify(await listed())).not.toContain(member.id);
    await member.refuses(fleet, null);
    await member.deliver(fleet, 0, 1, deliveryOf(0));
    expect(await listed()).toMatchObject([{ running: 1, fleets: [{ running: 1, why: null }] }]);
    expect((await listed())[0]?.recentRate).toBeGreaterThan(0);
    await member[Symbol.asyncDispose]();
    expect(await listed()).toEqual([]);
    expect((await store.find(fleet))?.counts).toMatchObject({ queued: 2, running: 1 });
  });
});

describe("a machine that takes more than its share", () => {
  it("holds no more items than it has room for, whatever it asks", async () => {
    const fleet = await offered(9);
    const small = await work.join({ name: "small", labels: [], slots: 1, version: "0" });
    members.push(small);
    expect(await small.claim([fleet], 9, newAttempt)).toHaveLength(2);
    expect(await small.claim([fleet], 9, newAttempt)).toEqual([]);
    await small.deliver(fleet, 0, 1, deliveryOf(0));
    expect(await small.claim([fleet], 9, newAttempt)).toHaveLength(1);
  });

  it("keeps an item no longer than its coordinator lets it, although it renews its lease", async () => {
    const fleet = await offered(2);
    const member = await machine("m");
    await member.claim([fleet], 2, newAttempt);
    await fixture.query("UPDATE corral.items SET claimed_at = claimed_at - 5000 WHERE owner = $1 AND position = 1", [
      member.id,
    ]);
    expect(await work.reclaim(fleet, 6000)).toBe(0);
    expect(await work.reclaim(fleet, 4000)).toBe(1);
    expect(await member.withdrawn()).toEqual([{ fleet, index: 1, attempt: 1, why: "fenced" }]);
    expect(await member.deliver(fleet, 1, 1, deliveryOf(1))).toMatchObject({ ok: false });
    expect(await member.deliver(fleet, 0, 1, deliveryOf(0))).toEqual({ ok: true });
  });

  it("does not keep an item of which it never heard", async () => {
    const fleet = await offered(2);
    const member = await machine("m");
    const [known] = await member.claim([fleet], 1, newAttempt);
    await fixture.query("SELECT * FROM corral.machine_claim($1, $2, '{lost}')", [member.id, [fleet]]);
    await member.withdrawn();
    expect((await store.find(fleet))?.counts).toMatchObject({ queued: 0, running: 2 });
    await fixture.query("UPDATE corral.items SET claimed_at = claimed_at - 61000 WHERE owner = $1", [member.id]);
    expect(await member.withdrawn()).toEqual([]);
    expect((await store.find(fleet))?.counts).toMatchObject({ queued: 1, running: 1 });
    expect(await member.deliver(fleet, known?.request.index ?? -1, 1, deliveryOf(0))).toEqual({ ok: true });
  });

  it.each(["x", "", `${"[".repeat(100_000)}${"]".repeat(100_000)}`])(
    "that delivers no JSON, or JSON that is nested too deep, keeps its coordinator from no other delivery (%#)",
    async (json) => {
      const fleet = await offered(2);
      const member = await machine("m1");
      await member.claim([fleet], 2, newAttempt);
      const [row] = await fixture.query<{ taken: string }>(
        "SELECT corral.machine_deliver($1, $2, 0, 1, $3, NULL, NULL, NULL, 'x') AS taken",
        [member.id, fleet, json],
      );
      expect(row).toEqual({ taken: "taken" });
      await member.deliver(fleet, 1, 1, deliveryOf(1));
      expect(await work.deliveries(fleet, 10)).toMatchObject([
        { index: 0, result: undefined, more: undefined, streams: null },
        { index: 1, result: { status: "succeeded" }, more: { usage: 7 } },
      ]);
    },
  );

  it("fills no memory of its coordinator with large deliveries: they are read a few at a time", async () => {
    const fleet = await offered(3);
    const member = await machine("m");
    for (const { request } of await member.claim([fleet], 3, newAttempt))
      await member.deliver(fleet, request.index, 1, deliveryOf(request.index));
    await fixture.query(
      "UPDATE corral.deliveries SET stdout = repeat('x', 20000000) WHERE fleet = (SELECT id FROM corral.fleets WHERE name = $1)",
      [fleet],
    );
    expect((await work.deliveries(fleet, 10)).map(({ index }) => index)).toEqual([0]);
  });

  it.each([
    ["a label", "SELECT corral.machine_join('m', ARRAY[repeat('x', 201)], 1, '0', 1000)"],
    ["a name", "SELECT corral.machine_join(repeat('x', 201), '{}', 1, '0', 1000)"],
    ["a ticket", "SELECT * FROM corral.machine_claim('m', '{f}', ARRAY[repeat('x', 101)])"],
    ["a list of tickets", "SELECT * FROM corral.machine_claim('m', '{f}', array_fill('t'::text, ARRAY[1001]))"],
    ["a list of items", "SELECT * FROM corral.machine_withdrawn('m', '{}', array_fill(1, ARRAY[20001]), '{}')"],
  ])("is refused with %s that is too long", async (_what, statement) => {
    await expect(fixture.query(statement)).rejects.toThrow(/are not valid|is too large|too many attempts/);
  });
});

describe("items of several fleets", () => {
  it("are claimed by priority, then by fair shares for their weights, then of the oldest fleet", async () => {
    const [plain, heavy, urgent] = [
      await offered(20),
      await offered(20, { ...SHARED, weight: 3 }),
      await offered(2, { ...SHARED, priority: 5 }),
    ];
    const member = await machine("m");
    const claimed = await member.claim([plain, heavy, urgent], 10, newAttempt);
    const of = (fleet: string): number => claimed.filter((item) => item.fleet === fleet).length;
    expect([of(urgent), of(plain), of(heavy)]).toEqual([2, 2, 6]);
    expect(claimed.slice(0, 2).map(({ fleet }) => fleet)).toEqual([urgent, urgent]);
    expect((await member.offers()).map(({ fleet, hasMore }) => [fleet, hasMore])).toEqual([
      [urgent, false],
      [plain, true],
      [heavy, true],
    ]);
  });

  it("go once each to machines that claim at the same time, beside the coordinator", async () => {
    const fleet = await offered(120);
    await using second = await fixture.open("second");
    const [a, b] = [await machine("a"), await machine("b", [], workOf(second))];
    const queue = await store.queue(fleet);
    const taken: number[] = [];
    const drain = async (claim: () => Promise<readonly { request: { index: number } }[]>): Promise<void> => {
      for (;;) {
        const claimed = await claim();
        if (claimed.length === 0) return;
        taken.push(...indexes(claimed));
      }
    };
    await Promise.all([
      drain(() => a.claim([fleet], 5, newAttempt)),
      drain(() => b.claim([fleet], 5, newAttempt)),
      drain(async () => (await queue.claim(5, newAttempt)).items),
    ]);
    expect(taken.toSorted((x, y) => x - y)).toEqual(Array.from({ length: 120 }, (_, index) => index));
  });
});

describe("a coordinator", () => {
  it("that takes a fleet over leaves what machines run to them, and offers it again", async () => {
    const fleet = await offered(4);
    const member = await machine("m");
    await member.claim([fleet], 2, newAttempt);
    await (await store.queue(fleet)).claim(1, newAttempt);
    await fixture.query("UPDATE corral.fleets SET owner = 'dead' WHERE name = $1", [fleet]);
    expect(await work.offer(fleet, AGREEMENT)).toBe(false);
    await using next = await fixture.open("next");
    expect(await next.takeOver(fleet)).toMatchObject({ ok: true, running: [{ index: 2 }] });
    expect(await member.deliver(fleet, 1, 1, deliveryOf(1))).toEqual({ ok: true });
    expect(await workOf(next).deliveries(fleet, 1)).toMatchObject([{ index: 1 }]);
    expect(await member.claim([fleet], 1, newAttempt)).toEqual([]);
    expect(await workOf(next).offer(fleet, AGREEMENT)).toBe(true);
    expect(indexes(await member.claim([fleet], 9, newAttempt))).toEqual([3]);
  });

  it("hears of a delivery at once", async () => {
    const fleet = await offered(1);
    const member = await machine("m");
    await member.claim([fleet], 1, newAttempt);
    const never = new AbortController().signal;
    await work.wake(1, never);
    const beganAt = performance.now();
    const woken = work.wake(60_000, never);
    await member.deliver(fleet, 0, 1, deliveryOf(0));
    await woken;
    expect(performance.now() - beganAt).toBeLessThan(30_000);
  });
});

it("keeps the lease of a machine, and says that it is lost if it is not kept", async () => {
  const member = await machine("m");
  await endLease(member);
  await expect.poll(() => member.lost.aborted, { timeout: 30_000 }).toBe(true);
  expect(String(member.lost.reason)).toMatch(/lease of this machine is lost/);
}, 30_000);

describe("a coordinator that was stopped beyond its lease", () => {
  const COUNT = 60;

  /** Another process owns the fleet, since the lease of the first one has ended. */
  async function takenOver(fleet: string) {
    const next = await fixture.open(`next-${fixture.project}`);
    await fixture.query("UPDATE corral.processes SET lease_until = 0 WHERE id = $1", [
      `coordinator-${fixture.project}`,
    ]);
    const taken = await next.takeOver(fleet);
    if (!taken.ok) throw new Error(taken.reason);
    return { next, applying: taken.applying };
  }

  it("gets no delivery, and begins, records and gives up nothing of what its next owner has", async () => {
    const fleet = await offered(1);
    const member = await machine("m1");
    await member.claim([fleet], 1, newAttempt);
    await member.deliver(fleet, 0, 1, deliveryOf(0));
    const late = await store.queue(fleet);
    const { next } = await takenOver(fleet);
    await using _ = next;
    expect(await work.deliveries(fleet, 9)).toEqual([]);
    const inherited = { ok: false, code: "taken", isInherited: true };
    expect(await late.begin(0, 1, settlementOf(0))).toMatchObject(inherited);
    expect(await late.requeue(0, 1, 0)).toMatchObject(inherited);
    expect(await late.settle(0, 1, settlementOf(0))).toMatchObject(inherited);
    expect(await workOf(next).deliveries(fleet, 9)).toMatchObject([{ index: 0, attempt: 1 }]);
    const queue = await next.queue(fleet);
    expect(await queue.begin(0, 1, settlementOf(0))).toEqual({ ok: true });
    expect(await late.settle(0, 1, settlementOf(0, { status: "failed" }))).toMatchObject(inherited);
    expect(await queue.settle(0, 1, settlementOf(0))).toEqual({ ok: true });
    expect(await next.end(fleet)).toBe("done");
  });

  it("begins what the next owner finishes, or nothing: whatever it was about to begin just then", async () => {
    const fleet = await offered(COUNT);
    const member = await machine("m1");
    for (const { request, attempt } of await member.claim([fleet], COUNT, newAttempt))
      await member.deliver(fleet, request.index, attempt, deliveryOf(request.index));
    const late = await store.queue(fleet);
    const begun = new Set<number>();
    const beginning = (async () => {
      for (let index = 0; index < COUNT; index += 1)
        if ((await late.begin(index, 1, settlementOf(index))).ok) begun.add(index);
        else return;
    })();
    while (begun.size < 3) await new Promise((resolve) => setTimeout(resolve, 1));
    const { next, applying } = await takenOver(fleet);
    await using _ = next;
    await beginning;
    expect(applying.map(({ index }) => index)).toEqual([...begun]);
    const queue = await next.queue(fleet);
    for (const { index } of await workOf(next).deliveries(fleet, COUNT))
      expect(begun.has(index) ? "twice" : await queue.begin(index, 1, settlementOf(index))).toEqual({ ok: true });
    for (let index = 0; index < COUNT; index += 1)
      expect(await queue.settle(index, 1, settlementOf(index))).toEqual({ ok: true });
    expect(await next.end(fleet)).toBe("done");
  });
});
