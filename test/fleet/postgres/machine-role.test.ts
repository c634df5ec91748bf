import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { blobDigest, type Content, putBytes, wholeBlob } from "../../../src/blobs/blob.ts";
import type { Connection } from "../../../src/fleet/postgres/connection.ts";
import { machineGrants } from "../../../src/fleet/postgres/migrate.ts";
import { PostgresStore } from "../../../src/fleet/postgres/postgres-store.ts";
import { connectServer } from "../../../src/fleet/postgres/server.ts";
import { attempts, items, noCollisions, SPEC, settlementOf } from "../journal/journal-fixture.ts";

const schema = `test_${randomBytes(6).toString("hex")}`;
const role = `machine_${randomBytes(4).toString("hex")}`;
const project = randomBytes(32).toString("hex");
const options = { project, schema, isDead: () => false, isAlive: () => false };

let owner: PostgresStore;
let machine: PostgresStore;
let asMachine: Connection;
let fleet: string;

beforeAll(async () => {
  const url = inject("postgres") ?? "";
  owner = await PostgresStore.open(await connectServer(url, schema), { ...options, self: "coordinator" });
  await using asOwner = await connectServer(url, schema);
  await asOwner.query(`CREATE ROLE ${role} LOGIN`);
  for (const grant of machineGrants(role, schema)) await asOwner.query(grant);
  const ofRole = url.replace("postgres@", `${role}@`);
  machine = await PostgresStore.open(await connectServer(ofRole, schema), { ...options, self: "machine" });
  asMachine = await connectServer(ofRole, schema);
  fleet = await owner.create({ ...SPEC, machines: { needs: [], priority: 0, weight: 1 } });
  await owner.load(fleet, items(3), noCollisions);
  await owner.work.offer(fleet, { declarations: {}, images: {}, trees: {} });
});
afterAll(async () => {
  for (const each of [asMachine, machine, owner]) await each[Symbol.asyncDispose]();
});

const roleId = async (db: Connection): Promise<number> =>
  (await db.query<{ oid: number }>("SELECT oid FROM pg_roles WHERE rolname = $1", [role]))[0]?.oid ?? 0;

