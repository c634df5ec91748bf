import { describe, expect, it } from "vitest";
import type { FakeProgram } from "../isolation/fake/program.ts";
import { memoryEngine } from "../run/memory-engine.ts";
import { openFleetProject } from "./fleet-fixture.ts";

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
