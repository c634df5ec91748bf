import { existsSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Approver } from "../../src/approval/approver.ts";
import { ChangesetStore } from "../../src/changes/store/changeset-store.ts";
import { Changesets } from "../../src/operations/changesets.ts";
import { pendingItems, removeFleets, showFleet } from "../../src/operations/fleets.ts";
import { runFleet } from "../../src/operations/run-fleet.ts";
import { lockOwner } from "../../src/state/owner.ts";
import { sh } from "../run/project-fixture.ts";
import { type FleetFixture, openFleetProject, requests, SPEC } from "./fleet-fixture.ts";

/** Its input is what it writes in a folder of its own; `pipe` also leaves what is always refused, `fail` fails. */
const SCRIPT = `read -r json; it=$(echo "$json" | tr -d '"'); mkdir -p /out/"$it"; echo "$it" > /out/"$it"/f; echo printed
case $it in pipe*) mkfifo /out/"$it"/p;; fail*) exit 1;; esac`;

function project(approval: unknown = {}): Promise<FleetFixture> {
  return openFleetProject({
    workers: { w: { command: sh(SCRIPT), sandbox: { zones: [{ name: "out", mode: "rw", approval: "ask" }] } } },
    zones: { out: "rw" },
    files: { "out/keep": "" },
    yaml: { approval },
  });
}

const items = (...keys: string[]) => keys.map((key) => ({ key, input: key }));

describe("a fleet whose items' changes wait for consent", () => {
  it("ends as pending: such items are no failures, say which changeset waits, and count for no limit of failures", async () => {
    await using f = await project();
    const { summary, results } = await f.map({ maxFailures: 0 }, items("a", "b", "pipe"));
    expect(summary).toMatchObject({ state: "pending", why: null, done: 3, byStatus: { pending: 3 }, byReason: {} });
    const a = results.get("a");
    expect(a).toMatchObject({ exitCode: 0, output: "printed\n", error: { code: "CHANGES_HELD" } });
    expect(a?.changeset).toMatchObject({ id: a?.run, counts: { held: 2, denied: 0, applied: 0, refused: 0 } });
    expect(results.get("pipe")?.changeset).toMatchObject({ counts: { held: 2, refused: 1 } });
    expect(await f.journal.find(summary.fleet)).toMatchObject({
      state: "pending",
      counts: { failed: 0, pending: 3, done: 3 },
    });
    expect(await f.journal.lastFailures(summary.fleet, 9)).toEqual([]);
    expect(await Array.fromAsync(f.journal.failed(summary.fleet))).toEqual([]);
    expect(readdirSync(join(f.project.dir, "out"))).toEqual(["keep"]);
  });

  it("is not retried, and what failed beside it is", async () => {
    await using f = await project();
    const { summary } = await f.map({}, items("a", "fail"));
    expect(summary).toMatchObject({ state: "pending", byStatus: { pending: 1, failed: 1 }, byReason: { FAILED: 1 } });
    expect((await Array.fromAsync(f.journal.failed(summary.fleet))).map(({ key }) => key)).toEqual(["fail"]);
    const alone = await f.map({}, items("b"));
    const retried = runFleet(f.project.corral, { kind: "retry", fleet: alone.summary.fleet });
    await expect(retried.next()).rejects.toMatchObject({ code: "FLEET_REFUSED", message: /no failed items/ });
  });

  it("leaves no changes of an attempt whose process died: the item runs again, and its new changes wait", async () => {
    await using f = await project();
    const { results } = await f.map({}, items("a"));
    const run = results.get("a")?.run ?? "";
    // A fleet whose process died after that run, before its result was recorded.
    const id = await f.journal.create(SPEC);
    await f.journal.load(id, requests(items("a")), { collisionsIn: async () => null });
    await (await f.journal.queue(id)).claim(1, () => ({ run, cell: null }));
    const resumed = await f.resume(id);
    const again = resumed.results.get("a")?.run;
    expect(resumed.summary).toMatchObject({ byStatus: { pending: 1 } });
    expect(again).not.toBe(run);
    const kept = await new ChangesetStore(f.project.stateDir, lockOwner()).list();
    expect(kept.map((one) => one.id)).toEqual([again]);
  });

  it("runs again in a later fleet: what waits is no cached success", async () => {
    await using f = await project();
    const own = (key: string) => ({ ...items(key)[0], allowWrite: [`/out/${key}`] });
    const first = await f.map({ cache: true }, [own("a")]);
    const second = await f.map({ cache: true }, [own("a")]);
    expect([first, second].map(({ summary }) => summary.byStatus)).toEqual([{ pending: 1 }, { pending: 1 }]);
    expect(existsSync(join(f.project.dir, "out/a"))).toBe(false);
  });

  it("has failed where a rule of the project denies: nobody is waited for", async () => {
    await using f = await project({ rules: [{ paths: ["/out/**"], decide: "deny", why: "never" }] });
    const { summary, results } = await f.map({}, items("a"));
    expect(summary).toMatchObject({ state: "done", byStatus: { denied: 1 }, byReason: { APPROVAL_DENIED: 1 } });
    expect(results.get("a")?.changeset).toMatchObject({ counts: { denied: 2, held: 0 } });
  });
});

