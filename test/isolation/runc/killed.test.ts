import { execFileSync } from "node:child_process";
import { existsSync, globSync, readdirSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { afterAll, describe, expect, it } from "vitest";
import { reapRuncCells } from "../../../src/isolation/runc/ledger/reap-cells.ts";
import { cellId, runcPaths } from "../../../src/isolation/runc/model/layout.ts";
import { currentOwner, loadSealKey } from "../../../src/state/owner.ts";
import { statePaths } from "../../../src/state/state-dir.ts";
import { type Orchestrator, startOrchestrator } from "../../run/orchestrator.ts";
import { sh, writeProject } from "../../run/project-fixture.ts";
import { AT_LENGTH } from "../../tiers/at-length.ts";
import { giveGate } from "../../tiers/give-gate.ts";

const ROUNDS = AT_LENGTH ? 10 : 1;

const opened: string[] = [];
afterAll(async () => {
  for (const base of opened) {
    await rm(base, { recursive: true, force: true });
  }
});

async function openPlaces() {
  const base = await mkdtemp(join(tmpdir(), "cr-"));
  opened.push(base);
  const places = { projectDir: join(base, "p"), stateDir: join(base, "s") };
  const network = { allow: ["a.example:443"] };
  const waits = { command: sh("echo up; exec sleep 300"), sandbox: { network } };
  const quick = { command: sh("echo up") };
  writeProject(places.projectDir, { workers: { waits, quick }, sandbox: { network }, policy: "default" });
  await giveGate(places.stateDir);
  const sealKey = await loadSealKey(places.stateDir);
  return { ...places, sealKey, paths: runcPaths(places.stateDir), env: { CORRAL_DRIVER: "runc" } };
}

type Places = Awaited<ReturnType<typeof openPlaces>>;

/** Everything on this machine that is of the cells of a state directory. */
function remains({ stateDir, sealKey, paths }: Places): string[] {
  const prefix = cellId(sealKey, "");
  const lines = execFileSync("ps", ["-eo", "pid,args"], { encoding: "utf8", maxBuffer: 64 << 20 }).split("\n");
  const mounts = readFileSync("/proc/self/mountinfo", "utf8").split("\n");
  return [
    ...groupsOf(prefix),
    // crun keeps translated filters there, whoever's cells they are for.
    ...namesIn(paths.state).flatMap((name) => (name === ".cache" ? [] : [`notes ${name}`])),
    // One without labels is removed when it is old.
    ...namesIn(paths.cells).filter((name) => !name.startsWith(".")),
    ...namesIn(paths.launchers),
    ...lines.filter((line) => line.includes(prefix) || line.includes(paths.memory)),
    ...mounts.filter((line) => line.includes(statePaths(stateDir).runc)),
  ];
}

function groupsOf(prefix: string): string[] {
  const places = ["corral", "*/corral", "corral.slice", "*/corral.slice"];
  return globSync(places.map((place) => `/sys/fs/cgroup/${place}/${prefix}*`));
}

function namesIn(dir: string): string[] {
  return existsSync(dir) ? readdirSync(dir) : [];
}

const POINTS: Readonly<Record<string, (places: Places, victim: Orchestrator) => boolean>> = {
  "has made the directory of a cell": ({ paths }) => namesIn(paths.cells).some((name) => !name.startsWith(".")),
  "has started what starts runc": ({ paths }) => namesIn(paths.launchers).length > 0,
  "has started runc, which has made the control groups": ({ sealKey }) => groupsOf(cellId(sealKey, "")).length > 0,
  "has started runc, which has written its notes": ({ paths }) =>
    globSync(join(paths.state, "*/{state.json,status}")).length > 0,
  "has cells at work": (_, { lines }) => lines.some(({ began }) => began !== undefined),
};

async function killedAt(places: Places, worker: string, isReached: (typeof POINTS)[string]): Promise<void> {
  await using victim = startOrchestrator({ ...places, worker, runs: 4 });
  const over = Date.now() + 60_000;
  while (!isReached(places, victim)) {
    if (Date.now() > over) throw new Error(`this point was not reached: ${victim.stderr()}`);
    await pause(1);
  }
  await victim.kill();
}

async function reap({ paths, sealKey }: Places): Promise<string[]> {
  return await reapRuncCells({ owner: currentOwner(), sealKey }, paths);
}

describe("kill -9 of a process that", () => {
  it.each(Object.keys(POINTS))(
    "%s leaves what the next one removes, also at once",
    async (point) => {
      const places = await openPlaces();
      for (let round = 0; round < ROUNDS; round += 1) {
        await killedAt(places, "waits", POINTS[point] ?? (() => true));
        // What starts runc may be there before the directory of the first cell.
        const made = namesIn(places.paths.cells).filter((name) => !name.startsWith("."));
        const reaped = await reap(places);
        expect(reaped.sort()).toEqual(made.sort());
        expect(remains(places)).toEqual([]);
        // What a program that nobody ended would still make.
        await pause(500);
        expect(remains(places)).toEqual([]);
      }
    },
    300_000,
  );

  it("makes and removes cells leaves what the next one removes", async () => {
    const places = await openPlaces();
    for (let round = 0; round < ROUNDS; round += 1) {
      await killedAt(places, "quick", (_, { lines }) => lines.some(({ ended }) => ended !== undefined));
      await reap(places);
      await pause(500);
      expect(remains(places)).toEqual([]);
    }
  });
});

it("the cells of a process that lives are not removed by another one, nor by two at once", async () => {
  const places = await openPlaces();
  await using living = startOrchestrator({ ...places, worker: "waits", runs: 2 });
  await living.said("began", 2);
  const before = namesIn(places.paths.cells).sort();
  expect(await Promise.all([reap(places), reap(places)])).toEqual([[], []]);
  expect(namesIn(places.paths.cells).sort()).toEqual(before);
  await living.kill();
  const reaped = await Promise.all([reap(places), reap(places)]);
  expect([...new Set(reaped.flat())].sort()).toEqual(before);
  expect(remains(places)).toEqual([]);
});
