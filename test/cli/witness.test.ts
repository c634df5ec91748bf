import { describe, expect, it } from "vitest";
import { Witness } from "../../src/cli/run/tree.ts";
import type { Plan } from "../../src/isolation/plan/plan.ts";
import type { RunEvent } from "../../src/run/model/events.ts";
import { type RunResult, unstartedResult } from "../../src/run/model/result.ts";

const place = (run: string, parent: string | null) => ({
  run,
  root: "a",
  parent,
  worker: `worker-${run}`,
  attachments: [],
});
const requested = (run: string, parent: string | null): RunEvent => ({ type: "requested", ...place(run, parent) });
const ended = (run: string, parent: string | null, result: Partial<RunResult>): RunEvent => {
  const base = unstartedResult({ run, worker: `worker-${run}` }, "succeeded", { code: "X", message: "x" });
  return { type: "ended", ...place(run, parent), result: { ...base, error: null, ...result } };
};
const mounts = [
  { path: "/docs", mode: "ro", origin: "sandbox" },
  { path: "/attachments/a", mode: "ro", origin: "attachment" },
  { path: "/.corral/socket", mode: "ro", origin: "corral" },
];
const started = (run: string, parent: string | null): RunEvent => {
  return { type: "started", ...place(run, parent), plan: { mounts } as unknown as Plan, driver: "engine" };
};

describe("Witness", () => {
  it("knows nothing before the first event", () => {
    expect(new Witness().tree()).toBeNull();
  });

  it("tells at any moment which runs wait, go on, and have ended", () => {
    let now = 1000;
    const witness = new Witness(() => now);
    for (const event of [requested("a", null), started("a", null), requested("b", "a"), requested("c", "b")]) {
      witness.see(event);
    }
    witness.see(ended("c", "b", { status: "failed", exitCode: 4, durationMs: 7 }));
    now = 3500;
    const tree = witness.tree();
    expect(tree).toMatchObject({ worker: "worker-a", status: "running", durationMs: 2500 });
    expect(tree?.calls[0]).toMatchObject({ status: "waiting", durationMs: 2500 });
    expect(tree?.calls[0]?.calls[0]).toMatchObject({ status: "failed", exitCode: 4, durationMs: 7 });
  });

  it("shows the mounts that are not Corral's own", () => {
    const witness = new Witness();
    witness.see(requested("a", null));
    witness.see(started("a", null));
    expect(witness.tree()?.mounts).toEqual([
      { path: "/docs", mode: "ro" },
      { path: "/attachments/a", mode: "ro" },
    ]);
  });

  it("counts the calls beyond its limit in place of keeping them", () => {
    const witness = new Witness();
    witness.see(requested("a", null));
    for (let index = 0; index < 6000; index += 1) witness.see(requested(`b${index}`, "a"));
    const tree = witness.tree();
    expect(tree?.calls).toHaveLength(4999);
    expect(tree?.unrecorded).toBe(1001);
  });
});
