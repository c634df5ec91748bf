import { randomBytes } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, inject, it, vi } from "vitest";
import { openDirectoryBlobs } from "../../../src/blobs/directory-blobs.ts";
import { sendMounts } from "../../../src/blobs/send-mounts.ts";
import { agreementDigest } from "../../../src/fleet/cache/agreement.ts";
import { startFleet } from "../../../src/fleet/fleet.ts";
import type { FleetSpec, ItemRequest } from "../../../src/fleet/model/item.ts";
import type { Agreement, ClaimedWork, Membership } from "../../../src/fleet/model/work.ts";
import { PostgresStore } from "../../../src/fleet/postgres/postgres-store.ts";
import { connectServer } from "../../../src/fleet/postgres/server.ts";
import { settlingDelivered } from "../../../src/fleet/running/begun-effects.ts";
import type { Transport } from "../../../src/fleet/running/fleet-parts.ts";
import { unrunResult } from "../../../src/fleet/running/item-result.ts";
import { requests, SPEC, whole } from "../../fleet/fleet-fixture.ts";
import { memoryEngine } from "../../run/memory-engine.ts";
import { openProject, type ProjectFixture } from "../../run/project-fixture.ts";

const HOME = { cache: true, concurrency: 1 };
const AWAY = { cache: true, concurrency: 0, machines: { needs: [], priority: 0, weight: 1 } } as const;

const WRITES = { zones: [{ name: "data" }, { name: "out", mode: "rw", approval: "pre_approved" }] };

let project: ProjectFixture;
let store: PostgresStore;
let transport: Transport;
/** Runs at home. */
let ranHere = 0;
/** Called when the directories of a fleet were sent. */
let onSent = (): void => {};

beforeAll(async () => {
  const engine = memoryEngine({
    programs: {
      w: async () => {
        ranHere += 1;
        return 0;
      },
    },
  });
  const sandbox = { zones: [{ name: "data" }] };
  const worker = { command: ["w"], output: "text", sandbox };
  project = await openProject(
    {
      policy: "batch",
      zones: { data: "ro", out: "rw" },
      workers: { w: worker, writes: { ...worker, sandbox: WRITES } },
    },
    { engine: engine.open },
  );
  const schema = `test_${randomBytes(6).toString("hex")}`;
  const options = { project: randomBytes(32).toString("hex"), schema, self: "coordinator" };
  store = await PostgresStore.open(await connectServer(inject("postgres") ?? "", schema), {
    ...{ ...options, isDead: () => false, isAlive: () => false },
  });
  mkdirSync(join(project.stateDir, "blobs"));
  const blobs = await openDirectoryBlobs(join(project.stateDir, "blobs"));
  transport = {
    ...{ version: "0", blobs, settleChanges: settlingDelivered(blobs) },
    async sendTrees({ mounts }, signal) {
      const sent = await sendMounts(mounts, { store: blobs, signal });
      onSent();
      return Object.fromEntries(sent.map(({ path, digest }) => [path, digest]));
    },
  };
});
afterAll(async () => {
  await store[Symbol.asyncDispose]();
  await project[Symbol.asyncDispose]();
});

type Machine = (machine: Membership, fleet: string) => Promise<void>;

/** The results of a fleet, as `key: status output`; `machine` does what it likes as soon as the fleet is offered. */
async function ran(
  spec: Partial<FleetSpec>,
  asked: readonly (string | (Partial<ItemRequest> & { key: string }))[],
  machine?: Machine,
): Promise<string[]> {
  const each = asked.map((one) => (typeof one === "string" ? { key: one, input: one } : one));
  const [items, keys] = [requests(each), each.map(({ key }) => key)];
  const env = { run: project.corral.environment, store, onEvent: () => {}, stop: new AbortController().signal };
  const opened = await startFleet({ ...SPEC, ...spec }, items, { ...env, transport });
  if (!opened.ok) throw new Error(JSON.stringify(opened));
  await using member = await store.work.join({ name: "m", labels: ["gpu"], slots: 9, version: "0" });
  const working = machine?.(member, opened.fleet.id);
  const { results } = await whole(opened);
  await working;
  for (const { machine: on, status } of results.values()) if (status === "cached") expect(on).toBeUndefined();
  return keys.map((key) => `${key}: ${results.get(key)?.status} ${results.get(key)?.output ?? ""}`.trim());
}

async function agreedOf(machine: Membership, fleet: string): Promise<string> {
  const offered = () => machine.offers().then((offers) => offers.find((offer) => offer.fleet === fleet));
  await expect.poll(offered).toBeDefined();
  const offer = await offered();
  if (offer === undefined) throw new Error("it is offered no more");
  return agreementDigest(offer.agreement as Agreement);
}

let made = 0;
const claim = (machine: Membership, fleet: string): Promise<readonly ClaimedWork[]> =>
  machine.claim([fleet], 9, () => {
    made += 1;
    return { run: `r${made}`, cell: null };
  });

const deliver = (machine: Membership, fleet: string, item: ClaimedWork, output: string, more: unknown) =>
  machine.deliver(fleet, item.request.index, item.attempt, {
    result: { ...unrunResult(item, "succeeded"), run: item.run, attempt: item.attempt, exitCode: 0, output },
    ...{ streams: { stdout: output, stderr: "" }, changeset: null, more },
  });

