import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import { type AuditTrail, AuditTrailError } from "../../../src/audit/trail.ts";
import { startFleet } from "../../../src/fleet/fleet.ts";
import type { FleetSpec } from "../../../src/fleet/model/item.ts";
import type { FleetQueue } from "../../../src/fleet/model/queue.ts";
import type { FleetStore } from "../../../src/fleet/model/store.ts";
import { EngineTrouble } from "../../../src/isolation/port/driver.ts";
import { newestAuditRecords } from "../../../src/operations/audit.ts";
import { Changesets } from "../../../src/operations/changesets.ts";
import { changesetStore, intoProject } from "../../../src/run/changes/into-project.ts";
import type { RunEnvironment } from "../../../src/run/model/environment.ts";
import { UnfinishedChanges } from "../../../src/run/model/result.ts";
import { sh } from "../../run/project-fixture.ts";
import { type FleetFixture, type Mapped, openFleetProject, requests, SPEC, whole } from "../fleet-fixture.ts";

const ONCE = sh("echo once >> /out/a; echo printed");
const ASKS = { zones: [{ name: "out", mode: "rw", approval: "ask" }] };
const AGREES = { rules: [{ paths: ["/out/**"], decide: "approve", why: "fine" }] };

function project(workers: Parameters<typeof openFleetProject>[0]["workers"]): Promise<FleetFixture> {
  return openFleetProject({ workers, zones: { out: "rw" }, files: { "out/a": "" }, yaml: { approval: AGREES } });
}

const content = (f: FleetFixture): string => readFileSync(join(f.project.dir, "out/a"), "utf8");
const leftIn = (f: FleetFixture): string[] => readdirSync(join(f.project.stateDir, "changes"));

interface Changed {
  readonly spec?: Partial<FleetSpec>;
  readonly run?: (run: RunEnvironment) => RunEnvironment;
  readonly queue?: (queue: FleetQueue) => Partial<FleetQueue>;
  readonly stop?: AbortSignal;
}

/** A fleet of one item, with parts of its surroundings replaced. */
async function mapped(
  f: FleetFixture,
  { spec = {}, run = (same) => same, queue = () => ({}), stop = new AbortController().signal }: Changed,
): Promise<Mapped> {
  const bound = <T extends object>(target: T, changed: Partial<T>): T =>
    new Proxy(target, {
      get(of, name) {
        const value: unknown = Reflect.get(changed, name) ?? Reflect.get(of, name);
        return typeof value === "function" ? value.bind(of) : value;
      },
    });
  const store: FleetStore = bound<FleetStore>(f.journal, {
    queue: async (id) => {
      const real = await f.journal.queue(id);
      return bound(real, queue(real));
    },
  });
  const env = {
    run: run(f.project.corral.environment),
    store,
    onEvent: (event: FleetFixture["events"][number]) => void (f.events as unknown[]).push(event),
    stop,
  };
  return await whole(await startFleet({ ...SPEC, ...spec }, requests([{ key: "k" }]), env));
}

describe("an attempt that does not count any more", () => {
  it("applies nothing, leaves nothing that waits, and says so", async () => {
    await using f = await project({ w: { command: ONCE, sandbox: ASKS } });
    let begun = 0;
    const { results } = await mapped(f, {
      queue: (queue) => ({
        async begin(index, attempt, intent) {
          begun += 1;
          // As if another process had taken the item, until the second attempt.
          if (begun === 1) await queue.requeue(index, attempt, 0);
          return await queue.begin(index, attempt, intent);
        },
      }),
    });
    expect(results.get("k")).toMatchObject({ status: "succeeded", attempt: 2 });
    expect(content(f)).toBe("once\n");
    expect(leftIn(f)).toEqual([]);
    const told = f.events.flatMap((event) => (event.type === "trouble" ? [event.detail] : []));
    expect(told).toEqual([expect.stringContaining("attempt 1 of item 0 no longer counts")]);
    const place = { stateDir: f.project.stateDir, projectDir: f.project.dir };
    const { records } = await newestAuditRecords(place, { type: "changes_discarded" }, 9);
    const reason = expect.stringContaining("attempt 1 of item 0 no longer counts");
    expect(records).toMatchObject([{ count: 1, reason }]);
  });
});

