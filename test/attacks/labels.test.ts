import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readdir } from "node:fs/promises";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import type Docker from "dockerode";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { StartedContainers } from "../../src/isolation/engine/cell-remains.ts";
import { pinnedVolumes } from "../../src/isolation/engine/container-config.ts";
import { containerName, labelsFor, type Maker } from "../../src/isolation/port/labels.ts";
import { newRunId } from "../../src/run/model/job.ts";
import { currentOwner, type Owner } from "../../src/state/owner.ts";
import { type Engine, openEngine } from "../isolation/engine/engine.ts";
import { canLeaveProcesses, leftProcess } from "../isolation/kernel/left-process.ts";
import { mount } from "../sandbox/sandboxes.ts";

/** What `reap` takes for its own, on a machine whose Engine others use as well. */

let engine: Engine;
const made: { remove(): Promise<unknown> }[] = [];

beforeAll(async () => {
  engine = await openEngine();
});
afterAll(async () => {
  for (const { remove } of made) await remove();
  await engine[Symbol.asyncDispose]();
});

const dead: Owner = { ...currentOwner(), startTicks: "1" };

async function labelled(name: string, owner: Owner, kind: "container" | "volume", run: string) {
  const { plan } = await engine.plan({ command: ["true"], run });
  return labelsFor({ ...engine.maker, owner }, kind, name, plan);
}

type State = "created" | "running" | "exited";

/** A container with these labels, made past the driver, in this state. */
async function container(name: string, labels: Record<string, string>, state: State, image = "corral/base") {
  const command = state === "running" ? ["sleep", "300"] : ["true"];
  const HostConfig = { NetworkMode: "none" };
  const thing = await engine.docker.createContainer({ name, Image: image, Cmd: command, Labels: labels, HostConfig });
  made.push({ remove: () => thing.remove({ force: true }).catch(() => {}) });
  if (state !== "created") await thing.start();
  if (state === "exited") await thing.wait();
  return thing;
}

const DEVICE = "/proc/1234567/fd/20";

async function volume(name: string, labels: Record<string, string>, device = DEVICE): Promise<void> {
  const DriverOpts = { type: "none", o: "bind", device };
  await madeVolume({ Name: name, Labels: labels, DriverOpts });
}

async function madeVolume(options: { Name: string } & Docker.VolumeCreateOptions): Promise<void> {
  await engine.docker.createVolume(options);
  const thing = engine.docker.getVolume(options.Name);
  made.push({ remove: () => thing.remove().catch(() => {}) });
}

async function exists(name: string): Promise<boolean> {
  const containers = await engine.docker.listContainers({ all: true, filters: { name: [name] } });
  const { Volumes } = await engine.docker.listVolumes({ filters: { name: [name] } });
  return containers.length + (Volumes ?? []).length > 0;
}

/** A volume without labels and options, as an Engine leaves one that ends while it makes it. */
async function bare(name: string): Promise<string> {
  await madeVolume({ Name: name });
  return name;
}

/** The name of a volume that this owner makes. */
async function nameBy(maker: Partial<Maker>): Promise<string> {
  const mounts = [mount("/data", "ro", { host: await engine.folder("data") })];
  const { plan, pins } = await engine.plan({ command: ["true"], mounts });
  const [made] = pinnedVolumes(plan, pins, { ...engine.maker, ...maker }).values();
  return made?.name ?? "";
}

/** As the Engine names a volume that nobody named. */
function givenName(): string {
  return randomBytes(32).toString("hex");
}

/** A thing of an owner, under its right name and seal. */
async function owned(owner: Owner, state: State | "volume", run = newRunId()): Promise<string> {
  if (state === "volume") {
    const given = givenName();
    await volume(given, await labelled(DEVICE, owner, "volume", run));
    return given;
  }
  const name = `corral-${run}`;
  await container(name, await labelled(name, owner, "container", run), state);
  return name;
}

