import { execFile } from "node:child_process";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import type { ItemResult } from "../../../src/fleet/model/item.ts";
import { Changesets } from "../../../src/operations/changesets.ts";
import { sh } from "../../run/project-fixture.ts";
import { AT_LENGTH } from "../../tiers/at-length.ts";
import { type FleetFixture, openFleetProject, SPEC } from "../fleet-fixture.ts";
import type { Order, Step } from "./killed-at.ts";

/** Each run of it adds a line to two files that are there before. */
const SCRIPT = "echo once >> /out/a; echo once >> /out/b; echo printed; echo warned >&2";
const ITEM = { index: 0, key: "k", place: "item 0", attachments: [], fields: { path: "k" } };

const CALLS = { command: sh("corral-call child > /dev/null; sleep 60"), calls: ["child"] };
const DIRECT = { sandbox: { zones: [{ name: "out", mode: "rw", approval: "pre_approved" }] } };
const APART = { sandbox: { zones: [{ name: "out", mode: "rw", stage: true, approval: "pre_approved" }] } };

/** Its worker calls another one, whose changes reach the project at once. */
function calling(): Promise<FleetFixture> {
  return openFleetProject({
    workers: { w: { ...CALLS, ...DIRECT }, child: { command: sh(SCRIPT), ...APART } },
    zones: { out: "rw" },
    files: { "out/a": "", "out/b": "" },
  });
}

function project(approval: unknown = { rules: [{ paths: ["/out/**"], decide: "approve", why: "fine" }] }) {
  return openFleetProject({
    workers: { w: { command: sh(SCRIPT), sandbox: { zones: [{ name: "out", mode: "rw", approval: "ask" }] } } },
    zones: { out: "rw" },
    files: { "out/a": "", "out/b": "" },
    yaml: { approval },
  });
}

/** Runs the item in another process that is killed at this step. Returns the id of the fleet. */
async function killedAt(f: FleetFixture, step: Step, fleet?: string): Promise<string> {
  const { dir: projectDir, stateDir } = f.project;
  const order: Order = { projectDir, stateDir, spec: SPEC, item: ITEM, step, file: "b", ...(fleet ? { fleet } : {}) };
  const script = join(import.meta.dirname, "killed-at.ts");
  const child = promisify(execFile)(process.execPath, [script, JSON.stringify(order)]);
  const ended = await child.catch((error: { signal?: string; stdout: string; stderr: string }) => error);
  expect(ended, ended.stderr).toMatchObject({ signal: "SIGKILL" });
  return ended.stdout === "" ? (fleet ?? "") : ended.stdout;
}

function lines(f: FleetFixture): Record<string, string> {
  const out = join(f.project.dir, "out");
  return Object.fromEntries(readdirSync(out).map((name) => [name, readFileSync(join(out, name), "utf8")]));
}

const leftIn = (f: FleetFixture): string[] => readdirSync(join(f.project.stateDir, "changes"));

async function expectOnce(f: FleetFixture, fleet: string, attempt: number): Promise<ItemResult | undefined> {
  expect(lines(f)).toEqual({ a: "once\n", b: "once\n" });
  const [result, ...more] = await Array.fromAsync(f.journal.results(fleet));
  expect(more).toEqual([]);
  expect(result).toMatchObject({ status: "succeeded", attempt, output: "printed\n", fields: { path: "k" } });
  expect(result?.changeset).toMatchObject({ id: null, counts: { applied: 2, held: 0 } });
  expect(await f.journal.find(fleet)).toMatchObject({ state: "done", counts: { done: 1, running: 0 } });
  expect((await f.journal.item(fleet, "k"))?.streams).toEqual({ stdout: "printed\n", stderr: "warned\n" });
  expect(await f.journal.summary(fleet)).toEqual([{ status: "succeeded", code: null, count: 1 }]);
  expect(leftIn(f)).toEqual([]);
  return result;
}

/** `corral changes` decides on nothing before its fleet does. */
async function expectHeldForFleet(f: FleetFixture): Promise<void> {
  const changesets = await Changesets.open(f.project.stateDir, {});
  const [{ id = "" } = {}] = await changesets.list(null);
  const busy = { code: "CHANGESET_BUSY", message: /of item k of fleet [0-9a-f]+, which has not ended/ };
  await expect(changesets.apply(id, { approval: "agreed" })).rejects.toMatchObject(busy);
  await expect(changesets.discard(id)).rejects.toMatchObject(busy);
}

/** An item that never began an effect runs again; one that did is finished. */
const ATTEMPTS = { collected: 2, kept: 2, begun: 1, halfway: 1, applied: 1, settled: 1, finishing: 1 } as const;

