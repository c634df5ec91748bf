import { describe, expect, it } from "vitest";
import type { EnginePort } from "../../src/isolation/port/engine.ts";
import { openFleetProject } from "../fleet/fleet-fixture.ts";
import { memoryEngine } from "../run/memory-engine.ts";
import { openProject } from "../run/project-fixture.ts";

const SPEC = { workers: { w: { command: ["cat"] } } } as const;

/** An engine whose `nth` start fails as a host does that has no descriptor or no space left. */
function failing(nth: number, code: string) {
  const engine = memoryEngine({ programs: { cat: () => 0 } });
  let starts = 0;
  return async (stateDir: string) => {
    const port = await engine.open(stateDir);
    const { driver } = port;
    const start: typeof driver.start = async (request) => {
      starts += 1;
      if (starts === nth) throw Object.assign(new Error(`${code}: no more, open '/x'`), { code, syscall: "open" });
      return await driver.start(request);
    };
    const full: EnginePort = {
      ...port,
      driver: { ...driver, start },
      itemCells: { ...port.itemCells, start },
      ofProject: () => full,
    };
    return full;
  };
}

describe("a host without a free descriptor, space or memory", () => {
  it.each(["EMFILE", "ENOSPC", "ENOMEM", "EIO"])("(%s) loses the run, and says that the host failed", async (code) => {
    await using project = await openProject(SPEC, { engine: failing(1, code) });
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "lost", exitCode: null, error: { code: "HOST_TROUBLE" } });
    expect(result.error?.message).toContain(code);
    expect(result.error?.message).not.toContain("/x");
    expect(await project.traces()).toEqual([]);
  });

  it("pauses a fleet with that reason, loses no item, and a later attempt completes it", async () => {
    await using fleet = await openFleetProject(SPEC, { engine: failing(7, "EMFILE") });
    const items = Array.from({ length: 12 }, () => ({}));
    const { summary, results } = await fleet.map({ concurrency: 1 }, items);
    expect(summary).toMatchObject({ state: "paused", why: expect.stringContaining("The host failed (EMFILE)") });
    const again = await fleet.resume(summary.fleet);
    expect(again.summary).toMatchObject({ state: "done", done: 12, byStatus: { succeeded: 12 } });
    expect(results.size + again.results.size).toBe(12);
  });
});
