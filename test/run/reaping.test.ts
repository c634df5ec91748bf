import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type Docker from "dockerode";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { connect } from "../../src/isolation/engine/open.ts";
import { runcPaths } from "../../src/isolation/runc/model/layout.ts";
import { openCorral } from "../../src/run/open/corral.ts";
import { isAgain } from "../tiers/again.ts";
import { giveGate } from "../tiers/give-gate.ts";
import { type Orchestrator, startOrchestrator } from "./orchestrator.ts";
import { openProject, sh, writable, writeProject } from "./project-fixture.ts";

const NETWORK = { network: { allow: ["example.org:443", "*.example.org:443"] } };

const SPEC = {
  workers: {
    boss: {
      command: sh("echo up; corral-call kid"),
      calls: ["kid"],
      sandbox: { zones: [writable("out")], ...NETWORK },
    },
    kid: { command: sh("echo up; exec sleep 300"), sandbox: { zones: [writable("out")], ...NETWORK } },
    sleeper: { command: sh("echo up; exec sleep 300"), sandbox: { zones: [writable("out")] } },
  },
  zones: { out: "rw" },
  sandbox: NETWORK,
  policy: "default",
} as const;

let base: string;
let docker: Docker;

beforeEach(async () => {
  base = await mkdtemp(join(tmpdir(), "cr-"));
  writeProject(join(base, "p"), SPEC);
  await giveGate(places().stateDir);
  ({ docker } = await connect(process.env));
});

afterEach(async () => {
  // Opening reaps: a test that failed in the middle leaves runs that nobody else would remove.
  const corral = await openCorral({ ...places(), engineEnv: process.env });
  await corral[Symbol.asyncDispose]();
  await rm(base, { recursive: true, force: true });
});

const places = () => ({ projectDir: join(base, "p"), stateDir: join(base, "s") });

/** Runs of which the Engine still has a container or a volume, or of which there is a cell of runc. */
async function remains(runs: readonly string[]): Promise<string[]> {
  const [containers, volumes] = await Promise.all([docker.listContainers({ all: true }), docker.listVolumes()]);
  const labelled = [...containers, ...(volumes.Volumes ?? [])];
  const ofEngine = labelled.map(({ Labels }) => Labels?.["dev.corral.run"] ?? "");
  const ofRunc = await readdir(runcPaths(places().stateDir).cells).catch(() => []);
  return [...new Set([...ofEngine, ...ofRunc])].filter((run) => runs.includes(run));
}

const begun = ({ lines }: Orchestrator): string[] => lines.flatMap(({ began }) => (began === undefined ? [] : [began]));

/** Each calls another, so there are twice as many runs. */
const ROOTS = isAgain() ? 2 : 5;

describe(`after kill -9 on an orchestrator with ${2 * ROOTS} runs live`, () => {
  it("the next one leaves no trace of them, and of a living orchestrator's and of strangers' everything", async () => {
    const foreign = await docker.createContainer({
      Image: "corral/base",
      Cmd: ["sleep", "300"],
      Labels: { "dev.corral.run": "not-ours" },
    });
    try {
      await using other = startOrchestrator({ ...places(), worker: "sleeper", runs: 1 });
      await other.said("began", 1);
      await using victim = startOrchestrator({ ...places(), worker: "boss", runs: ROOTS });
      await victim.said("began", 2 * ROOTS);
      expect(await remains(begun(victim))).toHaveLength(2 * ROOTS);
      expect(await readdir(join(base, "s/live"))).toHaveLength(2);
      await victim.kill();

      await using corral = await openCorral({ ...places(), engineEnv: process.env });
      expect([...corral.reaped.cells].sort()).toEqual([...begun(victim)].sort());
      // Volumes go with their containers.
      expect([corral.reaped.volumes.length, corral.reaped.directories.length]).toEqual([0, 1]);
      expect(await remains(begun(victim))).toEqual([]);
      expect(await readdir(join(base, "s/live"))).toHaveLength(2);

      expect(await remains(begun(other))).toHaveLength(1);
      expect(await corral.environment.driver.list()).toMatchObject([
        { run: begun(other)[0], state: "running", ownerAlive: true },
      ]);
      expect((await foreign.inspect()).State.Status).toBe("created");
      expect(await corral.environment.driver.reap()).toEqual({ cells: [], volumes: [], directories: [] });

      await other.kill();
      expect(await corral.environment.driver.reap()).toMatchObject({
        cells: begun(other),
        directories: [expect.any(String)],
      });
      expect(await remains(begun(other))).toEqual([]);
    } finally {
      await foreign.remove({ force: true });
    }
  });

  it("an orchestrator of another state directory does not touch them", async () => {
    await using victim = startOrchestrator({ ...places(), worker: "sleeper", runs: 1 });
    await victim.said("began", 1);
    await victim.kill();
    await using project = await openProject({ workers: { w: { command: sh(":") } } });
    expect(await project.run("w")).toMatchObject({ status: "succeeded" });
    expect(await remains(begun(victim))).toHaveLength(1);
    await using corral = await openCorral({ ...places(), engineEnv: process.env });
    expect(corral.reaped.cells).toEqual(begun(victim));
  });
});
