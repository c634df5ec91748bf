import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, readFile, utimes } from "node:fs/promises";
import { basename, join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openDockerEngine } from "../../src/isolation/engine/open.ts";
import { bothDrivers, openEngine as openPort } from "../../src/isolation/open-engine.ts";
import type { Plan } from "../../src/isolation/plan/plan.ts";
import { type CellMaker, type Driver, EngineTrouble } from "../../src/isolation/port/driver.ts";
import { DriverUnavailableError } from "../../src/isolation/port/engine.ts";
import type { EngineFacts } from "../../src/isolation/port/images.ts";
import {
  conditionsFor,
  probeCell,
  probeConditions,
  rememberedProbe,
  rememberProbe,
  runtimesToTry,
} from "../../src/isolation/runc/ground/conditions.ts";
import { Runc as Cells } from "../../src/isolation/runc/open.ts";
import type { DriverChoice } from "../../src/sandbox/driver-choice.ts";
import { makeOwnerDir } from "../../src/state/live-dir.ts";
import { currentOwner } from "../../src/state/owner.ts";
import { statePaths } from "../../src/state/state-dir.ts";
import { mount } from "../sandbox/sandboxes.ts";
import { cellOf } from "./engine/engine.ts";
import { isCrun, openRunc, RUNTIME, type Runc } from "./runc/runc.ts";

let runc: Runc;
beforeAll(async () => {
  runc = await openRunc();
});
afterAll(() => runc[Symbol.asyncDispose]());

const undisturbed = { signal: new AbortController().signal, onOutput: () => {} };
const BY_DEFAULT = { driver: "engine", why: "the default, since Docker's tools show its containers" };
const TRIED = { driver: "runc", why: `a first cell of ${RUNTIME} was what was planned` };
const PROBE = isCrun ? "probe-crun.json" : "probe.json";
const FACTS: EngineFacts = {
  isLocal: true,
  version: "20.10",
  security: ["seccomp"],
  runc: "runc",
  init: "docker-init",
};

async function portFor(driver: string | undefined, stateDir = runc.stateDir) {
  return await openPort({
    stateDir,
    engineEnv: { ...process.env, CORRAL_OCI_RUNTIME: RUNTIME, CORRAL_DRIVER: driver },
  });
}

/** What the machine's own conditions are, as the probe remembers them. */
async function conditionsHere(): Promise<string> {
  const { ground } = await openDockerEngine({ stateDir: runc.stateDir, engineEnv: process.env });
  const judged = conditionsFor(ground.facts, RUNTIME);
  if (!judged.ok) throw new Error(judged.reason);
  return probeConditions(judged.conditions, ground.facts.version);
}

