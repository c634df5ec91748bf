import { mkdirSync, mkdtempSync, realpathSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, inject, it } from "vitest";
import { openFleetStore } from "../../../src/fleet/open-store.ts";
import { listFleets, showFleet } from "../../../src/operations/fleets.ts";
import { pendingItems } from "../../../src/operations/pending-items.ts";
import { pendingFleet } from "../../operations/pending-fleet.ts";

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
      expect(await two.takeOverToRetry(fleet)).toMatchObject({ ok: false, code: "unknown" });
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