describe("an item whose process is killed", () => {
  it.each(["collected", "kept", "begun", "halfway", "applied"] as const)(
    "%s: nobody else decides on its changes, it has its effect once, and one result",
    async (step) => {
      await using f = await project();
      const fleet = await killedAt(f, step);
      if (step === "kept" || step === "begun") await expectHeldForFleet(f);
      const resumed = await f.resume(fleet);
      const result = await expectOnce(f, fleet, ATTEMPTS[step]);
      expect(resumed.summary).toMatchObject({ state: "done", done: 1 });
      expect(resumed.results.get("k")).toEqual(result);
      const told = f.events.filter(({ type }) => type === "settled" || type === "started").map(({ type }) => type);
      expect(told).toEqual(ATTEMPTS[step] === 1 ? ["settled"] : ["started", "settled"]);
    },
  );

  it.each(AT_LENGTH ? (["kept", "begun", "halfway", "applied"] as const) : (["halfway"] as const))(
    "%s, and whose changes another process of the machine looked at meanwhile: the same",
    async (step) => {
      await using f = await project();
      const fleet = await killedAt(f, step);
      await Changesets.open(f.project.stateDir, {});
      await Changesets.open(f.project.stateDir, {});
      await f.resume(fleet);
      await expectOnce(f, fleet, ATTEMPTS[step]);
    },
  );

  it.each(AT_LENGTH ? (["begun", "halfway", "applied"] as const) : (["halfway"] as const))(
    "%s, and again while it was finished: the same",
    async (step) => {
      await using f = await project();
      const fleet = await killedAt(f, step);
      await killedAt(f, "finishing", fleet);
      await f.resume(fleet);
      await expectOnce(f, fleet, 1);
    },
  );

  it("while its changes were kept: what cannot be read is removed, and it runs again", async () => {
    await using f = await project();
    const fleet = await killedAt(f, "kept");
    for (const id of leftIn(f)) rmSync(join(f.project.stateDir, "changes", id, "state.json"));
    await f.resume(fleet);
    await expectOnce(f, fleet, 2);
  });

  it("after a worker that it called had begun to change files: it is not run again, and says that it was cut off", async () => {
    await using f = await calling();
    const fleet = await killedAt(f, "begun");
    const { summary, results } = await f.resume(fleet);
    expect(lines(f)).toEqual({ a: "", b: "" });
    expect(results.get("k")).toMatchObject({ status: "lost", attempt: 1, error: { code: "ITEM_INTERRUPTED" } });
    expect(summary).toMatchObject({ state: "done", byReason: { ITEM_INTERRUPTED: 1 } });
    expect(leftIn(f)).toEqual([]);
  });

  it("while such a worker's changes were applied: they are applied once", async () => {
    await using f = await calling();
    const fleet = await killedAt(f, "halfway");
    const { results } = await f.resume(fleet);
    expect(lines(f)).toEqual({ a: "once\n", b: "once\n" });
    expect(results.get("k")).toMatchObject({ status: "lost", attempt: 1, error: { code: "ITEM_INTERRUPTED" } });
    expect(leftIn(f)).toEqual([]);
  });

  it("after its result was recorded: the fleet has nothing left to do", async () => {
    await using f = await project();
    const fleet = await killedAt(f, "settled");
    const { results } = await f.resume(fleet);
    expect([...results]).toEqual([]);
    await expectOnce(f, fleet, 1);
  });

  it("before its changes were applied: a file that was changed since is a conflict, and its result says so", async () => {
    await using f = await project();
    const fleet = await killedAt(f, "begun");
    writeFileSync(join(f.project.dir, "out/b"), "mine\n");
    const { results } = await f.resume(fleet);
    expect(lines(f)).toEqual({ a: "once\n", b: "mine\n" });
    expect(results.get("k")).toMatchObject({
      status: "refused",
      attempt: 1,
      output: "printed\n",
      error: { code: "CHANGES_CONFLICT", message: /applied 1 of 2 changes of worker w/ },
      changeset: { id: results.get("k")?.run, counts: { applied: 1, conflict: 1 } },
    });
    expect(leftIn(f)).toEqual([results.get("k")?.run]);
  });

  it("with changes that wait for a person beside those that were agreed to: it is pending, and they wait", async () => {
    await using f = await project({ rules: [{ paths: ["/out/a"], decide: "approve", why: "fine" }] });
    const fleet = await killedAt(f, "begun");
    const { summary, results } = await f.resume(fleet);
    expect(lines(f)).toEqual({ a: "once\n", b: "" });
    expect(summary.state).toBe("pending");
    const run = results.get("k")?.run ?? "";
    expect(results.get("k")).toMatchObject({
      ...{ status: "pending", error: { code: "CHANGES_HELD" } },
      changeset: { id: run, counts: { applied: 1, held: 1 } },
    });
    const changesets = await Changesets.open(f.project.stateDir, {});
    await changesets.apply(run, { approval: "agreed" });
    expect(lines(f)).toEqual({ a: "once\n", b: "once\n" });
    expect((await f.journal.item(fleet, "k"))?.result?.status).toBe("applied");
    expect(leftIn(f)).toEqual([]);
  });
});
