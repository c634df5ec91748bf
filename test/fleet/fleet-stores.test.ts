import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { FleetStores, openFleetStore } from "../../src/fleet/fleet-stores.ts";
import type { FleetStore } from "../../src/fleet/model/store.ts";
import { SPEC } from "./journal/journal-fixture.ts";

let dir: string;
beforeEach(() => {
  dir = realpathSync(mkdtempSync(join(tmpdir(), "corral-stores-")));
});
afterEach(() => rmSync(dir, { recursive: true }));

const state = () => join(dir, "state");
const project = () => join(dir, "project");

async function newFleet(): Promise<{ readonly id: string }> {
  await using store = await openFleetStore(state(), project(), {});
  return { id: await store.create(SPEC) };
}

const isClosed = async (store: FleetStore): Promise<boolean> =>
  await store.list(1).then(
    () => false,
    () => true,
  );

describe("the stores of one command", () => {
  it("are opened once, however many changesets ask for theirs, and closed at its end", async () => {
    const fleets = [await newFleet(), await newFleet()];
    await using stores = new FleetStores(state(), {});
    const used = new Set<unknown>();
    for (const fleet of [...fleets, ...fleets])
      await stores.withStoreOf(fleet, project(), async (store) => used.add(store));
    await Promise.all(fleets.map((fleet) => stores.withStoreOf(fleet, project(), async (store) => used.add(store))));
    const [store] = used as Set<FleetStore>;
    expect([used.size, await isClosed(store as FleetStore)]).toEqual([1, false]);
    await stores[Symbol.asyncDispose]();
    expect(await isClosed(store as FleetStore)).toBe(true);
    expect(await stores.withStoreOf(fleets[0] as { id: string }, project(), async (again) => again !== store)).toBe(
      true,
    );
  });

  it("are opened anew after a failure", async () => {
    const fleet = await newFleet();
    await using stores = new FleetStores(state(), {});
    let failed: unknown = null;
    const failing = stores.withStoreOf(fleet, project(), async (store) => {
      failed = store;
      throw new Error("the connection is lost");
    });
    await expect(failing).rejects.toThrow("the connection is lost");
    expect(await isClosed(failed as FleetStore)).toBe(true);
    expect(await stores.withStoreOf(fleet, project(), async (store) => store !== failed)).toBe(true);
  });

  it("are opened anew after a failure, also if another step uses the failed one longer", async () => {
    const fleet = await newFleet();
    await using stores = new FleetStores(state(), {});
    const [begun, ends] = [Promise.withResolvers<FleetStore>(), Promise.withResolvers<void>()];
    const longer = stores.withStoreOf(fleet, project(), async (store) => {
      begun.resolve(store as FleetStore);
      await ends.promise;
      return await isClosed(store as FleetStore);
    });
    const failed = await begun.promise;
    const failing = stores.withStoreOf(fleet, project(), async () => Promise.reject(new Error("lost")));
    await expect(failing).rejects.toThrow("lost");
    expect(await stores.withStoreOf(fleet, project(), async (store) => store !== failed)).toBe(true);
    ends.resolve();
    expect([await longer, await isClosed(failed)]).toEqual([false, true]);
    expect(await stores.withStoreOf(fleet, project(), async (store) => store !== failed)).toBe(true);
  });

  it("have a fleet that was made in them no more, or are not named now", async () => {
    await using stores = new FleetStores(state(), {});
    const asked = async (fleet: { id: string; store?: string }) =>
      await stores.withStoreOf(fleet, project(), async (store) => store);
    expect(await asked({ id: "00000000000a" })).toBe("removed");
    expect(await asked({ id: "00000000000a", store: "postgres://elsewhere/corral" })).toBe("elsewhere");
  });
});