describe("the role of machines", () => {
  it("can join, claim, deliver and give back", async () => {
    await using member = await machine.work.join({ name: "m", labels: [], slots: 1, version: "0" });
    expect(await member.offers()).toMatchObject([{ fleet }]);
    expect(await member.claim([fleet], 2, attempts())).toMatchObject([
      { request: { index: 0 } },
      { request: { index: 1 } },
    ]);
    const delivery = { result: settlementOf(0).result, streams: null, changeset: null, more: null };
    expect(await member.deliver(fleet, 0, 1, delivery)).toEqual({ ok: true });
    expect(await member.giveBack(fleet, 1, 1, 0)).toEqual({ ok: true });
    expect(await member.withdrawn()).toEqual([]);
    await member.refuses(fleet, "a reason");
  });

  it("can speak for no other machine: it does not see their ids", async () => {
    await using other = await owner.work.join({ name: "other", labels: [], slots: 1, version: "0" });
    await other.claim([fleet], 1, () => ({ run: "of-other", cell: null }));
    await using member = await machine.work.join({ name: "m", labels: [], slots: 1, version: "0" });
    const delivery = { result: settlementOf(1).result, streams: null, changeset: null, more: null };
    expect(await member.deliver(fleet, 1, 2, delivery)).toMatchObject({ ok: false });
    expect(await member.giveBack(fleet, 1, 2, 0)).toMatchObject({ ok: false });
    await expect(machine.work.machines()).rejects.toThrow(/permission denied/);
    await expect(asMachine.query("SELECT id FROM corral.processes")).rejects.toThrow(/permission denied/);
  });

  it("is the only one, beside the owner of the tables, that can", async () => {
    const stranger = `stranger_${randomBytes(4).toString("hex")}`;
    await using asOwner = await connectServer(inject("postgres") ?? "", schema);
    await asOwner.query(`CREATE ROLE ${stranger} LOGIN`);
    await asOwner.query(`GRANT USAGE ON SCHEMA corral TO ${stranger}`);
    await using asStranger = await connectServer(
      (inject("postgres") ?? "").replace("postgres@", `${stranger}@`),
      schema,
    );
    const join = "SELECT corral.machine_join('m', '{}', 1, '0', 1000)";
    await expect(asStranger.query(join)).rejects.toThrow(/permission denied for function/);
  });

  it("writes no more in an hour than the owner lets it; the owner may write more", async () => {
    await using asOwner = await connectServer(inject("postgres") ?? "", schema);
    await asOwner.query(
      `UPDATE corral.limits SET bytes_per_hour = 5000 + (SELECT last_value % 10000000000000 FROM corral.written_by_${await roleId(asOwner)})`,
    );
    const blobs = [await machine.work.blobs(), await owner.work.blobs()] as const;
    const content = (letter: string) => Buffer.from(letter.repeat(3000));
    const first = await putBytes(blobs[0], content("a"));
    // What is there already costs nothing.
    await blobs[0].put({ digest: first, bytes: 3000 }, [content("a")] as unknown as Content);
    await expect(putBytes(blobs[0], content("b"))).rejects.toThrow(/has written too much in this hour: see .*\.limits/);
    await putBytes(blobs[1], content("c"));
    expect((await blobs[0].has([first, blobDigest(content("b"))])).size).toBe(1);
    await asOwner.query("UPDATE corral.limits SET bytes_per_hour = DEFAULT");
  });

  it("reads the blobs that it can name, in bounded pieces, and makes none look older than it is", async () => {
    const [ofOwner, ofMachine] = [await owner.work.blobs(), await machine.work.blobs()];
    const content = randomBytes(5_000_001);
    const digest = await putBytes(ofOwner, content);
    expect((await wholeBlob(ofMachine, digest, content.length)).equals(content)).toBe(true);
    const many = Array.from({ length: 1001 }, () => digest);
    await expect(asMachine.query("SELECT corral.blobs_has($1)", [many])).rejects.toThrow(/too many digests/);
    for (const [after, most] of [
      [0, 4 * 1024 ** 2 + 1],
      [-1, 1],
    ])
      await expect(asMachine.query("SELECT corral.blob_piece($1, $2, $3)", [digest, after, most])).rejects.toThrow(
        /no piece of a blob/,
      );
    await using asOwner = await connectServer(inject("postgres") ?? "", schema);
    const age = async (): Promise<number> =>
      (
        await asOwner.query<{ age: number }>(
          "SELECT extract(epoch FROM clock_timestamp() - used_at)::float8 AS age FROM corral.blobs WHERE digest = $1",
          [digest],
        )
      )[0]?.age ?? Number.NaN;
    await asOwner.query("UPDATE corral.blobs SET used_at = now() - interval '3 days'");
    // The time of a transaction that has been open for long is an old one.
    await asMachine.transaction(async (within) => {
      await within.query("SELECT 1");
      await sleep(600);
      await within.query("SELECT corral.blob_put($1, $2)", [digest, content]);
    });
    expect(await age()).toBeLessThan(0.5);
    await asOwner.query("UPDATE corral.blobs SET used_at = now() - interval '3 days'");
    expect(await ofMachine.has([digest])).toEqual(new Set([digest]));
    expect(await age()).toBeLessThan(60);
  });

  it("joins no more often than the owner lets it, also with leases that end at once", async () => {
    await using asOwner = await connectServer(inject("postgres") ?? "", schema);
    await asOwner.query("UPDATE corral.limits SET machines_per_role = 3");
    const join = () => asMachine.query<{ id: string }>("SELECT corral.machine_join('m', '{}', 1, '0', 1) AS id");
    const ids: string[] = [];
    for (let n = 0; n < 3; n += 1) ids.push((await join())[0]?.id ?? "");
    await expect(join()).rejects.toThrow(/has too many machines: see .*\.limits/);
    await using _other = await owner.work.join({ name: "of another role", labels: [], slots: 1, version: "0" });
    for (const id of ids) await asMachine.query("SELECT corral.machine_leave($1)", [id]);
    // What a dead machine has not delivered yet does not keep others away.
    await asOwner.query("UPDATE corral.limits SET machines_per_role = 1");
    const [{ id } = { id: "" }] = await join();
    await asOwner.query("UPDATE corral.processes SET lease_until = lease_until - 100000 WHERE id = $1", [id]);
    await asOwner.query("UPDATE corral.items SET state = 'away', owner = $1 WHERE position = 2", [id]);
    expect(await join()).toHaveLength(1);
    expect(await asOwner.query("SELECT 1 FROM corral.processes WHERE id = $1", [id])).toHaveLength(1);
    await asOwner.query("UPDATE corral.items SET state = 'queued', owner = NULL WHERE position = 2");
    await asOwner.query("UPDATE corral.limits SET machines_per_role = DEFAULT");
  });

  it("claims once with the same tickets, also if it asks again before the first claim is over", async () => {
    await using member = await machine.work.join({ name: "m", labels: [], slots: 8, version: "0" });
    const of = await owner.create({ ...SPEC, machines: { needs: [], priority: 0, weight: 1 } });
    await owner.load(of, items(4), noCollisions);
    await owner.work.offer(of, { declarations: {}, images: {}, trees: {} });
    const claim = "SELECT attempt, request FROM corral.machine_claim($1, $2, $3)";
    const values = [member.id, [of], ["ticket-1", "ticket-2"]];
    const [first, again] = await asMachine.transaction(async (within) => {
      const claimed = await within.query<{ request: string }>(claim, values);
      const second = asMachine.query<{ request: string }>(claim, values);
      await sleep(300);
      return [claimed, { second }] as const;
    });
    const name = ({ request }: { request: string }): string => request;
    expect((await again.second).map(name).toSorted()).toEqual(first.map(name).toSorted());
    expect(first).toHaveLength(2);
    await owner.work.drain(of);
  });

  it("says why it takes none only of fleets that it could take items of", async () => {
    await using member = await machine.work.join({ name: "m", labels: [], slots: 1, version: "0" });
    const hidden = await owner.create({ ...SPEC, machines: { needs: ["gpu"], priority: 0, weight: 1 } });
    await owner.load(hidden, items(1), noCollisions);
    await owner.work.offer(hidden, { declarations: {}, images: {}, trees: {} });
    await member.refuses(hidden, "a reason");
    await member.refuses(fleet, "another reason");
    const [listed] = (await owner.work.machines()).filter(({ name }) => name === "m");
    expect(listed?.fleets).toMatchObject([{ fleet, why: "another reason" }]);
    await owner.work.drain(hidden);
  });

  it("cannot decide, settle, or take a fleet over", async () => {
    const queue = () => machine.queue(fleet);
    const denied = /permission denied/;
    await expect(queue()).rejects.toThrow(denied);
    await expect(machine.takeOver(fleet)).rejects.toThrow(denied);
    await expect(machine.create(SPEC)).rejects.toThrow(denied);
    await expect(machine.work.offer(fleet, { declarations: {}, images: {}, trees: {} })).rejects.toThrow(denied);
    await expect(machine.work.answer({ fleet, index: 0, attempt: 1, number: 0 }, "{}")).rejects.toThrow(denied);
    await expect(machine.work.questions(fleet, 1)).rejects.toThrow(denied);
    await expect(machine.reviewed([{ fleet, item: 0, run: "r1", counts: { applied: 1 } }])).rejects.toThrow(denied);
  });

  it("cannot change what is counted of it", async () => {
    const setting = `SELECT setval('corral.written_by_${await roleId(asMachine)}', 1)`;
    await expect(asMachine.query(setting)).rejects.toThrow(/permission denied for sequence/);
  });

  it.each([
    "UPDATE corral.fleets SET spec = '{}'",
    "UPDATE corral.fleets SET agreement = '{}', owner = 'me'",
    "UPDATE corral.items SET state = 'done', status = 'succeeded'",
    "INSERT INTO corral.results (fleet, position, json) VALUES (1, 0, '{}')",
    "INSERT INTO corral.intents (fleet, position, json, is_printed) VALUES (1, 0, '{}', false)",
    "UPDATE corral.questions SET answer = '{}'",
    "INSERT INTO corral.questions (fleet, position) VALUES (1, 0)",
    "SELECT json, answer FROM corral.questions",
    "UPDATE corral.deliveries SET json = '{}'",
    "DELETE FROM corral.fleets",
    "SELECT spec FROM corral.fleets",
    "SELECT json FROM corral.results",
    "SELECT json FROM corral.requests",
    "UPDATE corral.version SET version = 99",
    "UPDATE corral.limits SET machines_per_role = 1000000",
    "SELECT corral.count_written(-1)",
    "SELECT corral.admit_role(current_user)",
    "SELECT digest, content FROM corral.blobs",
    "INSERT INTO corral.blobs (digest, content, used_at) VALUES ('x', 'x', 'infinity')",
    "UPDATE corral.blobs SET used_at = 'infinity'",
    "DELETE FROM corral.blobs",
    "SELECT * FROM corral.offered('x')",
    "CREATE TABLE corral.mine (x int)",
    "CREATE FUNCTION corral.now_ms(int) RETURNS int LANGUAGE sql AS 'SELECT 1'",
  ])("cannot: %s", async (statement) => {
    await expect(asMachine.query(statement)).rejects.toThrow(/permission denied/);
  });
});
