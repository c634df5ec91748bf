import { mkdirSync, mkdtempSync, realpathSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, inject, it } from "vitest";
import { openFleetStore } from "../../../src/fleet/fleet-stores.ts";
import { connectServer } from "../../../src/fleet/postgres/server.ts";
import { listFleets, pendingItems, showFleet } from "../../../src/operations/fleets.ts";
import { currentOwner, formatOwner } from "../../../src/state/owner.ts";
import { pendingFleet } from "../../operations/pending-fleet.ts";
import { attempts, loadedFleet, settlementOf } from "../journal/journal-fixture.ts";

let base: string;
let env: Record<string, string>;
let projectDir: string;

beforeEach(() => {
  base = realpathSync(mkdtempSync(join(tmpdir(), "corral-states-")));
  env = { CORRAL_QUEUE: inject("postgres") ?? "" };
  projectDir = join(base, "project");
  for (const name of ["project", "one", "two"]) mkdirSync(join(base, name), { mode: 0o700 });
});
afterEach(() => rmSync(base, { recursive: true, force: true }));

const place = (name: string) => ({ stateDir: join(base, name), projectDir, engineEnv: env });

describe("a fleet in a database", () => {
  it("belongs to the state directory in which its changes wait, and another one does not see it", async () => {
    await using one = await openFleetStore(join(base, "one"), projectDir, env);
    const { fleet, remove } = await pendingFleet(one, place("one"), "00000000000a");
    try {
      await using two = await openFleetStore(join(base, "two"), projectDir, env);
      expect([await two.find(fleet), await two.list(), await two.like(fleet, 9)]).toEqual([null, [], []]);
      expect(await two.takeOver(fleet)).toMatchObject({ ok: false, code: "unknown" });
      expect(await two.takeOver(fleet, { retries: true })).toMatchObject({ ok: false, code: "unknown" });
      expect(await two.reviewed([{ fleet, item: 0, run: "00000000000a", counts: { discarded: 1 } }])).toEqual([]);
      expect([await two.forget(fleet), await two.discard(fleet)]).toEqual([false, false]);
      await expect(pendingItems(place("two"), "latest")).rejects.toMatchObject({ code: "UNKNOWN_FLEET" });
      await expect(pendingItems(place("two"), fleet)).rejects.toMatchObject({ code: "UNKNOWN_FLEET" });

      expect(await showFleet(place("one"), fleet)).toMatchObject({ state: "pending", counts: { pending: 1 } });
      const { each } = await pendingItems(place("one"), "latest");
      expect((await Array.fromAsync(each())).map(({ run }) => run)).toEqual(["00000000000a"]);
    } finally {
      remove();
    }
  });

  it("goes with its state directory to another path", async () => {
    await using one = await openFleetStore(join(base, "one"), projectDir, env);
    const { fleet, remove } = await pendingFleet(one, place("one"), "00000000000b");
    remove();
    renameSync(join(base, "one"), join(base, "moved"));
    expect((await listFleets(place("moved"))).map(({ id }) => id)).toEqual([fleet]);
  });

  it("records no decision when a command only reads, also if the changes are not there", async () => {
    await using one = await openFleetStore(join(base, "one"), projectDir, env);
    const { fleet, remove } = await pendingFleet(one, place("one"), "00000000000c");
    remove();
    rmSync(join(base, "one/changes"), { recursive: true });
    expect(await Array.fromAsync((await pendingItems(place("one"), fleet)).each())).toEqual([]);
    expect((await showFleet(place("one"), fleet)).counts.pending).toBe(1);
    expect(await Array.fromAsync((await pendingItems(place("one"), fleet, { decides: true })).each())).toEqual([]);
    expect((await showFleet(place("one"), fleet)).counts.pending).toBe(0);
  });
});

describe("a process that has lost a fleet and takes it over again", () => {
  it("refuses all of its earlier run, and the fleet is that of the process", async () => {
    const open = async () => await openFleetStore(join(base, "one"), projectDir, env);
    await using earlier = await open();
    const fleet = await loadedFleet(earlier, 1);
    const newAttempt = attempts();
    const old = await earlier.queue(fleet);
    expect((await old.claim(1, newAttempt)).items.map(({ request }) => request.index)).toEqual([0]);
    await using again = await open();
    expect(await again.takeOver(fleet)).toMatchObject({ ok: false, code: "owned" });

    // A process of another container took it meanwhile, and has ended.
    await using direct = await connectServer(env.CORRAL_QUEUE ?? "");
    const elsewhere = formatOwner({ ...currentOwner(), pidNamespace: "pid:[1]" });
    await direct.query("UPDATE corral.fleets SET owner = $1 WHERE name = $2", [elsewhere, fleet]);
    const taken = await again.takeOver(fleet);
    if (!taken.ok) throw new Error(taken.reason);
    for (const item of taken.running) await again.fenced(fleet, item);
    const now = await again.queue(fleet);
    const [item] = (await now.claim(1, newAttempt)).items;
    expect(item).toMatchObject({ request: { index: 0 }, attempt: 2 });

    expect(await old.claim(1, newAttempt)).toMatchObject({ items: [], fleet: "taken" });
    expect(await old.begin(0, 2, settlementOf(0))).toMatchObject({ ok: false, code: "taken" });
    expect(await old.settle(0, 2, settlementOf(0))).toMatchObject({ ok: false, code: "taken" });
    expect(await old.requeue(0, 2, 0)).toMatchObject({ ok: false, code: "taken" });
    expect([await earlier.end(fleet), await earlier.pause(fleet, "a test")]).toEqual([null, false]);
    expect(await again.find(fleet)).toMatchObject({ state: "running", owner: formatOwner(currentOwner()) });
    // The end of the earlier run is not that of the lease of the new one.
    await earlier[Symbol.asyncDispose]();
    const leases = await direct.query(
      "SELECT 1 FROM corral.processes p JOIN corral.fleets f ON f.owner = p.id WHERE f.name = $1",
      [fleet],
    );
    expect(leases).toHaveLength(1);
    expect(await now.settle(0, 2, settlementOf(0))).toEqual({ ok: true });
  });
});
