import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeEach, expect, it } from "vitest";
import { PipeNames } from "../../../src/isolation/commands/command-pipes.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "corral-pipes-"));
  return async () => await rm(dir, { recursive: true });
});

it("makes all pipes that it has begun before it is closed, so that the directory can be removed then", async () => {
  const names = new PipeNames(dir);
  names.prepare();
  await names.close();
  expect(await readdir(dir)).toHaveLength(48);
});

it("gives no pipes to a command once it is closed", async () => {
  const names = new PipeNames(dir);
  await names.close();
  await expect(names.take()).rejects.toThrow("the cell has ended");
  expect(await readdir(dir)).toEqual([]);
});
