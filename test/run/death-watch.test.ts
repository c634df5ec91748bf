import { spawn } from "node:child_process";
import { once } from "node:events";
import { chown, cp, mkdir, mkdtemp, readdir, realpath, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import type Docker from "dockerode";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { connect } from "../../src/isolation/engine/open.ts";
import { runcPaths } from "../../src/isolation/runc/model/layout.ts";
import { PROGRAM } from "../cli/program.ts";
import { openAwayEngine } from "../faults/away-engine.ts";
import { nodeIn, OTHER } from "../other-user.ts";
import { isAgain } from "../tiers/again.ts";
import { giveGate } from "../tiers/give-gate.ts";
import { type Orchestrator, startOrchestrator } from "./orchestrator.ts";
import { sh, writeProject } from "./project-fixture.ts";

let base: string;
let docker: Docker;

beforeEach(async () => {
  base = await mkdtemp(join(tmpdir(), "cr-"));
  ({ docker } = await connect(process.env));
  writeProject(join(base, "p"), { workers: { w: { command: sh("echo up; exec sleep 300") } } });
});

/** The watch itself notices that the state directory is gone. */
afterEach(() => rm(base, { recursive: true, force: true, maxRetries: 10 }));

/** Containers of the state directory's runs, in whatever state, and cells of runc. */
async function left(): Promise<string[]> {
  const containers = await docker.listContainers({ all: true, filters: { label: ["dev.corral.run"] } });
  const below = containers.filter(({ Mounts, Labels }) => JSON.stringify([Mounts, Labels]).includes(base));
  return [...below.map(({ Id }) => Id), ...(await readdir(runcPaths(join(base, "s")).cells).catch(() => []))];
}

const gone = async (timeout: number): Promise<void> => await expect.poll(left, { timeout, interval: 200 }).toEqual([]);

function start(runs: number, env: Readonly<Record<string, string>> = {}): Orchestrator {
  return startOrchestrator({ projectDir: join(base, "p"), stateDir: join(base, "s"), worker: "w", runs, env });
}

describe("after kill -9 of a process alone, its watch", () => {
  it("removes its cells within seconds, without another command", async () => {
    await giveGate(join(base, "s"));
    await using victim = start(3);
    await victim.said("began", 3);
    expect((await left()).length).toBeGreaterThanOrEqual(3);
    victim.killOnly();
    await victim.exit;
    await gone(15_000);
  });

  it("removes them also if the Engine is away at first", async () => {
    await giveGate(join(base, "s"));
    await using engine = await openAwayEngine();
    await using victim = start(1, { DOCKER_HOST: engine.env.DOCKER_HOST ?? "" });
    await victim.said("began", 1);
    await engine.go();
    victim.killOnly();
    await victim.exit;
    await wait(11_000);
    expect(await left()).not.toEqual([]);
    await engine.comeBack();
    await gone(30_000);
  });

  it.skipIf(isAgain() || process.getuid?.() !== 0)("does so for an ordinary user, too", async () => {
    const node = nodeIn(base);
    for (const part of ["package.json", "dist/cli", "policies", "images"])
      await cp(join(dirname(PROGRAM), "../..", part), join(base, "c", part), { recursive: true });
    await mkdir(join(base, "s"), { mode: 0o700 });
    for (const path of ["", "s", "p"]) await chown(join(base, path), OTHER, OTHER);
    const { socketPath } = await connect(process.env);
    const { gid } = await stat(await realpath(socketPath ?? ""));
    const run = `"$0" "${base}/c/dist/cli/corral.cjs" run w --project "${base}/p" & echo $!; wait`;
    const env = [`HOME=${base}`, `CORRAL_STATE_DIR=${base}/s`, `DOCKER_HOST=unix://${socketPath}`];
    const as = [`--reuid=${OTHER}`, `--regid=${OTHER}`, `--groups=${gid}`, "env", ...env];
    const shell = spawn("setpriv", [...as, "sh", "-c", run, node]);
    let printed = "";
    shell.stdout.on("data", (chunk: Buffer) => {
      printed += chunk;
    });
    await expect.poll(() => printed).toContain("up\n");
    expect(await left()).toHaveLength(1);
    process.kill(Number.parseInt(printed, 10), "SIGKILL");
    await once(shell, "exit");
    await gone(15_000);
  });
});
