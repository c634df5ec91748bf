import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { expect, it, onTestFinished } from "vitest";
import { openCorral } from "../../../src/run/open/corral.ts";
import { startOrchestrator } from "../../run/orchestrator.ts";
import { shownCell } from "../../run/outside-cell.ts";
import { sh, writeProject } from "../../run/project-fixture.ts";
import { giveGate } from "../../tiers/give-gate.ts";
import { canaryKey, tracesBelow } from "../canary-key.ts";
import { secretSpec } from "./secret-project.ts";

it("a process that is killed while its cell has a secret leaves the value on no disk", async () => {
  const base = await mkdtemp(join(tmpdir(), "cr-"));
  const canary = canaryKey();
  const command = sh("cat /run/secrets/token; cp /run/secrets/token /tmp/copy; echo begun; sleep 60");
  const [spec] = secretSpec({ workers: { w: { command, secrets: ["token"] } } }, canary);
  const [projectDir, stateDir] = [join(base, "p"), join(base, "s")];
  writeProject(projectDir, spec);
  await giveGate(stateDir);
  await using orchestrator = startOrchestrator({
    projectDir,
    stateDir,
    worker: "w",
    runs: 1,
    env: { TOKEN_OF_TEST: canary.key },
  });
  await orchestrator.said("began", 1);
  const cell = await shownCell(stateDir, orchestrator.lines[0]?.began ?? "");
  onTestFinished(async () => {
    // Opening reaps.
    await (await openCorral({ projectDir, stateDir, engineEnv: process.env }))[Symbol.asyncDispose]();
    await rm(base, { recursive: true, force: true });
  });
  await wait(500);
  await orchestrator.kill();
  // As long as the cell lasts: its driver's own files of it, and what was written in its root file system.
  expect(cell?.pid()).toEqual(expect.any(Number));
  const traces = await Promise.all((cell?.folders ?? []).map((dir) => tracesBelow(dir, canary)));
  expect(traces.flat()).toEqual([]);
  expect(await tracesBelow(base, canary)).toEqual([]);
  expect(cell?.pid()).toEqual(expect.any(Number));
});
