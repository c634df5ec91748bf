import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { openCorral } from "../../../src/run/open/corral.ts";
import { mountsBelow } from "../../changes/view/opened-view.ts";
import { startOrchestrator } from "../orchestrator.ts";
import { sh, writeProject } from "../project-fixture.ts";

const zones = [{ name: "data", mode: "rw" }];
let base: string;

beforeEach(async () => {
  base = await mkdtemp(join(tmpdir(), "cr-"));
  writeProject(join(base, "p"), {
    workers: {
      boss: { command: sh("echo b > /data/b; echo up; corral-call kid"), calls: ["kid"], sandbox: { zones } },
      kid: { command: sh("echo k > /data/a; echo up; exec sleep 300"), sandbox: { zones } },
    },
    zones: { data: "rw" },
    files: { "data/a": "old\n" },
    yaml: { approval: { mode: "approve_all" } },
  });
});

afterEach(async () => {
  const corral = await openCorral({ ...places(), engineEnv: process.env });
  await corral[Symbol.asyncDispose]();
  await rm(base, { recursive: true, force: true });
});

const places = () => ({ projectDir: join(base, "p"), stateDir: join(base, "s") });

it("after kill -9 the next orchestrator takes away the views of the one before, an overlay over an overlay among them", async () => {
  await using victim = startOrchestrator({ ...places(), worker: "boss", runs: 2 });
  await victim.said("began", 4);
  expect(mountsBelow(base)).toHaveLength(4);
  await victim.kill();
  expect(mountsBelow(base)).toHaveLength(4);
  await using corral = await openCorral({ ...places(), engineEnv: process.env });
  expect(corral.reaped.cells).toHaveLength(4);
  expect(corral.reapTrouble).toBeNull();
  expect(mountsBelow(base)).toEqual([]);
  expect(await readdir(join(base, "s/live"))).toHaveLength(1);
  expect(await readdir(join(base, "p/data"))).toEqual(["a"]);
  expect(await readFile(join(base, "p/data/a"), "utf8")).toBe("old\n");
});