describe("an attempt that is given up", () => {
  it("leaves nothing that waits when the fleet is stopped, so that the next attempt changes everything once", async () => {
    await using f = await project({ w: { command: ONCE, sandbox: ASKS } });
    const stop = new AbortController();
    const { summary } = await mapped(f, {
      stop: stop.signal,
      run: (run) => ({
        ...run,
        changesets: {
          ...run.changesets,
          async apply() {
            stop.abort(new Error("enough"));
            stop.signal.throwIfAborted();
            return [];
          },
        },
      }),
    });
    expect(summary.state).toBe("paused");
    const changesets = await Changesets.open(f.project.stateDir, {});
    for (const { id } of await changesets.list(null)) await changesets.apply(id, { approval: "agreed" });
    expect([content(f), leftIn(f)]).toEqual(["", []]);
    const { results } = await f.resume(summary.fleet);
    expect(results.get("k")).toMatchObject({ status: "succeeded", attempt: 2 });
    expect(content(f)).toBe("once\n");
    const place = { stateDir: f.project.stateDir, projectDir: f.project.dir };
    const { records } = await newestAuditRecords(place, { type: "changes_discarded" }, 9);
    expect(records).toMatchObject([{ count: 1, reason: "its attempt does not count, and the item runs again" }]);
  });

  it("leaves nothing that waits when it is retried: only the changes of the last attempt wait", async () => {
    await using f = await project({ w: { command: sh("echo once >> /out/a; exit 3"), sandbox: ASKS } });
    const { results } = await f.map({ retries: 2 }, [{ key: "k" }]);
    const run = results.get("k")?.run;
    expect(results.get("k")).toMatchObject({ status: "failed", attempt: 3, changeset: { id: run } });
    expect(leftIn(f)).toEqual([run]);
    const given = f.events.flatMap((event) => (event.type === "settled" ? [event.result.changeset?.id] : []));
    expect(given).toEqual([null, null, run]);
  });

  it("stays as it is until the fleet is resumed, if what it kept cannot be removed now", async () => {
    await using f = await project({ w: { command: sh("echo once >> /out/a; exit 3"), sandbox: ASKS } });
    const full = Object.assign(new Error("no space left on device"), { code: "ENOSPC" });
    const { summary } = await mapped(f, {
      spec: { retries: 1 },
      run: (run) => ({ ...run, changesets: { ...run.changesets, drop: () => Promise.reject(full) } }),
    });
    expect(summary).toMatchObject({ state: "paused", why: "what an attempt kept cannot be removed now" });
    expect(await f.journal.find(summary.fleet)).toMatchObject({ counts: { running: 1 } });
    const { results } = await f.resume(summary.fleet);
    expect(leftIn(f)).toEqual([results.get("k")?.run]);
  });

  it("keeps what it had perhaps begun to change, if the answer of the journal was lost", async () => {
    await using f = await project({ w: { command: ONCE, sandbox: ASKS } });
    const stop = new AbortController();
    const { summary } = await mapped(f, {
      stop: stop.signal,
      queue: (queue) => ({
        async begin(...begun) {
          await queue.begin(...begun);
          stop.abort(new Error("enough"));
          throw new Error("the answer was lost");
        },
      }),
    });
    expect(await f.journal.find(summary.fleet)).toMatchObject({ state: "paused", counts: { running: 1 } });
    const { results } = await f.resume(summary.fleet);
    const run = results.get("k")?.run ?? "";
    expect(results.get("k")).toMatchObject({ status: "pending", attempt: 1, changeset: { id: run } });
    await (await Changesets.open(f.project.stateDir, {})).apply(run, { approval: "agreed" });
    expect(content(f)).toBe("once\n");
  });
});