describe("the changes of a fleet that is pending", () => {
  const opened = (f: FleetFixture) => Changesets.open(f.project.stateDir, {});
  const place = (f: FleetFixture) => ({ stateDir: f.project.stateDir, projectDir: f.project.dir, engineEnv: {} });

  it("are applied item by item, and then the fleet is done and its items say so", async () => {
    await using f = await project();
    const { summary, results } = await f.map({}, items("a", "b", "pipe"));
    const changesets = await opened(f);
    const { count, each } = await pendingItems(place(f), summary.fleet);
    expect(count).toBe(3);
    for await (const { run } of each()) await changesets.apply(run, { approval: "agreed" });
    expect(readdirSync(join(f.project.dir, "out"))).toEqual(["a", "b", "keep", "pipe"]);
    expect(readdirSync(join(f.project.dir, "out/pipe"))).toEqual(["f"]);
    const shown = await showFleet(place(f), summary.fleet);
    expect(shown).toMatchObject({ state: "done", counts: { pending: 0, failed: 0, done: 3 } });
    expect(shown.summary).toEqual([
      { status: "applied", code: null, count: 2 },
      { status: "partly_applied", code: "CHANGES_PARTLY_APPLIED", count: 1 },
    ]);
    const after = await Array.fromAsync(f.journal.results(summary.fleet));
    expect(after[0]).toMatchObject({ status: "applied", error: null, changeset: { id: null, counts: { applied: 2 } } });
    expect(after[2]).toMatchObject({ changeset: { id: null, counts: { applied: 2, refused: 1 } } });
    expect(await changesets.list(null)).toEqual([]);
    expect(readdirSync(join(f.project.stateDir, "changes"))).toEqual([]);
    await expect(changesets.show(results.get("a")?.run ?? "")).rejects.toMatchObject({ code: "UNKNOWN_CHANGESET" });
  });

  it("wait as long as one of an item's does, and what is discarded then was applied in part", async () => {
    await using f = await project();
    const { summary, results } = await f.map({}, items("a", "b"));
    const changesets = await opened(f);
    const [a = "", b = ""] = ["a", "b"].map((key) => results.get(key)?.run ?? "");
    const seen = await changesets.foresee(a);
    expect(seen.parts.map(({ path, added, bytes }) => [path, added, bytes])).toEqual([["/out/a/f", 1, 2]]);
    await changesets.apply(a, { only: ["/out/a"], approval: () => ({ approver: deniesFiles }) });
    expect((await showFleet(place(f), summary.fleet)).counts.pending).toBe(2);
    await changesets.discard(a);
    await changesets.discard(b);
    expect((await Array.fromAsync(f.journal.results(summary.fleet))).map(({ status }) => status)).toEqual([
      "discarded",
      "discarded",
    ]);
    expect(readdirSync(join(f.project.dir, "out"))).toEqual(["keep"]);
  });

  it("are recorded by the next command, if the process that applied them was killed before it could", async () => {
    await using f = await project();
    const { summary, results } = await f.map({}, items("a", "b"));
    const [a = "", b = ""] = ["a", "b"].map((key) => results.get(key)?.run ?? "");
    // As a process leaves it that ends between the store and the journal.
    const store = new ChangesetStore(f.project.stateDir, { name: "a process", isDead: () => true });
    const loaded = await store.load(a);
    expect(await store.applyKept(a, loaded.ok ? loaded.waiting : new Set())).toMatchObject({ ok: true, left: 0 });
    await store.discard(b);
    expect(await f.journal.find(summary.fleet)).toMatchObject({ state: "pending", counts: { pending: 2 } });
    await expect(removeFleets(place(f), { ids: [summary.fleet] })).resolves.toEqual([summary.fleet]);
    expect(readdirSync(join(f.project.stateDir, "changes"))).toEqual([]);
  });

  it("keep their fleet from being removed", async () => {
    await using f = await project();
    const { summary } = await f.map({}, items("a"));
    const removed = removeFleets(place(f), { ids: [summary.fleet] });
    await expect(removed).rejects.toMatchObject({ code: "FLEET_NOT_ENDED", message: /changes of its items wait/ });
    expect(await removeFleets(place(f), { endedBefore: Number.MAX_SAFE_INTEGER })).toEqual([]);
  });

  it("end as discarded where their folder was removed by hand, once a command decides on them and not by reading", async () => {
    await using f = await project();
    const { summary, results } = await f.map({}, items("a"));
    rmSync(join(f.project.stateDir, "changes", results.get("a")?.run ?? "none"), { recursive: true });
    const readOf = await pendingItems(place(f), summary.fleet);
    expect(await Array.fromAsync(readOf.each())).toEqual([]);
    expect(await showFleet(place(f), summary.fleet)).toMatchObject({ state: "pending", counts: { pending: 1 } });
    const { each } = await pendingItems(place(f), summary.fleet, { decides: true });
    expect(await Array.fromAsync(each())).toEqual([]);
    expect(await showFleet(place(f), summary.fleet)).toMatchObject({ state: "done", counts: { pending: 0 } });
  });
});

const deniesFiles: Approver = {
  decide: async () => ({ outcome: "denied", scope: "once", reason: "as the test says" }),
};
