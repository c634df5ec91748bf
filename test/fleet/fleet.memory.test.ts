import { chownSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, it, vi } from "vitest";
import { JournalQueue } from "../../src/fleet/journal/journal-queue.ts";
import { MachineShare } from "../../src/fleet/running/fleet-parts.ts";
import type { FakeProgram } from "../isolation/fake/program.ts";
import { memoryEngine } from "../run/memory-engine.ts";
import { openFleetProject, whole } from "./fleet-fixture.ts";

/** A fleet of one worker, which does what `program` does. */
async function fleetOf(program: FakeProgram) {
  const engine = memoryEngine({ programs: { w: program } });
  const fleet = await openFleetProject({ workers: { w: { command: ["w"] } } }, { engine: engine.open });
  return { fleet, engine, [Symbol.asyncDispose]: () => fleet[Symbol.asyncDispose]() };
}

const items = (count: number) => Array.from({ length: count }, (_, n) => ({ input: n }));

describe("a fleet", () => {
  it("has every result once, each with its own input", async () => {
    await using o = await fleetOf(({ stdin, stdout }) => {
      stdout.write(stdin);
      return 0;
    });
    const { summary, results } = await o.fleet.map({ concurrency: 4 }, items(30));
    expect(summary).toMatchObject({ state: "done", items: 30, done: 30, byStatus: { succeeded: 30 } });
    expect([...results].map(([key, { output }]) => `${key}:${output}`).sort()).toEqual(
      Array.from({ length: 30 }, (_, n) => `${n}:${n}\n`).sort(),
    );
    expect(o.engine.containers.size).toBe(0);
  });

  it("is refused as a whole, with one reason, if no item could share a cell or have a user", async () => {
    const engine = memoryEngine({ programs: { w: () => 0 } });
    const zones = [{ name: "out", mode: "rw", approval: "pre_approved" }];
    const staged = zones.map((zone) => ({ ...zone, stage: true }));
    const workers = {
      w: { command: ["w"], sandbox: { zones } },
      s: { command: ["w"], sandbox: { zones: staged } },
    };
    await using f = await openFleetProject({ workers, zones: { out: "rw" } }, { engine: engine.open });
    const each = Array.from({ length: 30 }, (_, n) => ({ allowWrite: [`/out/${n}`] }));
    const shared = await f.open({ worker: "s", reuse: "scrubbed" }, each);
    const reason = /^none of the first 20 items would run: \/out\/0 cannot be part of a cell that serves many items/;
    expect(shared).toEqual({ ok: false, reason: expect.stringMatching(reason) });
    expect(await f.journal.list()).toEqual([]);
    // Items that each has its own reason, or of which one could run, are told one by one.
    const some = await f.open({ worker: "s", reuse: "scrubbed" }, [...each.slice(0, 3), { allowRead: [] }]);
    if (!some.ok) throw new Error(JSON.stringify(some));
    await some[Symbol.asyncDispose]();
    if (process.geteuid?.() !== 0) return;
    const out = join(f.project.dir, "out");
    chownSync(out, 0, 0);
    const owned = await f.open({}, each.slice(0, 3));
    expect(owned).toEqual({
      ok: false,
      reason: expect.stringMatching(/^no item would run: .*belongs to root, and the policy batch does not run workers/),
    });
    // A folder that is there already has an owner of its own.
    mkdirSync(join(out, "1"));
    chownSync(join(out, "1"), 1234, 1234);
    const own = await f.open({}, each.slice(0, 3));
    if (!own.ok) throw new Error(JSON.stringify(own));
    await own[Symbol.asyncDispose]();
  });

  it("commits once for each item: with its result, the next item is claimed", async () => {
    await using o = await fleetOf(() => 0);
    const commits = vi.spyOn(DatabaseSync.prototype, "exec");
    try {
      const { summary } = await o.fleet.map({ concurrency: 1 }, items(40));
      expect(summary).toMatchObject({ state: "done", done: 40 });
      const made = commits.mock.calls.filter(([sql]) => sql === "COMMIT").length;
      expect(made).toBeGreaterThanOrEqual(40);
      expect(made).toBeLessThan(55);
    } finally {
      commits.mockRestore();
    }
  });

  it("claims no item after the last failure that it may have", async () => {
    await using o = await fleetOf(() => 1);
    const claims = vi.spyOn(JournalQueue.prototype, "claim");
    try {
      const { summary } = await o.fleet.map({ concurrency: 1, maxFailures: 1 }, items(20));
      expect(summary).toMatchObject({ state: "paused", why: "more than 1 items failed" });
      const claimed = await Promise.all(claims.mock.results.map(({ value }) => value));
      // The two that failed, and the one whose cell was prepared meanwhile.
      expect(claimed.flatMap((claim) => claim.items)).toHaveLength(3);
    } finally {
      claims.mockRestore();
    }
  });

  it("loses an item whose run a bug ends, says so, and runs every other item", async () => {
    await using o = await fleetOf(() => 0);
    const { environment } = o.fleet.project.corral;
    const { grants } = environment;
    let joined = 0;
    const broken = new Proxy(grants, {
      get: (of, name) => {
        const own: unknown = Reflect.get(of, name);
        const bound = typeof own === "function" ? own.bind(of) : own;
        if (name !== "join") return bound;
        return (...given: unknown[]) => {
          joined += 1;
          if (joined === 2) throw new RangeError("no stack left");
          return bound(...given);
        };
      },
    });
    Object.assign(environment, { grants: broken });
    const { summary, results } = await o.fleet.map({ concurrency: 1 }, items(5));
    expect(summary).toMatchObject({ state: "done", done: 5, byStatus: { succeeded: 4, lost: 1 } });
    expect(joined).toBe(5);
    const message = expect.stringMatching(/^An internal error in Corral ended this run\..*RangeError: no stack left/);
    expect([...results.values()].filter(({ status }) => status === "lost")).toMatchObject([
      { exitCode: null, attempt: 1, error: { code: "INTERNAL", message } },
    ]);
    const troubles = o.fleet.events.flatMap((event) => (event.type === "trouble" ? [event.detail] : []));
    expect(troubles).toEqual([
      expect.stringContaining("is lost, other items continue: internal error: RangeError: no stack left"),
    ]);
    // The audit trail has an end for every run.
    const ended = o.fleet.project.events.filter(({ type }) => type === "ended");
    expect(ended).toHaveLength(5);
  });

  it("pauses when the machine has no room, because the next item would fail as well", async () => {
    await using o = await fleetOf(() => 0);
    const { environment } = o.fleet.project.corral;
    const full = Object.assign(new Error("no space left on device"), { code: "ENOSPC" });
    const grants = new Proxy(environment.grants, {
      get: (of, name) => {
        const own: unknown = Reflect.get(of, name);
        if (name === "join") return async () => await Promise.reject(full);
        return typeof own === "function" ? own.bind(of) : own;
      },
    });
    Object.assign(environment, { grants });
    const { summary, results } = await o.fleet.map({ concurrency: 1 }, items(3));
    expect(summary).toMatchObject({ state: "paused", why: expect.stringContaining("The host failed (ENOSPC)") });
    expect(results.size).toBe(0);
    expect(await o.fleet.journal.list()).toMatchObject([{ state: "paused", counts: { done: 0 } }]);
  });

  it("lets what runs end, and tells its result, if the store does not answer any more", async () => {
    const begun = Promise.withResolvers<void>();
    const ends = Promise.withResolvers<void>();
    let runs = 0;
    await using o = await fleetOf(async () => {
      runs += 1;
      if (runs === 1) return 0;
      begun.resolve();
      await ends.promise;
      return 0;
    });
    const { claim } = JournalQueue.prototype;
    let claims = 0;
    const claiming = vi.spyOn(JournalQueue.prototype, "claim").mockImplementation(async function (
      this: JournalQueue,
      ...given
    ) {
      claims += 1;
      if (claims === 1) return await claim.apply(this, given);
      await begun.promise;
      setTimeout(ends.resolve, 50);
      throw new Error("the connection is lost");
    });
    try {
      const opened = await o.fleet.open({ concurrency: 1 }, items(9));
      if (!opened.ok) throw new Error("it was refused");
      await using _ = opened;
      const told = Array.fromAsync(opened.fleet.results);
      await expect(opened.fleet.run()).rejects.toThrow("the connection is lost");
      expect(await told).toMatchObject([{ status: "succeeded" }, { status: "succeeded" }]);
      expect(await o.fleet.journal.list()).toMatchObject([
        { state: "paused", why: "the fleet cannot continue: the connection is lost", counts: { done: 2 } },
      ]);
    } finally {
      claiming.mockRestore();
    }
  });

  it("keeps its share of the machine if the share cannot be read, and says so once", async () => {
    const begun = Promise.withResolvers<void>();
    const ends = Promise.withResolvers<void>();
    await using o = await fleetOf(async () => {
      begun.resolve();
      await ends.promise;
      return 0;
    });
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    try {
      const opened = await o.fleet.open({ concurrency: 1 }, items(2));
      const failing = vi.spyOn(MachineShare.prototype, "look").mockRejectedValue(new Error("EMFILE"));
      const mapped = whole(opened);
      await begun.promise;
      await vi.advanceTimersByTimeAsync(3500);
      expect(failing.mock.calls.length).toBeGreaterThanOrEqual(3);
      failing.mockRestore();
      ends.resolve();
      expect((await mapped).summary).toMatchObject({ state: "done", done: 2 });
      const troubles = o.fleet.events.flatMap((event) => (event.type === "trouble" ? [event.detail] : []));
      expect(troubles).toEqual(["the number of other fleets on this machine cannot be read: EMFILE"]);
    } finally {
      vi.restoreAllMocks();
      vi.useRealTimers();
    }
  });

  it("runs no more items at once than it may", async () => {
    const at = { once: 0, most: 0 };
    await using o = await fleetOf(async () => {
      at.once += 1;
      at.most = Math.max(at.most, at.once);
      await new Promise((later) => setTimeout(later, 20));
      at.once -= 1;
      return 0;
    });
    await o.fleet.map({ concurrency: 3 }, items(12));
    expect(at.most).toBeGreaterThan(1);
    expect(at.most).toBeLessThanOrEqual(3);
  });

  it("tries again what fails, as often as it may", async () => {
    const tries = new Map<string, number>();
    await using o = await fleetOf(({ stdin }) => {
      const key = stdin.toString().trim();
      tries.set(key, (tries.get(key) ?? 0) + 1);
      return key === "0" && (tries.get(key) ?? 0) < 2 ? 3 : key === "1" ? 4 : 0;
    });
    const { summary, results } = await o.fleet.map({ retries: 1 }, items(3));
    expect(summary).toMatchObject({ state: "done", byStatus: { succeeded: 2, failed: 1 } });
    expect(Object.fromEntries(tries)).toEqual({ 0: 2, 1: 2, 2: 1 });
    expect(results.get("1")).toMatchObject({ status: "failed", exitCode: 4 });
  });

  it("tries again what was lost, though nothing may be retried", async () => {
    let lost = 0;
    await using o = await fleetOf(() => {
      lost += 1;
      return lost === 1 ? { kind: "lost", reason: "the engine went away" } : 0;
    });
    const { summary } = await o.fleet.map({ retries: 0 }, items(1));
    expect(summary).toMatchObject({ state: "done", byStatus: { succeeded: 1 } });
    expect(lost).toBe(2);
  });

  it("begins nothing more after too many failures", async () => {
    let runs = 0;
    await using o = await fleetOf(() => {
      runs += 1;
      return 1;
    });
    const { summary } = await o.fleet.map({ concurrency: 1, maxFailures: 2 }, items(10));
    expect(summary.state).not.toBe("done");
    expect(runs).toBeLessThan(10);
    expect(o.engine.containers.size).toBe(0);
  });

  it("ends what runs when it is stopped, and runs it again when it is resumed", async () => {
    const stop = new AbortController();
    let isStopped = false;
    await using o = await fleetOf(async ({ signal }) => {
      if (isStopped) return 0;
      isStopped = true;
      stop.abort(new Error("enough"));
      await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
      return 0;
    });
    const { summary } = await o.fleet.map({ concurrency: 1 }, items(4), stop.signal);
    expect(summary).toMatchObject({ state: "paused" });
    const resumed = await o.fleet.resume(summary.fleet);
    expect(resumed.summary).toMatchObject({ state: "done", done: 4, byStatus: { succeeded: 4 } });
    expect(o.engine.containers.size).toBe(0);
  });

  it("ends an item at the fleet's time", async () => {
    await using o = await fleetOf(() => new Promise<never>(() => {}));
    const { results } = await o.fleet.map({ timeoutMs: 200 }, items(2));
    expect([...results.values()].map(({ status }) => status)).toEqual(["timed_out", "timed_out"]);
  });
});
