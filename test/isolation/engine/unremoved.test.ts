import type Docker from "dockerode";
import { afterAll, beforeAll, expect, it } from "vitest";
import { connect } from "../../../src/isolation/engine/open.ts";
import { EngineTrouble } from "../../../src/isolation/port/driver.ts";
import { type AwayEngine, openAwayEngine } from "../../faults/away-engine.ts";
import { mount } from "../../sandbox/sandboxes.ts";
import { cellOf, type Engine, openEngine } from "./engine.ts";

const undisturbed = { signal: new AbortController().signal, onOutput: () => {} };
let engine: Engine;

beforeAll(async () => {
  engine = await openEngine();
});
afterAll(async () => await engine[Symbol.asyncDispose]());

/** A driver of an Engine that can go away, and a cell of it that runs. */
async function sleeping(away: AwayEngine, alter = (docker: Docker): Docker => docker, command = ["sleep", "300"]) {
  const { docker } = await connect(away.env);
  const driver = engine.driverOf(engine.maker, { docker: alter(docker) });
  const mounts = [mount("/data", "ro", { host: await engine.folder("data") })];
  const { plan, pins } = await engine.plan({ command, mounts });
  const cell = cellOf(await driver.start({ plan, pins, ...undisturbed }));
  cell.release(Buffer.alloc(0));
  expect((await engine.traces(plan.run)).length).toBeGreaterThan(1);
  return { driver, cell, run: plan.run };
}

async function gone(run: string, ms: number): Promise<void> {
  await expect.poll(() => engine.traces(run), { timeout: ms, interval: 100 }).toEqual([]);
}

it("a cell that could not be removed is removed by the same process when the Engine is back", async () => {
  await using away = await openAwayEngine();
  const { cell, run } = await sleeping(away);
  await away.go();
  await expect(cell[Symbol.asyncDispose]()).rejects.toThrow(EngineTrouble);
  expect(await engine.traces(run)).not.toEqual([]);
  await away.comeBack();
  await gone(run, 15_000);
});

it("so are the volumes of a container that the Engine removed before it ended", async () => {
  await using away = await openAwayEngine();
  const { cell, run } = await sleeping(away);
  await away.go();
  await expect(cell[Symbol.asyncDispose]()).rejects.toThrow(EngineTrouble);
  await engine.docker.getContainer(`corral-worker-${run}`).remove({ force: true });
  expect(await engine.traces(run)).toHaveLength(1);
  await away.comeBack();
  await gone(run, 15_000);
});

it("the end of a project tries at once, and does not wait for an Engine that is away", async () => {
  await using away = await openAwayEngine();
  const { cell, driver, run } = await sleeping(away);
  await away.go();
  await expect(cell[Symbol.asyncDispose]()).rejects.toThrow(EngineTrouble);
  await driver.removeLeft();
  expect(await engine.traces(run)).not.toEqual([]);
  await away.comeBack();
  await driver.removeLeft();
  expect(await engine.traces(run)).toEqual([]);
});

/** Says that it removed a volume, and leaves it, as an Engine does that is ending. */
function ending() {
  const state = { isEnding: true };
  const alter = (docker: Docker): Docker => {
    const getVolume = (name: string): Docker.Volume => {
      const volume = docker.getVolume(name);
      const remove = volume.remove.bind(volume);
      volume.remove = (async () => (state.isEnding ? undefined : await remove())) as typeof volume.remove;
      return volume;
    };
    return Object.assign(Object.create(docker) as Docker, { getVolume });
  };
  const hasEnded = (): void => {
    state.isEnding = false;
  };
  return { alter, hasEnded };
}

it("volumes that an Engine leaves which ends, and says that it removed them, are removed afterwards", async () => {
  await using away = await openAwayEngine();
  const { alter, hasEnded } = ending();
  const { cell, run } = await sleeping(away, alter);
  await away.go();
  expect(await cell.exit).toMatchObject({ kind: "lost" });
  await away.comeBack();
  await cell[Symbol.asyncDispose]();
  expect(await engine.traces(run)).toHaveLength(1);
  hasEnded();
  await gone(run, 15_000);
});

it("also if all was well with the cell, and only the next one finds that the Engine has ended", async () => {
  await using away = await openAwayEngine();
  const { alter, hasEnded } = ending();
  const { cell, driver, run } = await sleeping(away, alter, ["true"]);
  expect(await cell.exit).toMatchObject({ kind: "exited", code: 0 });
  await cell[Symbol.asyncDispose]();
  expect(await engine.traces(run)).toHaveLength(1);
  await away.go();
  hasEnded();
  const { plan, pins } = await engine.plan({ command: ["true"] });
  await expect(driver.start({ plan, pins, ...undisturbed })).rejects.toThrow(EngineTrouble);
  await away.comeBack();
  await gone(run, 15_000);
});

it("what dead owners left is removed later if the Engine is away when it is to be removed", async () => {
  await using away = await openAwayEngine();
  const { docker } = await connect(away.env);
  const dead = engine.driverOf({ ...engine.maker, owner: { ...engine.maker.owner, startTicks: "1" } });
  const { plan, pins } = await engine.plan({ command: ["sleep", "300"] });
  cellOf(await dead.start({ plan, pins, ...undisturbed }));
  const driver = engine.driverOf(engine.maker, { docker });
  await away.go();
  await expect(driver.reap()).rejects.toThrow(EngineTrouble);
  await away.comeBack();
  await gone(plan.run, 15_000);
});