/** Delivers this output for all items; `meanwhile` runs before. */
const says =
  (output: string, meanwhile: () => void = () => {}, more?: unknown): Machine =>
  async (machine, fleet) => {
    const agreed = await agreedOf(machine, fleet);
    const items = await claim(machine, fleet);
    meanwhile();
    for (const item of items)
      expect(await deliver(machine, fleet, item, output, more === undefined ? { agreed } : more)).toEqual({ ok: true });
  };

const idle: Machine = async () => {};

it("a machine's result counts for fleets with machines of the same labels, and for no fleet at home", async () => {
  expect(await ran(AWAY, ["a"], says("forged"))).toEqual(["a: succeeded forged"]);
  // No machine has to run it again.
  expect(await ran(AWAY, ["a"], idle)).toEqual(["a: cached forged"]);
  expect(await ran({ ...AWAY, concurrency: 1 }, ["a"], idle)).toEqual(["a: cached forged"]);
  const needs = { ...AWAY, machines: { ...AWAY.machines, needs: ["gpu"] } };
  expect(await ran(needs, ["a"], says("of gpu"))).toEqual(["a: succeeded of gpu"]);

  const before = ranHere;
  expect(await ran(HOME, ["a"])).toEqual(["a: succeeded"]);
  expect(ranHere).toBe(before + 1);
  // What ran at home is believed before what a machine said, also with machines.
  expect(await ran(HOME, ["a"])).toEqual(["a: cached"]);
  expect(await ran(AWAY, ["a"], idle)).toEqual(["a: cached"]);
});

it("a fleet whose items all have earlier results is offered to no machine", async () => {
  expect(await ran(AWAY, ["e"], says("known"))).toEqual(["e: succeeded known"]);
  const offer = vi.spyOn(store.work, "offer");
  try {
    expect(await ran(AWAY, ["e"], idle)).toEqual(["e: cached known"]);
    expect(offer).not.toHaveBeenCalled();
    expect(await ran(AWAY, ["e", "e2"], says("new"))).toEqual(["e: cached known", "e2: succeeded new"]);
    expect(offer).toHaveBeenCalledOnce();
  } finally {
    offer.mockRestore();
  }
});

it("a machine that does not say what it ran with, or names something else, makes no entry", async () => {
  for (const more of [null, { agreed: "0".repeat(64) }, { agreed: 1 }, "agreed"])
    expect(
      await ran(
        AWAY,
        ["b"],
        says("forged", () => {}, more),
      ),
    ).toEqual(["b: succeeded forged"]);
  expect(await ran(AWAY, ["b"], says("true"))).toEqual(["b: succeeded true"]);
});

it("a directory that changes after it was sent makes no entry, though the change is undone", async () => {
  const file = join(project.dir, "data/file");
  writeFileSync(file, "1");
  const touched = () => {
    writeFileSync(file, "2");
    writeFileSync(file, "1");
  };
  expect(await ran(AWAY, ["c"], says("of 1", touched))).toEqual(["c: succeeded of 1"]);
  expect(await ran(AWAY, ["c"], says("again"))).toEqual(["c: succeeded again"]);
  writeFileSync(file, "2");
  expect(await ran(AWAY, ["c"], says("of 2"))).toEqual(["c: succeeded of 2"]);
  writeFileSync(file, "1");
  expect(await ran(AWAY, ["c"], idle)).toEqual(["c: cached again"]);
});

it("a delivery that is late makes no entry", async () => {
  const late: Machine = async (machine, fleet) => {
    const agreed = await agreedOf(machine, fleet);
    const [first] = await claim(machine, fleet);
    if (first === undefined) throw new Error("there is no item");
    await machine.giveBack(fleet, 0, first.attempt, 0);
    const [second] = await claim(machine, fleet);
    expect(await deliver(machine, fleet, first, "late", { agreed })).toMatchObject({ ok: false, code: "fenced" });
    if (second !== undefined) await deliver(machine, fleet, second, "in time", { agreed });
  };
  expect(await ran(AWAY, ["d"], late)).toEqual(["d: succeeded in time"]);
  expect(await ran(AWAY, ["d"], idle)).toEqual(["d: cached in time"]);
});

it("a directory that changes as soon as it was sent makes no entry for what it is then", async () => {
  const file = join(project.dir, "data/file");
  writeFileSync(file, "3");
  onSent = () => writeFileSync(file, "4");
  expect(await ran(AWAY, ["e"], says("of 3"))).toEqual(["e: succeeded of 3"]);
  onSent = () => {};
  expect(await ran(AWAY, ["e"], says("of 4"))).toEqual(["e: succeeded of 4"]);
});

it("what an item reads of another item's output makes no entry: machines have it as it was before", async () => {
  const items = [
    { key: "f", allowRead: ["/out/g", "/out/f"], allowWrite: ["/out/f"] },
    { key: "g", allowRead: ["/data", "/out/g"], allowWrite: ["/out/g"] },
  ];
  for (const { key } of items) mkdirSync(join(project.dir, "out", key));
  const away = { ...AWAY, worker: "writes" };
  expect(await ran(away, items, says("1"))).toEqual(["f: succeeded 1", "g: succeeded 1"]);
  expect(await ran(away, items, says("2"))).toEqual(["f: succeeded 2", "g: cached 1"]);
});
