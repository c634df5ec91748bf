import { randomBytes } from "node:crypto";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { endLeftOfDead, type Removal, StartedContainers } from "../../../src/isolation/engine/cell-remains.ts";
import { currentOwner, formatOwner } from "../../../src/state/owner.ts";
import { canLeaveProcesses, leftProcess } from "../kernel/left-process.ts";

const self = currentOwner();
const dead = { ...self, startTicks: "1" };
const newId = (): string => randomBytes(32).toString("hex");
const linesOf = (file: string): string[] => readFileSync(file, "utf8").trimEnd().split("\n");

let dir = "";
beforeEach(async () => {
  dir = join(await mkdtemp(join(tmpdir(), "corral-started-")), "containers");
});
afterEach(async () => await rm(join(dir, ".."), { recursive: true, force: true }));

function onlyFile(): string {
  expect(readdirSync(dir)).toHaveLength(1);
  return join(dir, readdirSync(dir)[0] ?? "");
}

it("has what was started on the disk before it starts, and leaves nothing when all is removed", () => {
  const started = new StartedContainers(dir, self);
  started.remove();
  expect(existsSync(dir)).toBe(false);
  const [first, second] = [newId(), newId()];
  started.add(first);
  started.add(second);
  expect(linesOf(onlyFile())).toEqual([formatOwner(self), first, second]);
  started.remove();
  expect(readdirSync(dir)).toEqual([]);
  started.add(first);
  expect(linesOf(onlyFile())).toEqual([formatOwner(self), first]);
});

it("keeps the latest thousands, however many there are", () => {
  const started = new StartedContainers(dir, self);
  const ids = Array.from({ length: 20_000 }, newId);
  for (const id of ids) started.add(id);
  const [owner, ...kept] = linesOf(onlyFile());
  expect(owner).toBe(formatOwner(self));
  expect(kept).toEqual(ids.slice(-kept.length));
  expect(kept.length).toBeGreaterThan(4000);
  expect(kept.length).toBeLessThan(9000);
});

it("what dead owners noted goes, and is remembered should the Engine fail soon after; what cannot be read stays", async () => {
  new StartedContainers(dir, self).add(newId());
  new StartedContainers(dir, { ...dead, machine: "another" }).add(newId());
  writeFileSync(join(dir, "unreadable"), `${newId()}\n`);
  const others = readdirSync(dir);
  new StartedContainers(dir, dead).add(newId());
  const remembered = new Map<string, Removal>();
  await endLeftOfDead(dir, self, { removed: (name, { removal }) => void remembered.set(name, removal) });
  expect(readdirSync(dir)).toEqual(others);
  expect(remembered.size).toBe(1);
  await endLeftOfDead(join(dir, "none"), self, { removed: () => expect.unreachable() });
});

it.skipIf(!canLeaveProcesses)("ends no process for a line that was cut", async () => {
  const id = newId();
  await using left = leftProcess(id);
  const unremoved = { removed: () => {} };
  writeFileSync(join(dir, "..", "cut"), `${formatOwner(dead)}\n${id.slice(0, 63)}`);
  await endLeftOfDead(join(dir, ".."), self, unremoved);
  expect(left.isOver()).toBe(false);
  writeFileSync(join(dir, "..", "whole"), `${formatOwner(dead)}\n${id}\n${id.slice(0, 9)}`);
  await endLeftOfDead(join(dir, ".."), self, unremoved);
  await expect.poll(() => left.isOver(), { timeout: 10_000 }).toBe(true);
});
