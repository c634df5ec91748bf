import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { gateOf } from "../../../src/isolation/plan/plan.ts";
import type { Cell } from "../../../src/isolation/port/cell.ts";
import { Launcher } from "../../../src/isolation/runc/cells/launcher.ts";
import { Launchers } from "../../../src/isolation/runc/cells/launchers.ts";
import type { ImageRoot } from "../../../src/isolation/runc/model/layout.ts";
import type { Mount } from "../../../src/sandbox/mount.ts";
import { mount } from "../../sandbox/sandboxes.ts";
import { cellOf } from "../engine/engine.ts";
import { openRunc, type Runc } from "./runc.ts";

let runc: Runc;
beforeEach(async () => {
  runc = await openRunc();
});
afterEach(() => runc[Symbol.asyncDispose]());

interface Working {
  readonly cell: Cell;
  readonly run: string;
  readonly said: () => string;
}

async function started(script: string, mounts: readonly Mount[] = []): Promise<Working> {
  const { plan, pins } = await runc.plan({ command: ["sh", "-c", script], mounts });
  let text = "";
  const onOutput = (_: string, chunk: Buffer): void => {
    text += chunk;
  };
  const cell = cellOf(await runc.driver.start({ plan, pins, onOutput, signal: new AbortController().signal }));
  return { cell, run: plan.run, said: () => text };
}

/** The shell that waits for the runc of a cell, and the launcher that started the shell. */
function aboveOf({ cell }: Working): { readonly shell: number; readonly launcher: number } {
  const lines = execFileSync("ps", ["-eo", "pid,ppid,args"], { encoding: "utf8" }).split("\n");
  const [, shell = 0] = (lines.find((line) => line.includes(`--bundle`) && line.includes(cell.id)) ?? "")
    .trim()
    .split(/\s+/)
    .map(Number);
  return { shell, launcher: parentOf(shell) };
}

function parentOf(pid: number): number {
  return Number(/^PPid:\t(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "latin1"))?.[1]);
}

/** Cells that wait at their gates, at least two of which have one launcher. */
async function sharing(...scripts: string[]): Promise<Working[]> {
  // Two launchers for one cell each, and then one for two.
  for (const script of ["true", "true"]) {
    const { cell } = await started(script);
    await cell[Symbol.asyncDispose]();
  }
  const cells: Working[] = [];
  for (const script of scripts) cells.push(await started(script));
  if (cells.length > 1) expect(new Set(cells.slice(0, 2).map((each) => aboveOf(each).launcher)).size).toBe(1);
  return cells;
}

async function removed(cells: readonly Working[]): Promise<void> {
  for (const { cell, run } of cells) {
    await cell[Symbol.asyncDispose]();
    expect(await runc.traces(run)).toEqual([]);
  }
}

const LOOKS = `ls -l /proc/self/fd; cat /proc/self/mountinfo /proc/self/environ; ls -d /proc/[0-9]*; ls / /.corral; echo ready; cat; echo over`;

describe("cells that one launcher has started", () => {
  it("see nothing of it, nor of each other", async () => {
    const cells = await sharing(LOOKS, LOOKS);
    const [one, other] = cells as [Working, Working];
    for (const { cell } of cells) cell.release(Buffer.from("asked"));
    for (const { cell } of cells) expect(await cell.exit).toMatchObject({ kind: "exited", code: 0 });
    for (const { said } of cells) {
      // Nobody else holds the writing end of its input: it has ended.
      expect(said()).toMatch(/ready\nasked.*over\n$/s);
      expect(said()).not.toContain(runc.paths.memory);
      expect(said()).not.toContain(runc.paths.launchers);
      expect(said()).not.toMatch(/\n\S+ +\d+ .* [4-9]\d* -> /);
      expect(said()).not.toContain("runc");
    }
    expect(one.said()).not.toContain(other.run);
    expect(other.said()).not.toContain(one.run);
    await removed(cells);
  });

  it("end each by itself, with its own code, and while the other works", async () => {
    const cells = await sharing("read -r _; exit 3", "echo ready; sleep 1000");
    const [one, other] = cells as [Working, Working];
    other.cell.release(Buffer.alloc(0));
    await expect.poll(other.said).toBe("ready\n");
    one.cell.release(Buffer.alloc(0));
    expect(await one.cell.exit).toMatchObject({ kind: "exited", code: 3 });
    await removed([one]);
    await other.cell.kill("SIGKILL");
    expect(await other.cell.exit).toMatchObject({ kind: "exited", code: 137 });
    await removed([other]);
  });

  it("have nothing in the launcher's process but their own descriptors", async () => {
    const cells = await sharing("true", "true");
    const [one, other] = cells.map((each) => {
      const { shell } = aboveOf(each);
      const ends = readdirSync(`/proc/${shell}/fd`).map((fd) => readlinkSync(`/proc/${shell}/fd/${fd}`));
      // The kernel shows a pipe of the launcher by the name that it had.
      return ends.filter((end) => /^socket:|^\/\d+$/.test(end));
    });
    // Both report on one stream, and share nothing else.
    expect(one?.filter((end) => other?.includes(end))).toEqual([expect.stringMatching(/^socket:/)]);
    for (const ends of [one, other]) expect(ends).toHaveLength(4);
    await removed(cells);
  });
});

