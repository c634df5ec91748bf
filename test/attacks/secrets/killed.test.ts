import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { expect, it, onTestFinished } from "vitest";
import { connect } from "../../../src/isolation/engine/connect.ts";
import { startOrchestrator } from "../../run/orchestrator.ts";
import { sh, writeProject } from "../../run/project-fixture.ts";
import { giveGate } from "../../tiers/give-gate.ts";
import { canaryKey, tracesBelow } from "../canary-key.ts";
import { secretSpec } from "./secret-project.ts";

it("a process that is killed while its cell has a secret leaves the value on no disk", async () => {
  const base = await mkdtemp(join(tmpdir(), "cr-"));
  onTestFinished(() => rm(base, { recursive: true, force: true }));
  const canary = canaryKey();
  const command = sh("cat /run/secrets/token; cp /run/secrets/token /tmp/copy; echo begun; sleep 60");
  const [spec] = secretSpec({ workers: { w: { command, secrets: ["token"] } } }, canary);
  const [projectDir, stateDir] = [join(base, "p"), join(base, "s")];
  await writeProject(projectDir, spec);
  await giveGate(stateDir);
  await using orchestrator = startOrchestrator({
    projectDir,
    stateDir,
    worker: "w",
    runs: 1,
    env: { TOKEN_OF_TEST: canary.key },
  });
  await orchestrator.said("began", 1);
  const { docker } = await connect(process.env);
  const [cell] = await docker.listContainers({ filters: { name: [`corral-${orchestrator.lines[0]?.began}`] } });
  const container = docker.getContainer(cell?.Id ?? "");
  const onDisk = await container.inspect();
  onTestFinished(() => container.remove({ force: true, v: true }));
  await wait(500);
  await orchestrator.kill();
  // As long as the cell lasts: the Engine's own files of it, and what was written in its root file system.
  const { DockerRootDir } = (await docker.info()) as { DockerRootDir: string };
  const upper = (onDisk.GraphDriver.Data as { UpperDir?: string }).UpperDir;
  const folders = [join(DockerRootDir, "containers", onDisk.Id), ...(upper === undefined ? [] : [upper])];
  const traces = await Promise.all(folders.map((dir) => tracesBelow(dir, canary).catch(() => [])));
  expect(traces.flat()).toEqual([]);
  expect(await tracesBelow(base, canary)).toEqual([]);
  expect((await container.inspect()).State.Running).toBe(true);
});
