import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Cell } from "../../../src/isolation/port/cell.ts";
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

async function started(script: string): Promise<Working> {
  const { plan, pins } = await runc.plan({ command: ["sh", "-c", script] });
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
      const sockets = readdirSync(`/proc/${shell}/fd`).map((fd) =>
        execFileSync("readlink", [`/proc/${shell}/fd/${fd}`], { encoding: "utf8" }).trim(),
      );
      return { fds: sockets.length, own: sockets.filter((to) => to.startsWith("socket:")), shell };
    });
    // Both report on one stream, and share nothing else.
    expect(one?.own.filter((socket) => other?.own.includes(socket))).toHaveLength(1);
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
    process.kill(aboveOf(other).launcher, "SIGKILL");
    await pause(100);
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
    await expect.poll(() => existsSync(`/proc/${launcher}/exe`), { timeout: 20_000 }).toBe(false);
    await expect.poll(() => readdirSync(runc.paths.launchers), { timeout: 20_000 }).toEqual([]);
  });
});