describe("what waits for runc", () => {
  it("is missed if it is killed: the run is lost, and nothing of its cell stays", async () => {
    const cells = await sharing("echo ready; sleep 2", "echo ready; sleep 1000");
    for (const each of cells) {
      each.cell.release(Buffer.alloc(0));
      await expect.poll(each.said).toBe("ready\n");
    }
    const [one, other] = cells as [Working, Working];
    process.kill(aboveOf(one).shell, "SIGKILL");
    expect(await one.cell.exit).toMatchObject({ kind: "lost", reason: expect.stringContaining("waits for runc") });
    await removed([one]);
    const { launcher } = aboveOf(other);
    process.kill(launcher, "SIGKILL");
    await expect.poll(() => existsSync(`/proc/${launcher}/exe`)).toBe(false);
    // Its own shell still waits for it, and new cells have a new launcher.
    const more = await started("exit 4");
    more.cell.release(Buffer.alloc(0));
    expect(await more.cell.exit).toMatchObject({ kind: "exited", code: 4 });
    await other.cell.kill("SIGKILL");
    expect(await other.cell.exit).toMatchObject({ kind: "exited", code: 137 });
    await removed([other, more]);
  });

  it("ends when it has nothing to do for a while, and its directory goes", async () => {
    const cells = await sharing("true");
    const { launcher } = aboveOf(cells[0] as Working);
    await removed(cells);
    await expect.poll(() => existsSync(`/proc/${launcher}/exe`), { timeout: 30_000 }).toBe(false);
    await expect.poll(() => readdirSync(runc.paths.launchers), { timeout: 30_000 }).toEqual([]);
  });
});

describe("a view that is mounted after places were made", () => {
  it("is what the next cell has, which takes none of these places", async () => {
    await removed(await sharing("true"));
    const host = await runc.folder("view");
    execFileSync("mount", ["-t", "tmpfs", "corral-test", host]);
    try {
      await writeFile(join(host, "text"), "of the view");
      const view = await started("cat /data/text", [mount("/data", "ro", { host })]);
      view.cell.release(Buffer.alloc(0));
      expect(await view.cell.exit).toMatchObject({ kind: "exited", code: 0 });
      expect(view.said()).toBe("of the view");
      await removed([view]);
    } finally {
      execFileSync("umount", ["--lazy", host]);
    }
  });
});

describe("places that wait", () => {
  afterEach(() => void vi.useRealTimers());

  it("are let go after a while, also while those of another image are taken", async () => {
    const { plan } = await runc.plan({ command: ["true"] });
    const { owner } = runc.maker;
    const launchers = new Launchers({
      owner,
      paths: runc.paths,
      programs: { runtime: { kind: "runc", path: "/usr/sbin/runc" } },
    });
    const image = await imageOf(plan.image.id);
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    const take = async (one: ImageRoot) => {
      const place = await launchers.take(one, gateOf(plan), []);
      place.letGo();
    };
    // The last launcher of these has a second place.
    for (let count = 0; count < 3; count += 1) await take(image);
    await expect.poll(() => readdirSync(runc.paths.launchers)).toHaveLength(1);
    const [idle = ""] = readdirSync(runc.paths.launchers);
    for (let count = 0; count < 3; count += 1) {
      await take({ ...image, mark: "unpacked again" });
      vi.advanceTimersByTime(2000);
    }
    await expect.poll(() => readdirSync(runc.paths.launchers)).not.toContain(idle);
  });
});

async function imageOf(imageId: string): Promise<ImageRoot> {
  using image = await runc.images.use(imageId);
  if (image === null) throw new Error("no image");
  return image;
}

describe("a launcher", () => {
  afterEach(() => void vi.useRealTimers());

  /** One whose first program is a script of the test. */
  async function launcherOf(script: string): Promise<Launcher> {
    const gate = join(runc.dir, "gate");
    await writeFile(gate, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
    const { owner } = runc.maker;
    return await Launcher.start({
      owner,
      paths: runc.paths,
      programs: { runtime: { kind: "runc", path: "/no/runc" } },
      gate,
      image: { dir: "/", layers: ["usr"], mark: "" },
      places: 2,
    });
  }

  const request = { run: "run", id: "id", root: "read-only", config: "{}", mountPoints: [] } as const;

  it("that does not mount its image is given up", async () => {
    const launcher = await launcherOf("exec sleep 1000");
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    const { signal } = new AbortController();
    const start = launcher.places[0]?.start({ ...request, signal });
    const refused = expect(start).rejects.toThrow("the image could not be mounted for a cell: it took more than 30 s");
    await vi.advanceTimersByTimeAsync(30_000);
    await refused;
    await launcher.over;
    await expect.poll(() => readdirSync(runc.paths.launchers)).toEqual([]);
  });

  it("that does not mount its image holds no run that was cancelled", async () => {
    const launcher = await launcherOf("exec sleep 5");
    const cancelled = new AbortController();
    const start = launcher.places[0]?.start({ ...request, signal: cancelled.signal });
    cancelled.abort(new Error("cancelled"));
    await expect(start).rejects.toThrow("cancelled");
  });

  it.each([
    ["an empty line", "echo"],
    ["no numbers", "echo a b"],
    ["a place that it does not have", "echo 2 0"],
    ["a line that does not end", "head -c 5000 /dev/zero"],
  ])("that reports %s is ended, with all that it started", async (_, says) => {
    const file = join(runc.dir, "started");
    const launcher = await launcherOf(`sleep 1000 & echo $! > ${file}; ${says}; wait`);
    const { signal } = new AbortController();
    await expect(launcher.places[0]?.start({ ...request, signal })).rejects.toThrow("is not understood");
    await launcher.over;
    const started = Number(readFileSync(file, "utf8"));
    await expect.poll(() => existsSync(`/proc/${started}/exe`)).toBe(false);
  });
});
