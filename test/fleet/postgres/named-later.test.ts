import { existsSync, mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, inject, it, vi } from "vitest";
import { openFleetStore } from "../../../src/fleet/fleet-stores.ts";
import { PostgresStore } from "../../../src/fleet/postgres/postgres-store.ts";
import { PostgresWork } from "../../../src/fleet/postgres/work.ts";
import { Changesets } from "../../../src/operations/changesets.ts";
import { QueueMachines, showFleet } from "../../../src/operations/fleets.ts";
import { changesetStore } from "../../../src/run/changes/into-project.ts";
import { pendingFleet } from "../../operations/pending-fleet.ts";

const RUN = "00000000000a";

let place: { stateDir: string; projectDir: string };
let queue: Record<string, string>;

beforeEach(() => {
  const base = realpathSync(mkdtempSync(join(tmpdir(), "corral-named-")));
  place = { stateDir: join(base, "state"), projectDir: join(base, "project") };
  queue = { CORRAL_QUEUE: inject("postgres") ?? "" };
  for (const dir of Object.values(place)) mkdirSync(dir, { mode: 0o700 });
  writeFileSync(join(place.projectDir, "corral.yaml"), "version: 1\n");
});
afterEach(() => rmSync(join(place.stateDir, ".."), { recursive: true, force: true }));

type Env = Record<string, string>;

/** Which database it is, as its changeset knows it. */
async function pendingIn(env: Env) {
  await using store = await openFleetStore(place.stateDir, place.projectDir, env);
  const { database } = store;
  return await pendingFleet(store, place, RUN, database === null ? {} : { store: database });
}

const changesetsWith = (env: Env) => Changesets.open(place.stateDir, env);
const left = () => readdirSync(join(place.stateDir, "changes"));
const stateOf = async (fleet: string, engineEnv: Env) => (await showFleet({ ...place, engineEnv }, fleet)).state;

describe("the changes of a fleet's item, when another store of fleets is named than when it ran", () => {
  it("are applied from the journal although a database is named now, and the journal knows it", async () => {
    const { fleet, made, remove } = await pendingIn({});
    try {
      const applied = await (await changesetsWith(queue)).apply(RUN, { approval: "agreed" });
      expect(applied.changes).toMatchObject([{ outcome: "applied" }]);
      expect([existsSync(made), left()]).toEqual([true, []]);
      expect(await stateOf(fleet, {})).toBe("done");
    } finally {
      remove();
    }
  });

  it("wait while their database is not named: nothing is applied or discarded", async () => {
    const { fleet, made, remove } = await pendingIn(queue);
    try {
      const changesets = await changesetsWith({});
      const refused = { code: "CHANGESET_BUSY", message: expect.stringContaining("which is not in use now") };
      await expect(changesets.apply(RUN, { approval: "agreed" })).rejects.toMatchObject(refused);
      await expect(changesets.discard(RUN)).rejects.toMatchObject(refused);
      expect([existsSync(made), left()]).toEqual([false, [RUN]]);
      await (await changesetsWith(queue)).apply(RUN, { approval: "agreed" });
      expect([existsSync(made), left()]).toEqual([true, []]);
      expect(await stateOf(fleet, queue)).toBe("done");
    } finally {
      remove();
    }
  });

  it("keep their end until their database is named again", async () => {
    const { fleet, remove } = await pendingIn(queue);
    remove();
    await changesetStore(place.stateDir).discard(RUN);
    await changesetsWith({});
    expect(left()).toEqual([`.ended-${RUN}`]);
    expect(await stateOf(fleet, queue)).toBe("done");
    expect(left()).toEqual([]);
  });

  it("are free when their fleet was removed from its own store", async () => {
    const { fleet, made, remove } = await pendingIn(queue);
    try {
      await using store = await openFleetStore(place.stateDir, place.projectDir, queue);
      expect(await store.forget(fleet)).toBe(true);
      await (await changesetsWith(queue)).apply(RUN, { approval: "agreed" });
      expect([existsSync(made), left()]).toEqual([true, []]);
    } finally {
      remove();
    }
  });
});

it("asks a queue for its machines over one store, and once for all who ask at the same time", async () => {
  const opened = vi.spyOn(PostgresStore, "open");
  const asked = vi.spyOn(PostgresWork.prototype, "machines");
  try {
    await using queues = new QueueMachines(place.stateDir, queue);
    const all = await Promise.all([1, 2, 3].map(() => queues.list([place.projectDir])));
    expect(all[0]).toEqual(all[2]);
    expect([opened.mock.calls.length, asked.mock.calls.length]).toEqual([1, 1]);
    await queues.list([place.projectDir]);
    expect([opened.mock.calls.length, asked.mock.calls.length]).toEqual([1, 2]);
    asked.mockRejectedValueOnce(new Error("the connection is lost"));
    await expect(queues.list([place.projectDir])).rejects.toThrow("the connection is lost");
    await queues.list([place.projectDir]);
    expect(opened.mock.calls.length).toBe(2);
  } finally {
    vi.restoreAllMocks();
  }
});