describe("reaping removes", () => {
  it("a dead owner's containers in every state, and its volumes, and tells what it removed", async () => {
    const names = [await owned(dead, "created"), await owned(dead, "running"), await owned(dead, "exited")];
    const lone = await owned(dead, "volume");
    const reaped = await engine.driver.reap();
    expect(reaped.cells.map((run) => `corral-${run}`).sort()).toEqual([...names].sort());
    expect(reaped.volumes).toEqual([lone]);
    for (const name of [...names, lone]) expect(await exists(name)).toBe(false);
    expect(await engine.driver.reap()).toEqual({ cells: [], volumes: [], directories: [] });
  });

  it("a dead owner's volume of which its Engine left nothing but the name", async () => {
    const name = await bare(await nameBy({ owner: dead }));
    expect((await engine.driver.reap()).volumes).toEqual([name]);
    expect(await exists(name)).toBe(false);
  });

  it("what a process that was killed has left, with its volumes and its directory", async () => {
    const child = fileURLToPath(new URL("../isolation/engine/abandon-cell.ts", import.meta.url));
    const orchestrator = spawn(process.execPath, [child, engine.stateDir], { stdio: ["pipe", "pipe", "inherit"] });
    const [line] = await once(orchestrator.stdout, "data");
    const { run, ownerDir } = JSON.parse(String(line)) as { run: string; ownerDir: string };
    expect((await engine.driver.reap()).cells).toEqual([]);
    expect((await engine.traces(run)).length).toBe(2);
    orchestrator.kill("SIGKILL");
    await once(orchestrator, "exit");
    const reaped = await engine.driver.reap();
    expect(reaped.cells).toEqual([run]);
    expect(reaped.directories).toEqual([basename(ownerDir)]);
    expect(await engine.traces(run)).toEqual([]);
  });

  it.skipIf(!canLeaveProcesses)(
    "processes that an Engine left of a dead owner's container, and of no other",
    async () => {
      const [killed, living, foreign] = [givenName(), givenName(), givenName()];
      await using left = leftProcess(killed);
      await using kept = leftProcess(living);
      await using others = leftProcess(foreign);
      const ours = new StartedContainers(engine.startedDir, currentOwner());
      ours.add(living);
      new StartedContainers(engine.startedDir, dead).add(killed);
      const stranger = new StartedContainers(engine.startedDir, { ...dead, machine: "another" });
      stranger.add(foreign);
      const noted = (await readdir(engine.startedDir)).length;
      await engine.driver.reap();
      expect((await readdir(engine.startedDir)).length).toBe(noted - 1);
      await expect.poll(() => left.isOver(), { timeout: 10_000 }).toBe(true);
      expect(left.hasGroup()).toBe(false);
      expect([kept.isOver(), others.isOver()]).toEqual([false, false]);
      await ours.remove();
    },
  );

  it("the same things from two sides at once, without an error, and each is told of at most twice", async () => {
    const names = await Promise.all(
      ["created", "running", "exited", "volume"].map((kind) => owned(dead, kind as State)),
    );
    const reaped = await Promise.all([engine.driver.reap(), engine.driver.reap(), engine.driver.reap()]);
    expect(new Set(reaped.flatMap(({ cells }) => cells)).size).toBe(3);
    for (const name of names) expect(await exists(name)).toBe(false);
  });
});

