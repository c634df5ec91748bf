import { randomBytes } from "node:crypto";
import { existsSync, readdirSync } from "node:fs";
import { appendFile, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { StartedContainers, startedIn } from "../../../src/isolation/engine/started-containers.ts";
import { currentOwner } from "../../../src/state/owner.ts";

let liveDir = "";
beforeEach(async () => {
  liveDir = await mkdtemp(join(tmpdir(), "corral-started-"));
});
afterEach(async () => await rm(liveDir, { recursive: true, force: true }));

const newId = (): string => randomBytes(32).toString("hex");
const [first, second] = [newId(), newId()];

it("has what was started on the disk before it starts, and leaves nothing when all is removed", async () => {
  const started = new StartedContainers(liveDir, currentOwner());
  await started.remove();
  expect(readdirSync(liveDir)).toEqual([]);
  await Promise.all([started.add(first), started.add(second)]);
  const [dir = ""] = readdirSync(liveDir).map((name) => join(liveDir, name));
  expect(await startedIn(dir)).toEqual([first, second]);
  await started.remove();
  expect(existsSync(dir)).toBe(false);
  await started.add(first);
  expect(readdirSync(liveDir)).toHaveLength(1);
});

it("keeps the latest thousands, however many there are", async () => {
  const started = new StartedContainers(liveDir, currentOwner());
  const ids = Array.from({ length: 20_000 }, newId);
  for (const id of ids) await started.add(id);
  const [dir = ""] = readdirSync(liveDir).map((name) => join(liveDir, name));
  const kept = await startedIn(dir);
  expect(kept).toEqual(ids.slice(-kept.length));
  expect(kept.length).toBeGreaterThan(4000);
  expect((await readFile(join(dir, "containers"))).length).toBeLessThan(1024 ** 2);
});

it("reads no line that was cut, and none where there is nothing", async () => {
  const started = new StartedContainers(liveDir, currentOwner());
  await started.add(first);
  const [dir = ""] = readdirSync(liveDir).map((name) => join(liveDir, name));
  await appendFile(join(dir, "containers"), `${second.slice(0, 30)}\n../../etc\n`);
  expect(await startedIn(dir)).toEqual([first]);
  expect(await startedIn(join(liveDir, "none"))).toEqual([]);
});
