import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { openPostgresBlobs } from "../../../src/blobs/postgres/postgres-blobs.ts";
import type { Connection } from "../../../src/fleet/postgres/connection.ts";
import { machineGrants } from "../../../src/fleet/postgres/machine-role.ts";
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
  await openPostgresBlobs(asOwner);
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
    await member.stands(fleet, "a reason");
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

  it("cannot decide, settle, or take a fleet over", async () => {
    const queue = () => machine.queue(fleet);
    const denied = /permission denied/;
    await expect(queue()).rejects.toThrow(denied);
    await expect(machine.takeOver(fleet)).rejects.toThrow(denied);
    await expect(machine.create(SPEC)).rejects.toThrow(denied);
    await expect(machine.work.offer(fleet, { declarations: {}, images: {}, trees: {} })).rejects.toThrow(denied);
    await expect(machine.reviewed([{ fleet, item: 0, run: "r1", counts: { applied: 1 } }])).rejects.toThrow(denied);
  });

  it.each([
    "UPDATE corral.fleets SET spec = '{}'",
    "UPDATE corral.fleets SET agreement = '{}', owner = 'me'",
    "UPDATE corral.items SET state = 'done', status = 'succeeded'",
    "INSERT INTO corral.results (fleet, position, json) VALUES (1, 0, '{}')",
    "INSERT INTO corral.intents (fleet, position, json, is_printed) VALUES (1, 0, '{}', false)",
    "UPDATE corral.deliveries SET json = '{}'",
    "DELETE FROM corral.fleets",
    "SELECT spec FROM corral.fleets",
    "SELECT json FROM corral.results",
    "SELECT json FROM corral.requests",
    "UPDATE corral.version SET version = 99",
    "SELECT * FROM corral.offered('x')",
    "CREATE TABLE corral.mine (x int)",
    "CREATE FUNCTION corral.now_ms(int) RETURNS int LANGUAGE sql AS 'SELECT 1'",
  ])("cannot: %s", async (statement) => {
    await expect(asMachine.query(statement)).rejects.toThrow(/permission denied/);
  });
});