describe("CORRAL_DRIVER", () => {
  it("takes no other value, and none means auto", async () => {
    await expect(portFor("docker")).rejects.toThrow(
      'CORRAL_DRIVER is "docker", and must be one of: auto, engine, runc, prefer-runc',
    );
    for (const none of [undefined, "", "auto"]) {
      const port = await portFor(none);
      expect(await port.driving("runs")).toEqual(BY_DEFAULT);
      expect(await port.driving("items")).toEqual(TRIED);
    }
  });

  it("auto makes cells of items with runc, and all others with the Engine, for which it tries nothing", async () => {
    const stateDir = join(runc.dir, "untried");
    await mkdir(stateDir, { mode: 0o700 });
    const port = await portFor("auto", stateDir);
    const made = async (by: CellMaker): Promise<string> => {
      const { plan, pins } = await runc.plan({ command: ["true"] });
      await using cell = cellOf(await by.start({ plan, pins, ...undisturbed }));
      return cell.enforcement.driver;
    };
    expect(await made(port.driver)).toBe("engine");
    expect(existsSync(join(statePaths(stateDir).runc, PROBE))).toBe(false);
    expect(await made(port.itemCells)).toBe("runc");
  });

  it("prefer-runc takes runc for all cells", async () => {
    const port = await portFor("prefer-runc");
    for (const use of ["runs", "items"] as const) expect(await port.driving(use)).toEqual(TRIED);
  });

  it("prefer-runc takes the Engine if the first cell was not as planned, says why, and takes runc if it is made again", async () => {
    const stateDir = join(runc.dir, "auto");
    await mkdir(stateDir, { mode: 0o700 });
    const file = join(statePaths(stateDir).runc, PROBE);
    await rememberProbe(file, await conditionsHere(), { ok: false, reason: "seccomp: found absent" }, Date.now());
    const port = await portFor("prefer-runc", stateDir);
    const why = `${RUNTIME} cannot make cells here: seccomp: found absent`;
    expect(await port.driving("runs")).toEqual({ driver: "engine", why });
    expect(await (await portFor("auto", stateDir)).driving("items")).toEqual({ driver: "engine", why });
    const { plan, pins } = await runc.plan({ command: ["sleep", "60"] });
    await using _ = cellOf(await port.driver.start({ plan, pins, ...undisturbed }));
    expect(await port.driver.list()).toMatchObject([{ run: plan.run, driver: "engine" }]);
    const engineEnv = { ...process.env, CORRAL_DRIVER: "prefer-runc" };
    const again = await openPort({ stateDir, engineEnv, triesAgain: true });
    expect((await again.driving("runs")).driver).toBe("runc");
    expect(JSON.parse(await readFile(file, "utf8"))).toMatchObject({ ok: true });
  });

  it("is tried again by the next process if the first cell found a full disk", async () => {
    const stateDir = join(runc.dir, "full");
    await mkdir(stateDir, { mode: 0o700 });
    const sized = (options: string) => execFileSync("mount", ["-t", "tmpfs", "-o", options, "none", stateDir]);
    sized("size=40m,mode=700");
    try {
      const full = await (await portFor("runc", stateDir)).driving("runs");
      const place = join(statePaths(stateDir).runc, "layers");
      expect(full).toMatchObject({ driver: null, why: expect.stringContaining(`the disk of ${place} is full`) });
      sized("remount,size=400m,mode=700");
      expect(await (await portFor("runc", stateDir)).driving("runs")).toMatchObject({ driver: "runc" });
    } finally {
      execFileSync("umount", ["-l", stateDir]);
    }
  });

  it("runc makes a first cell to see that it is as planned, once, and remembers it", async () => {
    expect(await (await portFor("runc")).driving("runs")).toEqual({
      driver: "runc",
      why: `CORRAL_DRIVER or --driver is runc, and ${TRIED.why}`,
    });
    const file = join(statePaths(runc.stateDir).runc, PROBE);
    const before = await readFile(file, "utf8");
    expect(JSON.parse(before)).toMatchObject({ ok: true });
    await (await portFor("runc")).driving("runs");
    expect(await readFile(file, "utf8")).toBe(before);
    expect((await (await portFor("engine")).driver.list()).filter(({ worker }) => worker === "probe")).toEqual([]);
  });

  it("runc starts nothing anywhere if the first cell was not as planned, and says why", async () => {
    const stateDir = join(runc.dir, "failed");
    await mkdir(stateDir, { mode: 0o700 });
    const file = join(statePaths(stateDir).runc, PROBE);
    await rememberProbe(file, await conditionsHere(), { ok: false, reason: "seccomp: found absent" }, Date.now());
    const port = await portFor("runc", stateDir);
    const why = `${RUNTIME} cannot make cells here: seccomp: found absent`;
    expect(await port.driving("runs")).toEqual({ driver: null, why });
    const { plan, pins } = await runc.plan({ command: ["true"] });
    await expect(port.driver.start({ plan, pins, ...undisturbed })).rejects.toThrow(why);
    expect(await runc.traces(plan.run)).toEqual([]);
    expect((await port.driver.list()).map(({ run }) => run)).not.toContain(plan.run);
  });

  it("runc refuses a plan that only the Engine can carry, and the Engine does not make its cell either", async () => {
    const hardening = { ...runc.untrusted.hardening, seccomp: "engine" as const };
    const { plan, pins } = await runc.plan({ command: ["true"], policy: { ...runc.untrusted, hardening } });
    const { driver } = await portFor("runc");
    const missing = [
      expect.stringMatching(/^runc, which CORRAL_DRIVER or --driver asks for: it has the Engine's own seccomp profile/),
    ];
    const refused = { ok: false, violations: [{ code: "ENFORCEMENT_MISSING", missing }] };
    expect(await driver.start({ plan, pins, ...undisturbed })).toEqual(refused);
    expect((await driver.list()).map(({ run }) => run)).not.toContain(plan.run);
  });

  it("engine lists and reaps the cells of runc, too", async () => {
    const dead = { ...runc.maker, owner: { ...currentOwner(), startTicks: "1" } };
    const { plan, pins } = await runc.plan({ command: ["sleep", "60"] });
    const cell = cellOf(await runc.driverOf(dead).start({ plan, pins, ...undisturbed }));
    const { driver } = await portFor("engine");
    const listed = (await driver.list()).filter(({ run }) => run === plan.run);
    expect(listed).toMatchObject([{ driver: "runc", state: "running", ownerAlive: false }]);
    expect((await driver.reap()).cells).toContain(plan.run);
    expect(await runc.traces(plan.run)).toEqual([]);
    await cell[Symbol.asyncDispose]();
  });
});

describe("a driver that is asked for elsewhere", () => {
  const missing = (text: unknown) => ({ ok: false, violations: [{ code: "ENFORCEMENT_MISSING", missing: [text] }] });
  const planUnder = (driver: DriverChoice) =>
    runc.plan({ command: ["true"], policy: { ...runc.untrusted, hardening: { ...runc.untrusted.hardening, driver } } });

  it("by a project is taken unless CORRAL_DRIVER says another, and named as its own", async () => {
    const port = (await portFor(undefined)).ofProject("runc");
    const why = `\`driver\` of corral.yaml is runc, and ${TRIED.why}`;
    expect(await port.driving("runs")).toEqual({ driver: "runc", why });
    expect(await (await portFor("engine")).ofProject("runc").driving("runs")).toMatchObject({ driver: "engine" });
    expect(await (await portFor("auto")).ofProject("runc").driving("runs")).toEqual(BY_DEFAULT);
    const stateDir = join(runc.dir, "project");
    await mkdir(stateDir, { mode: 0o700 });
    const file = join(statePaths(stateDir).runc, PROBE);
    await rememberProbe(file, await conditionsHere(), { ok: false, reason: "seccomp: found absent" }, Date.now());
    const failed = await (await portFor(undefined, stateDir)).ofProject("runc").driving("runs");
    expect(failed.driver).toBeNull();
    expect(new DriverUnavailableError(failed).message).toMatch(/Set `driver` of corral.yaml to auto or engine/);
  });

  it("by a policy makes the cell, whatever the project says, or nothing does", async () => {
    const byProject = (await portFor(undefined)).ofProject("prefer-runc").driver;
    const { plan, pins } = await planUnder("runc");
    await using cell = cellOf(await byProject.start({ plan, pins, ...undisturbed }));
    expect(cell.enforcement.driver).toBe("runc");
    for (const driver of [(await portFor("engine")).itemCells, (await portFor(undefined)).ofProject("engine").driver]) {
      const started = await driver.start({ plan, pins, ...undisturbed });
      expect(started).toEqual(missing(expect.stringMatching(/`driver` of the policy is runc, and .* is engine$/)));
    }
    const engine = await planUnder("engine");
    const { itemCells } = await portFor("auto");
    await using other = cellOf(await itemCells.start({ ...engine, ...undisturbed }));
    expect(other.enforcement.driver).toBe("engine");
  });
});

const AGREED = { write: "pre_approved", delete: "pre_approved" } as const;

describe("the runtimes of one machine", () => {
  async function ofRuntimes(...runtimes: string[]): Promise<Cells> {
    const { maker, ground, seccomp } = await openDockerEngine({ stateDir: runc.stateDir, engineEnv: process.env });
    const port = await portFor("engine");
    const image = () => port.driver.imageFacts("corral/base");
    const needs = { image, gate: () => port.gate(), triesAgain: false };
    return new Cells({ stateDir: runc.stateDir, maker, seccomp, ground, needs, runtimes });
  }

  it("are tried in their order, and what is known of each that cannot be used is said", async () => {
    const why = "/nowhere/crun cannot make cells here: the program /nowhere/crun was not found";
    const usable = await (await ofRuntimes("/nowhere/crun", "runc")).usable();
    expect(usable).toMatchObject({
      ok: true,
      why: expect.stringContaining(`a first cell of runc was what was planned; ${why}`),
    });
    const none = await (await ofRuntimes("/nowhere/crun")).usable();
    expect(none).toEqual({ ok: false, why: expect.stringContaining(why) });
    expect(runtimesToTry("/opt/crun")).toEqual(["/opt/crun"]);
    expect(runtimesToTry("").at(-1)).toBe("runc");
  });

  it("are crun, runc or the path of one of them", async () => {
    const why = expect.stringContaining("CORRAL_OCI_RUNTIME must be crun, runc or the path of one of them");
    for (const asked of ["runsc", "bin/crun", "/usr/bin/env"])
      expect(await (await ofRuntimes(asked)).usable()).toEqual({ ok: false, why });
  });

  it.skipIf(!isCrun)("share the work: runc makes the cells that crun cannot", async () => {
    const both = await ofRuntimes(RUNTIME, "runc");
    const usable = await both.usable();
    if (!usable.ok) throw new Error(usable.why);
    const madeBy = async (inner: string): Promise<string> => {
      const [outer, other] = [await runc.folder("outer"), await runc.folder("outer/inner")];
      const mounts = [mount("/outer", "rw", { host: outer, approval: AGREED }), mount(inner, "ro", { host: other })];
      const { plan, pins } = await runc.plan({ command: ["true"], mounts });
      expect(await both.objection(plan)).toBeNull();
      await using cell = cellOf(await usable.cells.start({ plan, pins, ...undisturbed }));
      return existsSync(join(runc.paths.state, cell.id, "state.json")) ? "runc" : "crun";
    };
    expect(await madeBy("/other")).toBe("crun");
    expect(await madeBy("/outer/inner")).toBe("runc");
  });
});

const images = { objection: async () => null, obstacle: async () => null, named: async (plan: Plan) => plan };

const nothing = {
  list: async () => [],
  usage: () => null,
  reap: async () => [],
  isAtHand: async () => true,
  close: () => {},
};

it("a plan that the other driver cannot carry, or has no image for yet, goes to the Engine", async () => {
  const made: string[] = [];
  const recording = (name: string): Driver => ({
    ...runc.driver,
    start: async () => {
      made.push(name);
      throw new EngineTrouble(name);
    },
  });
  const driving = { driver: "runc", why: "" } as const;
  const { plan, pins } = await runc.plan({ command: ["true"] });
  for (const [objection, isThere, waitsForNoImage, by] of [
    ["it cannot", true, false, "engine"],
    [null, true, true, "runc"],
    [null, false, true, "engine"],
    [null, false, false, "runc"],
  ] as const) {
    const other = { ...nothing, objection: async () => objection, isAtHand: async () => isThere };
    const choose = async () => ({ driving, cells: recording("runc"), waitsForNoImage });
    const both = bothDrivers(recording("engine"), other, { choose, images });
    await expect(both.start({ plan, pins, ...undisturbed })).rejects.toThrow();
    expect(made.splice(0)).toEqual([by]);
  }
});

it("the directory of a dead owner goes when the cells of the other driver have ended, or have failed to", async () => {
  const stateDir = join(runc.dir, "order");
  await mkdir(stateDir, { mode: 0o700 });
  const { driver } = await openDockerEngine({ stateDir, engineEnv: process.env });
  const { live } = statePaths(stateDir);
  const dead = { ...currentOwner(), startTicks: "1" };
  for (const end of ["ended", "failed"]) {
    const left = await makeOwnerDir(live, dead);
    const cells = Promise.withResolvers<string[]>();
    const other = { ...nothing, objection: async () => null, reap: () => cells.promise };
    const choose = async () => Promise.reject(new Error("nothing starts"));
    const reaping = bothDrivers(driver, other, { choose, images }).reap();
    reaping.catch(() => {});
    await driver.list();
    await pause(200);
    expect(existsSync(left)).toBe(true);
    if (end === "ended") {
      cells.resolve(["a"]);
      expect(await reaping).toEqual({ cells: ["a"], volumes: [], directories: [basename(left)] });
    } else {
      cells.reject(new EngineTrouble("a cell stays"));
      await expect(reaping).rejects.toThrow("a cell stays");
    }
    expect(existsSync(left)).toBe(false);
  }
});

describe("the first cell of runc", () => {
  const image = async () =>
    (await runc.driver.imageFacts("corral/base")) as NonNullable<Awaited<ReturnType<Driver["imageFacts"]>>>;
  const gate = async () => await (await portFor("engine")).gate();

  it("is good if it does what a cell must", async () => {
    expect(await probeCell(runc.driver, await image(), await gate(), "a00000000001")).toEqual({ ok: true });
    expect(await runc.traces("a00000000001")).toEqual([]);
  });

  it.each([
    [
      "is refused by its verification",
      { start: async () => ({ ok: false, violations: [{ code: "ENFORCEMENT_MISSING", missing: ["seccomp"] }] }) },
    ],
    ["cannot be made", { start: async () => Promise.reject(new EngineTrouble("no cgroup")) }],
    ["ends in another way", { start: async () => ({ ok: true, cell: endedCell(3) }) }],
    ["prints nothing", { start: async () => ({ ok: true, cell: endedCell(0) }) }],
  ])("is no reason to use runc if it %s", async (_, cells) => {
    const probed = await probeCell({ ...runc.driver, ...cells } as never, await image(), await gate(), "a00000000002");
    expect(probed).toEqual({ ok: false, reason: expect.stringMatching(/./) });
  });

  it("is made again under other conditions, and a day after it failed", async () => {
    const file = join(runc.dir, "probe/probe.json");
    await rememberProbe(file, "conditions", { ok: false, reason: "busy" }, 1000);
    expect(await rememberedProbe(file, "conditions", 2000)).toEqual({ ok: false, reason: "busy" });
    expect(await rememberedProbe(file, "others", 2000)).toBeNull();
    expect(await rememberedProbe(file, "conditions", 1000 + 25 * 3_600_000)).toBeNull();
    await rememberProbe(file, "conditions", { ok: true }, 1000);
    expect(await rememberedProbe(file, "conditions", 1000 + 25 * 3_600_000)).toEqual({ ok: true });
  });
});

describe("the conditions of runc", () => {
  it("are met on this machine", () => {
    expect(conditionsFor(FACTS)).toMatchObject({ ok: true, conditions: { apparmor: null } });
    const { conditions } = conditionsFor({ ...FACTS, security: ["apparmor", "seccomp"] }) as { conditions?: object };
    expect(conditions).toMatchObject({ apparmor: "docker-default" });
  });

  it.each([
    [{ isLocal: false }, "Unix socket"],
    [{ security: ["seccomp", "selinux"] }, "SELinux"],
    [{ security: ["userns"] }, "userns-remap"],
    [{ security: ["rootless"] }, "rootless"],
    [{ runc: null }, "default runtime"],
    [{ runc: "/nowhere/runc" }, "runc was not found"],
    [{ init: "no-such-init" }, "no-such-init was not found"],
    [{ runc: join(import.meta.dirname, "nothing") }, "runc was not found"],
  ] satisfies [Partial<EngineFacts>, string][])("are not met by an Engine with %o", (facts, reason) => {
    expect(conditionsFor({ ...FACTS, ...facts })).toEqual({ ok: false, reason: expect.stringContaining(reason) });
  });
});

it("a draft of a cell that stayed behind is removed, and one that is being made is not", async () => {
  const [old, fresh] = ["old", "fresh"].map((name) => join(runc.paths.cells, `.new-${name}`)) as [string, string];
  await mkdir(old, { recursive: true });
  await mkdir(fresh, { recursive: true });
  await utimes(old, 1, 1);
  await runc.driver.reap();
  await expect(readFile(join(old, "x"))).rejects.toThrow("ENOENT");
  await expect(mkdir(fresh)).rejects.toThrow("EEXIST");
  await expect(mkdir(old)).resolves.toBeUndefined();
});

function endedCell(code: number) {
  const usage = { cpuMs: null, memoryBytesPeak: null };
  return {
    release() {},
    exit: Promise.resolve({ kind: "exited", code, outOfMemory: false, usage }),
    [Symbol.asyncDispose]: async () => {},
  };
}