describe("reaping leaves", () => {
  async function survives(make: () => Promise<string>): Promise<void> {
    const name = await make();
    const reaped = await engine.driver.reap();
    expect(reaped).toEqual({ cells: [], volumes: [], directories: [] });
    expect(await exists(name)).toBe(true);
  }

  it.each(["created", "running", "exited", "volume"] as const)("a living owner's: %s", (state) =>
    survives(() => owned(currentOwner(), state)),
  );

  it.each([
    ["another machine", { machine: "another" }],
    ["another process namespace", { pidNamespace: "pid:[1]" }],
  ])("what belongs to an owner on %s, who may be alive", (_, other) =>
    survives(() => owned({ ...dead, ...other }, "created")),
  );

  it("another state directory's", async () => {
    const stranger: Maker = { owner: dead, sealKey: Buffer.alloc(32, 9) };
    await survives(async () => {
      const run = newRunId();
      const { plan } = await engine.plan({ command: ["true"], run });
      const name = `corral-${run}`;
      await container(name, labelsFor(stranger, "container", name, plan), "created");
      return name;
    });
  });

  it("a foreign container and a foreign volume with all labels of a dead owner's cell, but another name", async () => {
    const run = newRunId();
    const copied = await labelled(`corral-${run}`, dead, "container", run);
    await survives(async () => {
      const name = `somebodys-${run}`;
      await container(name, copied, "created");
      return name;
    });
    await survives(async () => {
      const name = givenName();
      await volume(name, copied, `corral-${run}`);
      return name;
    });
  });

  it("a foreign volume with all labels of a dead owner's, which shows something else, or has a name of its own", async () => {
    const run = newRunId();
    const copied = await labelled(DEVICE, dead, "volume", run);
    await survives(async () => {
      const name = givenName();
      await volume(name, copied, "/proc/1234567/fd/21");
      return name;
    });
    await survives(async () => {
      await volume(`corral-${run}-0`, copied);
      return `corral-${run}-0`;
    });
    await survives(async () => {
      const name = givenName();
      await engine.docker.createVolume({ Name: name, Labels: copied });
      made.push({ remove: () => engine.docker.getVolume(name).remove() });
      return name;
    });
  });

  it("a bare volume with the name of a living owner's, of another state directory's, or with a forged one", async () => {
    await survives(async () => await bare(await nameBy({ owner: currentOwner() })));
    await survives(async () => await bare(await nameBy({ owner: dead, sealKey: Buffer.alloc(32, 9) })));
    await survives(async () => {
      const [, , once, seal] = (await nameBy({ owner: currentOwner() })).split("-");
      const [, mark] = (await nameBy({ owner: dead })).split("-");
      return await bare(`corral-${mark}-${once}-${seal}`);
    });
    await survives(async () => await bare(`corral-${"0".repeat(16)}-${"0".repeat(16)}-${"0".repeat(64)}`));
  });

  it("a volume with the name of a dead owner's that has an option or a label", async () => {
    await survives(async () => {
      const name = await nameBy({ owner: dead });
      await volume(name, {});
      return name;
    });
  });

  it("a foreign container with labels that were written by hand", async () => {
    const labels = { ...(await labelled("x", dead, "container", "x")), "dev.corral.seal": "0".repeat(64) };
    await survives(async () => {
      await container("corral-by-hand", labels, "created");
      return "corral-by-hand";
    });
  });

  it("containers of an image that carries the labels of a dead owner's cell", async () => {
    const run = newRunId();
    const copied = await labelled(`corral-${run}`, dead, "container", run);
    const source = await container(`source-${run}`, {}, "created");
    const changes = Object.entries(copied).map(([key, value]) => `LABEL ${key}=${JSON.stringify(value)}`);
    const tag = `corral-test-labels:${run}`;
    await source.commit({ repo: "corral-test-labels", tag: run, changes: changes.join("\n") });
    try {
      await survives(async () => {
        await container(`from-image-${run}`, {}, "created", tag);
        return `from-image-${run}`;
      });
      const { Config } = await engine.docker.getImage(tag).inspect();
      expect(Config.Labels).toMatchObject(copied);
      // A cell of that image is its orchestrator's all the same: every label is written over.
      const { plan, pins } = await engine.plan({ command: ["true"], image: tag });
      const start = { plan, pins, signal: new AbortController().signal, onOutput: () => {} };
      const started = await engine.driver.start(start);
      if (!started.ok) throw new Error(JSON.stringify(started.violations));
      await using cell = started.cell;
      const listed = (await engine.driver.list()).find(({ id }) => id === cell.id);
      expect(listed).toMatchObject({ run: plan.run, owner: currentOwner(), ownerAlive: true });
    } finally {
      await engine.docker.getContainer(`from-image-${run}`).remove({ force: true });
      await engine.docker.getImage(tag).remove({ force: true });
    }
  });
});

describe("what a project or a worker says", () => {
  it("sets no label: the container has Corral's own and its image's, and nothing besides", async () => {
    const env = { "dev.corral.run": "x" };
    const { plan, pins } = await engine.plan({ command: ["true", "--label", "dev.corral.owner=x"], env });
    const start = { plan, pins, signal: new AbortController().signal, onOutput: () => {} };
    const started = await engine.driver.start(start);
    if (!started.ok) throw new Error(JSON.stringify(started.violations));
    await using cell = started.cell;
    const { Config } = await engine.docker.getContainer(cell.id).inspect();
    const image = (await engine.docker.getImage("corral/base").inspect()).Config.Labels ?? {};
    const own = labelsFor(engine.maker, "container", containerName(plan), plan);
    expect(Config.Labels).toEqual({ ...image, ...own });
  });
});
