import { mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openFleetStore } from "../../src/fleet/fleet-stores.ts";
import { Database } from "../../src/fleet/journal/database.ts";
import { listGrants, revokeGrant } from "../../src/operations/approvals.ts";
import {
  auditRecords,
  listTranscripts,
  newestAuditRecords,
  readTranscript,
  verifyAudit,
} from "../../src/operations/audit.ts";
import {
  cancelFleet,
  fleetReport,
  fleetResults,
  listFleets,
  removeFleets,
  showFleet,
} from "../../src/operations/fleets.ts";
import { RequestError } from "../../src/operations/request-error.ts";
import { workerNamed } from "../../src/operations/workers.ts";
import { openTrail } from "../../src/run/recorded/run-history.ts";
import { currentOwner, formatOwner } from "../../src/state/owner.ts";
import { projectPaths } from "../../src/state/state-dir.ts";
import { loadedFleet as loadedIn } from "../fleet/journal/journal-fixture.ts";

let base: string;
let place: { stateDir: string; projectDir: string; engineEnv: Record<string, string> };

beforeEach(async () => {
  base = await realpath(await mkdtemp(join(tmpdir(), "corral-operations-")));
  const engineEnv = { DOCKER_HOST: "unix:///nonexistent/docker.sock" };
  place = { stateDir: join(base, "state"), projectDir: join(base, "project"), engineEnv };
});

afterEach(async () => {
  await rm(base, { recursive: true, force: true });
});

describe("operations on fleets", () => {
  it("list, show and cancel one that this process has loaded, without an Engine", async () => {
    const id = await loadedFleet();
    expect(await listFleets(place)).toMatchObject([{ id, state: "running", counts: { total: 3, done: 0 } }]);
    expect(await showFleet(place, id)).toMatchObject({ id, summary: [], slowest: [], lastFailures: [] });
    await expect(removeFleets(place, { ids: [id] })).rejects.toMatchObject({ code: "FLEET_NOT_ENDED" });
    expect(await cancelFleet(place, id)).toMatchObject({ outcome: "cancelled", items: 3 });
    const results = await Array.fromAsync(await fleetResults(place, id, { status: "cancelled" }));
    expect(results.map(({ status }) => status)).toEqual(["cancelled", "cancelled", "cancelled"]);
    const html = (await Array.fromAsync(await fleetReport(place, id))).join("");
    expect(html).toMatch(/^<!doctype html>/i);
  });

  it("remove only what has ended", async () => {
    const id = await loadedFleet();
    await cancelFleet(place, id);
    await using store = await openFleetStore(place.stateDir, place.projectDir, {});
    expect(await store.end(id)).toBe("cancelled");
    expect(await cancelFleet(place, id)).toMatchObject({ outcome: "ended", state: "cancelled" });
    expect(await removeFleets(place, { endedBefore: 0 })).toEqual([]);
    expect(await removeFleets(place, { ids: [id], endedBefore: Date.now() + 1000 })).toEqual([id]);
    expect(await listFleets(place)).toEqual([]);
  });

  it("take a beginning of an id that no other has, and `latest`", async () => {
    const [first, second] = [await loadedFleet(), await loadedFleet()];
    expect((await showFleet(place, "latest")).id).toBe(second);
    const short = first.slice(0, first[0] === second[0] ? 8 : 1);
    expect((await showFleet(place, short)).id).toBe(first);
    expect(await cancelFleet(place, short)).toMatchObject({ fleet: first, outcome: "cancelled" });
    await expect(showFleet(place, "")).rejects.toMatchObject({ code: "UNKNOWN_FLEET" });
    await expect(showFleet(place, "%")).rejects.toMatchObject({ code: "UNKNOWN_FLEET" });
  });

  it("are interrupted if the process that ran them is dead", async () => {
    const id = await loadedFleet();
    const dead = formatOwner({ ...currentOwner(), startTicks: "1" });
    const path = projectPaths(place.stateDir, place.projectDir).fleets;
    {
      using db = await Database.open(path);
      db.run("UPDATE fleets SET owner = ? WHERE name = ?", dead, id);
    }
    expect(await listFleets(place)).toMatchObject([{ id, state: "interrupted" }]);
    expect(await showFleet(place, id)).toMatchObject({ id, state: "interrupted" });
  });

  it("reject an unknown fleet or status before the first piece", async () => {
    // Each begins when the one before has ended: one that rejects while none waits for it is an unhandled rejection.
    for (const asked of [
      () => showFleet(place, "nobody"),
      () => fleetResults(place, "nobody"),
      () => fleetReport(place, "nobody"),
      () => cancelFleet(place, "nobody"),
      () => removeFleets(place, { ids: ["nobody"] }),
    ])
      await expect(asked()).rejects.toMatchObject({ code: "UNKNOWN_FLEET" });
    const mistyped = fleetResults(place, await loadedFleet(), { status: "faild" });
    await expect(mistyped).rejects.toThrow(/there is no status faild.*`failed`/);
  });
});

describe("operations on the audit trail", () => {
  it("read all, filter, take the newest, and verify", async () => {
    expect(await verifyAudit(place)).toBeNull();
    await using trail = await openTrail(place.stateDir, place.projectDir);
    for (const run of ["aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc"])
      await trail.append({ type: "run_requested", run, root: run, worker: "w", parent: null, attachments: [] });
    const all = (await Array.fromAsync(auditRecords(place))).flatMap(({ records }) => records);
    expect(all.map(({ run }) => run)).toEqual(["aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc"]);
    const newest = await newestAuditRecords(place, { type: "run_requested" }, 2);
    expect(newest).toMatchObject({
      sealed: 3,
      foreign: 0,
      records: [{ run: "bbbbbbbbbbbb" }, { run: "cccccccccccc" }],
    });
    expect((await newestAuditRecords(place, { run: "aaaaaaaaaaaa" }, 9)).records).toHaveLength(1);
    expect((await newestAuditRecords(place, { since: Date.now() + 60_000 }, 9)).records).toEqual([]);
    await expect(newestAuditRecords(place, { type: "run_requestd" }, 1)).rejects.toMatchObject({
      code: "UNKNOWN_VALUE",
    });
    expect(await verifyAudit(place)).toMatchObject({ ok: true, records: 3 });
  });
});

describe("what does not exist", () => {
  it("is an error with a code, and an empty list is none", async () => {
    expect(await listGrants(place.stateDir)).toEqual([]);
    await expect(revokeGrant(place.stateDir, "0123456789ab")).rejects.toMatchObject({ code: "UNKNOWN_GRANT" });
    expect(await listTranscripts(place)).toEqual([]);
    await expect(readTranscript(place, "0123456789ab")).rejects.toMatchObject({ code: "UNKNOWN_TRANSCRIPT" });
    const workers = new Map([["extract", {}]]) as never;
    expect(() => workerNamed("extrakt", { workers })).toThrow(/did you mean `extract`/);
    const error = await Promise.resolve()
      .then(() => workerNamed("\u001b[2J", { workers }))
      .catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(RequestError);
    expect(error).toMatchObject({ code: "UNKNOWN_WORKER", asked: "\u001b[2J" });
    // A name that a client chose cannot move a reader's cursor.
    expect((error as Error).message).toBe("there is no worker \\u{1b}[2J; there are: extract");
  });
});

async function loadedFleet(): Promise<string> {
  await using store = await openFleetStore(place.stateDir, place.projectDir, {});
  return await loadedIn(store, 3);
}
