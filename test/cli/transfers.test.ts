import { mkdtemp, open, readdir, readFile, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pack } from "tar-stream";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Allowance, leadsOut, receivedFile, receivedFolder } from "../../src/cli/session/transfers.ts";

let dir: string;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "corral-transfers-"));
});

afterEach(async () => {
  await rm(dir, { recursive: true, force: true });
});

async function* endless() {
  for (;;) yield Buffer.alloc(1024 ** 2);
}

describe("what a session sends", () => {
  it("is the same bytes, of which the zeros take no room", async () => {
    const to = join(dir, "sparse");
    const block = Buffer.concat([Buffer.alloc(5000), Buffer.from("x"), Buffer.alloc(10_000)]);
    async function* pieces() {
      yield Buffer.from("begin");
      for (let count = 0; count < 64; count += 1) yield Buffer.alloc(1024 ** 2);
      yield block;
    }
    await receivedFile(pieces(), to, new Allowance(to, null));
    const { size, blocks } = await stat(to);
    expect(size).toBe(5 + 64 * 1024 ** 2 + block.length);
    expect(blocks * 512).toBeLessThan(1024 ** 2);
    await using file = await open(to);
    const end = Buffer.alloc(block.length);
    await file.read(end, 0, end.length, size - end.length);
    expect(end.equals(block)).toBe(true);
  });

  it("is bounded, as a file and as a folder, and nothing of what is more is left", async () => {
    const to = join(dir, "large");
    const most = new Allowance(to, 3 * 1024 ** 2);
    await expect(receivedFile(endless(), to, most)).rejects.toThrow("--max-bytes");
    const tar = pack();
    tar.entry({ name: "a" }, Buffer.alloc(1024 ** 2));
    tar.entry({ name: "b" }, Buffer.alloc(1024 ** 2));
    tar.finalize();
    const folder = receivedFolder(tar as AsyncIterable<Uint8Array>, to, new Allowance(to, 1.5 * 1024 ** 2));
    await expect(folder).rejects.toThrow("--max-bytes");
    expect(await readdir(dir)).toEqual([]);
  });

  it("is at most half of what is free, where nothing else is said", async () => {
    const here = new Allowance(join(dir, "file"), null);
    here.take(1);
    expect(() => here.take(Number.MAX_SAFE_INTEGER)).toThrow("--max-bytes allows more");
    await receivedFile(files("ab"), join(dir, "file"), new Allowance(join(dir, "file"), null));
    expect(await readFile(join(dir, "file"), "utf8")).toBe("ab");
  });
});

it("leads nowhere else, whichever system reads its names", () => {
  for (const path of ["..", "../a", "a/../../b", "/a", "a\0b"]) expect([path, leadsOut(path)]).toEqual([path, true]);
  for (const path of ["a", "a/..b", "..a/b", "a/../b", "a\\b", "a:b"])
    expect([path, leadsOut(path, "/")]).toEqual([path, false]);
  for (const path of ["..\\a", "a\\..\\..\\b", "C:/a", "a:b"])
    expect([path, leadsOut(path, "\\")]).toEqual([path, true]);
});

async function* files(text: string) {
  yield Buffer.from(text);
}
