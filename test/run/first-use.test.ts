import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { startOrchestrator } from "./orchestrator.ts";
import { sh, writeProject } from "./project-fixture.ts";

it("orchestrators that are the first to use a state directory, all at once, do not get in each other's way", async () => {
  const base = await mkdtemp(join(tmpdir(), "cr-"));
  try {
    writeProject(join(base, "p"), { workers: { w: { command: sh("echo up") } } });
    const options = { projectDir: join(base, "p"), stateDir: join(base, "s"), worker: "w", runs: 2 };
    const orchestrators = [1, 2, 3].map(() => startOrchestrator(options));
    for (const orchestrator of orchestrators) expect(await orchestrator.exit, orchestrator.stderr()).toBe(0);
    const results = orchestrators.flatMap(({ lines }) => lines.flatMap(({ ended }) => ended ?? []));
    expect(results.map(({ status, error }) => error?.message ?? status)).toEqual(Array(6).fill("succeeded"));
  } finally {
    await rm(base, { recursive: true, force: true });
  }
});
