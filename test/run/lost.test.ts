import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { openCorral } from "../../src/run/open/corral.ts";
import { type Orchestrator, startOrchestrator } from "./orchestrator.ts";
import { sh, writable, writeProject } from "./project-fixture.ts";
import { openSecondEngine, type SecondEngine } from "./second-engine.ts";

let base: string;
let engine: SecondEngine;

beforeAll(async () => {
  engine = await openSecondEngine();
});

afterAll(async () => {
  await engine?.[Symbol.asyncDispose]();
});

beforeEach(async () => {
  await engine.start();
  base = await mkdtemp(join(tmpdir(), "cr-"));
  writeProject(join(base, "p"), {
    workers: {
      boss: { command: sh("echo up; corral-call kid"), calls: ["kid"], sandbox: { zones: [writable("out")] } },
      kid: { command: sh("echo up; exec sleep 300"), sandbox: { zones: [writable("out")] } },
    },
    zones: { out: "rw" },
  });
});

afterEach(async () => {
  await rm(base, { recursive: true, force: true });
});

describe("where the Engine goes away in the middle", () => {
  it.each(["SIGKILL", "SIGTERM"] as const)(
    "(by %s) a run is lost, nothing is made up, and the next command cleans up",
    async (signal) => {
      const options = { projectDir: join(base, "p"), stateDir: join(base, "s") };
      await using orchestrator: Orchestrator = startOrchestrator({
        ...options,
        worker: "boss",
        runs: 1,
        env: engine.env,
      });
      await orchestrator.said("began", 2);
      await engine.stop(signal);
      await orchestrator.said("ended", 1);
      expect(await orchestrator.exit, orchestrator.stderr()).toBe(0);

      const result = orchestrator.lines.find((line) => line.ended !== undefined)?.ended;
      const lost = { status: "lost", exitCode: null, signal: null, stdout: "up\n", error: { code: "LOST" } };
      expect(result).toMatchObject({ ...lost, calls: [{ worker: "kid", stdout: "up\n" }] });
      // An Engine that is stopped ends its containers in some order, and a run that has ended cancels what it called.
      expect(result?.calls[0]?.status).toMatch(signal === "SIGKILL" ? /^lost$/ : /^(lost|cancelled)$/);
      expect(result?.usage.outOfMemory).toBeNull();
      expect(orchestrator.lines.filter((line) => line.trouble !== undefined).length).toBeGreaterThan(0);

      await engine.start();
      const left = await engine.docker.listContainers({ all: true });
      if (signal === "SIGKILL") expect(left).toHaveLength(2);
      await using corral = await openCorral({ ...options, engineEnv: engine.env });
      expect(corral.reaped.cells).toHaveLength(left.length);
      expect(await engine.docker.listContainers({ all: true })).toEqual([]);
      expect((await engine.docker.listVolumes()).Volumes ?? []).toEqual([]);
    },
  );
});