describe("an item whose worker called another one that changed the project", () => {
  const out = { name: "out", mode: "rw", approval: "pre_approved" };
  const child = { command: ONCE, sandbox: { zones: [{ ...out, stage: true }] } };
  const parent = (after: string) => ({
    w: { command: sh(`corral-call child > /dev/null; ${after}`), calls: ["child"], sandbox: { zones: [out] } },
    child,
  });

  it("is not retried, however often it may be", async () => {
    await using f = await project(parent("exit 3"));
    const { results } = await f.map({ retries: 5 }, [{ key: "k" }]);
    expect(results.get("k")).toMatchObject({ status: "failed", attempt: 1, exitCode: 3 });
    expect(results.get("k")?.error?.message).toMatch(/ It had begun to change files, so it is not retried\.$/);
    expect(content(f)).toBe("once\n");
  });

  it("does not run again after it was stopped: its result says that it was cut off", async () => {
    await using f = await project(parent("sleep 60"));
    const stop = new AbortController();
    const mapping = f.map({}, [{ key: "k" }], stop.signal);
    await vi.waitUntil(() => content(f) !== "", { timeout: 30_000 });
    stop.abort();
    const { results } = await mapping;
    const message = expect.stringContaining("none, some or all of its changes may be there");
    expect(results.get("k")).toMatchObject({
      ...{ status: "lost", attempt: 1 },
      error: { code: "ITEM_INTERRUPTED", message },
    });
    expect([content(f), leftIn(f)]).toEqual(["once\n", []]);
  });
});

describe("a run that is cut off after it has begun to change files", () => {
  it("is finished by its own process, and its result is as if it had not been", async () => {
    await using f = await project({ w: { command: ONCE, sandbox: ASKS } });
    let tries = 0;
    const { summary, results } = await mapped(f, {
      spec: { retries: 3 },
      run: (run) => ({
        ...run,
        changesets: {
          ...run.changesets,
          async apply(changeset, indexes, beginning) {
            tries += 1;
            const begin = async () => {
              await beginning?.begin();
              throw new EngineTrouble("the Engine went away");
            };
            return await run.changesets.apply(changeset, indexes, { refused: [], begin });
          },
        },
      }),
    });
    expect([tries, content(f), leftIn(f)]).toEqual([1, "once\n", []]);
    expect(summary).toMatchObject({ state: "done", byStatus: { succeeded: 1 } });
    expect(results.get("k")).toMatchObject({ status: "succeeded", attempt: 1, output: "printed\n" });
  });

  it("waits with its fleet if its end cannot be recorded now, and is finished when the fleet is resumed", async () => {
    await using f = await project({ w: { command: ONCE, sandbox: ASKS } });
    const { summary } = await mapped(f, {
      run: (run) => ({
        ...run,
        changesets: {
          ...run.changesets,
          async apply(changeset, indexes, beginning) {
            const begin = async () => {
              await beginning?.begin();
              throw new EngineTrouble("the Engine went away");
            };
            return await run.changesets.apply(changeset, indexes, { refused: [], begin });
          },
          finish: () => Promise.reject(new UnfinishedChanges("the audit trail is full")),
        },
      }),
    });
    expect(summary).toMatchObject({ state: "paused", why: "changes that were begun cannot be finished now" });
    expect(f.events).toContainEqual({ type: "trouble", detail: "the audit trail is full" });
    expect(content(f)).toBe("");
    const { results } = await f.resume(summary.fleet);
    expect(results.get("k")).toMatchObject({ status: "succeeded", attempt: 1, output: "printed\n" });
    expect([content(f), leftIn(f)]).toEqual(["once\n", []]);
  });

  it("so does one that has begun, and whose beginning cannot be written to the audit trail", async () => {
    await using f = await project({ w: { command: ONCE, sandbox: ASKS } });
    const { environment } = f.project.corral;
    let tries = 0;
    const audit: AuditTrail = {
      append: async (record) => {
        if (record.type !== "changes_applying") return await environment.audit.append(record);
        tries += 1;
        throw new AuditTrailError("another process holds the audit trail");
      },
    };
    const changesets = intoProject(changesetStore(f.project.stateDir), audit);
    const { summary } = await mapped(f, { run: (run) => ({ ...run, changesets }) });
    expect(summary).toMatchObject({ state: "paused", why: "changes that were begun cannot be finished now" });
    const details = f.events.flatMap((event) => (event.type === "trouble" ? [event.detail] : []));
    expect(details).toEqual([expect.stringMatching(/cannot be recorded, so it waits: another process holds/)]);
    expect([tries, content(f)]).toEqual([2, ""]);
    const { results } = await f.resume(summary.fleet);
    expect(results.get("k")).toMatchObject({ status: "succeeded", attempt: 1, output: "printed\n" });
    expect([content(f), leftIn(f)]).toEqual(["once\n", []]);
  });
});
