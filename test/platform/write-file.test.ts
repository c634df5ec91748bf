import { chmod, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { hasCode } from "../../src/platform/errno.ts";
import { writeAtomically, writeIfMissing } from "../../src/platform/write-file.ts";

let dir: string;
let path: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "corral-write-"));
  path = join(dir, "file");
});
afterEach(() => rm(dir, { recursive: true, force: true }));

it("replaces a file whole, with the bits that were asked for whatever the umask, and leaves no draft", async () => {
  await writeFile(path, "old and longer");
  await chmod(path, 0o400);
  const before = (await stat(path)).ino;
  await writeAtomically(path, "new", { mode: 0o666, durable: true });
  expect(await readFile(path, "utf8")).toBe("new");
  const { ino, mode } = await stat(path);
  expect([mode & 0o777, ino === before]).toEqual([0o666, false]);
  expect(await readdir(dir)).toEqual(["file"]);
});

it("keeps a file that another process made first, and says so", async () => {
  const made = await Promise.all(["a", "b", "c"].map((text) => writeIfMissing(path, text)));
  expect(made.filter(Boolean)).toHaveLength(1);
  expect(await readFile(path, "utf8")).toBe(["a", "b", "c"][made.indexOf(true)]);
  expect(await readdir(dir)).toEqual(["file"]);
});

it("leaves no draft if the file cannot get its name", async () => {
  const below = join(dir, "folder");
  await writeFile(join(dir, "other"), "");
  const taken = join(dir, "other", "below");
  await expect(writeAtomically(taken, "x")).rejects.toSatisfy((error) => hasCode(error, "ENOTDIR"));
  await expect(writeIfMissing(join(below, "x"), "x")).rejects.toSatisfy((error) => hasCode(error, "ENOENT", "EIO"));
  expect(await readdir(dir)).toEqual(["other"]);
});
