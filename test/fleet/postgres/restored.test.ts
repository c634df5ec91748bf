import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { PostgresStore } from "../../../src/fleet/postgres/postgres-store.ts";
import { connectServer } from "../../../src/fleet/postgres/server.ts";
import { loadedFleet, settlementOf } from "../journal/journal-fixture.ts";
import { serverPrograms, startServer } from "./server-fixture.ts";

const machine = { name: "m", labels: [], slots: 1, version: "1" };
const newAttempt = (run: string) => () => ({ run, cell: null });

describe("a database that was restored to an earlier state", () => {
  it("runs again what was recorded after that, refuses what was claimed then, and knows no process of then", async () => {
    await using server = await startServer();
    const url = (database: string): string => server.url.replace("/postgres?", `/${database}?`);
    const begunDir = join(server.dir, "begun");
    const at = async (self: string, database = "postgres", more: { begunDir?: string } = { begunDir }) =>
      await PostgresStore.open(await connectServer(url(database)), {
        ...more,
        ...{ project: "p", self, isDead: (owner: string) => owner !== self, isAlive: () => false },
      });
    const psql = (program: string, ...args: string[]): string =>
      execFileSync(join(serverPrograms() ?? "", program), ["-h", server.dir, "-U", "postgres", ...args], {
        encoding: "utf8",
        maxBuffer: 64 * 1024 ** 2,
      });
    await using before = await at("before");
    const fleet = await loadedFleet(before, 4);
    const queue = await before.queue(fleet);
    const settled = async (run: string): Promise<number> => {
      const [item] = (await queue.claim(1, newAttempt(run))).items;
      if (item === undefined) throw new Error("no item is left");
      const { index } = item.request;
      const intent = settlementOf(index, { run, attempt: 1 });
      expect((await queue.begin(index, 1, intent)).ok).toBe(true);
      expect((await queue.settle(index, 1, settlementOf(index, { run, attempt: 1 }))).ok).toBe(true);
      return index;
    };
    expect(await settled("run-0")).toBe(0);
    await using earlier = (await before.work?.join(machine)) ?? expect.fail("no machines");
    psql("pg_dump", "-Fc", "-f", join(server.dir, "dump"), "postgres");
    expect(await settled("run-1")).toBe(1);
    const [begun] = (await queue.claim(1, newAttempt("run-2"))).items;
    expect(begun?.request.index).toBe(2);

    psql("createdb", "restored");
    psql("pg_restore", "-d", "restored", join(server.dir, "dump"));
    // On the same machine it is noticed: nothing is taken over, and no effect begins for the second time.
    const older = /^The queue is older than the files of this machine: 1 item of fleet .* had begun to change files/;
    await using guarded = await at("guarded", "restored");
    // An attempt that was given back is no retry: one of a coordinator that continued over the restore.
    await using continuing = await at("before", "restored");
    const over = await continuing.queue(fleet);
    const [claimed] = (await over.claim(1, newAttempt("withdrawn"))).items;
    expect(claimed?.request.index).toBe(1);
    expect((await over.requeue(1, 1, 0, "withdrawn")).ok).toBe(true);
    await expect(guarded.takeOver(fleet)).rejects.toThrow(older);
    await expect(guarded.takeOver(fleet, { retries: true })).rejects.toThrow(older);
    const twice = (await guarded.queue(fleet)).begin(1, 1, settlementOf(1, { run: "again", attempt: 1 }));
    await expect(twice).rejects.toThrow(older);
    await expect(guarded.failed(fleet).next()).rejects.toThrow(older);
    expect((await guarded.find(fleet))?.owner).toBe("before");
    // The same of a database that forgot nothing, also if an item was retried since, and its new attempt was given back.
    await using current = await at("current");
    expect(await current.takeOver(fleet)).toMatchObject({ ok: true, fleet: { counts: { done: 2 } } });
    const on = await current.queue(fleet);
    const [failing] = (await on.claim(1, newAttempt("run-3"))).items;
    const failed = settlementOf(3, { run: "run-3", status: "failed" });
    expect(failing?.request.index).toBe(3);
    expect((await on.begin(3, 1, failed)).ok).toBe(true);
    expect((await on.settle(3, 1, failed)).ok).toBe(true);
    expect(await current.retryFailed(fleet)).toBe(1);
    expect((await on.claim(1, newAttempt("run-4"))).items).toMatchObject([{ request: { index: 3 }, attempt: 2 }]);
    expect((await on.requeue(3, 2, 0, "withdrawn")).ok).toBe(true);
    await using next = await at("next");
    expect(await next.takeOver(fleet)).toMatchObject({ ok: true, fleet: { counts: { done: 2 } } });
    // Who accepts it removes the file.
    await rm(join(begunDir, fleet));
    await using after = await at("after", "restored");
    expect(await after.takeOver(fleet)).toMatchObject({ ok: true, fleet: { counts: { done: 1, queued: 3 } } });
    const again = await after.queue(fleet);
    // An answer of the time before does not count.
    const late = await again.settle(2, 1, settlementOf(2, { run: "run-2", attempt: 1 }));
    expect(late).toMatchObject({ ok: false, code: "fenced" });
    // The database does not know what was recorded after the backup: this item runs for the second time.
    const { items } = await again.claim(3, () => ({ run: randomUUID(), cell: null }));
    expect(items.find(({ request }) => request.index === 1)).toMatchObject({ attempt: 2 });
    // A machine joins again: its lease was ended by the time that has passed.
    await using direct = await connectServer(url("restored"));
    await direct.query("UPDATE corral.processes SET lease_until = 0 WHERE is_machine");
    expect(await direct.query("SELECT corral.machine_renew($1, 1000) AS renewed", [earlier.id])).toEqual([
      { renewed: false },
    ]);
    expect(await after.work?.machines()).toEqual([]);
  }, 60_000);
});

describe.skipIf(serverPrograms() === null)("a queue that a newer Corral has changed", () => {
  it("is refused by an older one, with what to do", async () => {
    await using server = await startServer();
    const options = { project: "p", self: "me", isDead: () => false, isAlive: () => true };
    await (await PostgresStore.open(await connectServer(server.url), options))[Symbol.asyncDispose]();
    await using direct = await connectServer(server.url);
    await direct.query("UPDATE corral.version SET version = 99");
    await expect(PostgresStore.open(await connectServer(server.url), options)).rejects.toThrow(
      /^The queue has version 99, but this Corral supports only \d+\. Use the newer Corral\.$/,
    );
  });
});
