import { execFileSync } from "node:child_process";
import fs from "node:fs";
import net from "node:net";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openHostFiles } from "../../src/files/host/host-files.ts";
import { type Files, mountedPlace, type Place } from "../../src/files/model/files.ts";
import { at, mount } from "../sandbox/sandboxes.ts";
import { temporaryFolder } from "./temporary-folder.ts";

let folder: ReturnType<typeof temporaryFolder>;
let files: Files;
beforeEach(() => {
  folder = temporaryFolder();
  files = openHostFiles([{ path: at("/data"), host: folder.path }]);
});
afterEach(() => {
  files[Symbol.dispose]();
  folder.remove();
});

function place(path: string): Place {
  const found = mountedPlace([mount("/data", "rw")], at(path));
  if (found === null) throw new Error(path);
  return found;
}

const host = (name: string): string => join(folder.path, name);

/** Every operation that would open or replace what stands there. */
async function expectRefused(path: string): Promise<void> {
  const target = place(path);
  const refused = /not a regular file/;
  await expect(files.read(target)).rejects.toThrow(refused);
  await expect(files.write(target, "x")).rejects.toThrow(refused);
  await expect(files.append(target, "x")).rejects.toThrow(refused);
  await expect(files.edit(target, [{ old: "a", new: "b" }])).rejects.toThrow(refused);
  await expect(files.copy(target, place("/data/copy"))).rejects.toThrow(refused);
  await expect(files.move(target, place("/data/moved"))).rejects.toThrow(refused);
  expect(await files.stat(target)).toMatchObject({ type: "other", size: null });
}

describe("what is no regular file", () => {
  it("is refused at once: a FIFO", async () => {
    execFileSync("mkfifo", [host("pipe")]);
    await expectRefused("/data/pipe");
    expect((await files.list(place("/data"))).entries).toEqual([{ path: "/data/pipe", type: "other", size: null }]);
    await files.delete(place("/data/pipe"));
    expect(fs.readdirSync(folder.path)).toEqual([]);
  });

  it("is refused at once: a socket", async () => {
    const server = net.createServer().listen(host("socket"));
    await new Promise((resolve) => server.once("listening", resolve));
    try {
      await expectRefused("/data/socket");
    } finally {
      await new Promise((resolve) => server.close(resolve));
    }
  });

  it("is refused at once: an endless device that is mounted over a file", async () => {
    fs.writeFileSync(host("zero"), "");
    execFileSync("mount", ["--bind", "/dev/zero", host("zero")]);
    try {
      await expectRefused("/data/zero");
    } finally {
      execFileSync("umount", [host("zero")]);
    }
  });
});

describe("a file that changes while it is read", () => {
  it("is read as long as it was when it was opened, where it grows", async () => {
    fs.writeFileSync(host("log"), "one line\n".repeat(10));
    const growing = { checks: { read: () => fs.appendFileSync(host("log"), "one line\n".repeat(1000)) } };
    const before = await files.read(place("/data/log"), growing);
    // The check sees the file opened, and before it is measured; what comes later is not part of the answer.
    expect(before).toMatchObject({ totalLines: 1010, truncated: false });
    const writer = setInterval(() => fs.appendFileSync(host("log"), "one line\n".repeat(1000)), 0);
    try {
      for (let round = 0; round < 10; round++) {
        const read = await files.read(place("/data/log"), { maxChars: 2_000_000 });
        if (read.type !== "text") throw new Error("not text");
        expect(read.totalLines).toBe(read.bytes / 9);
        if (!read.truncated) expect(read.content.length).toBe(read.bytes);
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
    } finally {
      clearInterval(writer);
    }
  });

  it("is read as it was, where another takes its place", async () => {
    fs.writeFileSync(host("f"), "the old content");
    const replacing = {
      checks: {
        read: () => {
          fs.writeFileSync(host("g"), "the new content");
          fs.renameSync(host("g"), host("f"));
        },
      },
    };
    expect(await files.read(place("/data/f"), replacing)).toMatchObject({ content: "the old content", hint: null });
    expect(await files.read(place("/data/f"))).toMatchObject({ content: "the new content" });
  });
});

describe("what is large", () => {
  it("is read in pieces: a file of 5 GB, at its beginning and in the middle of it", async () => {
    const fd = fs.openSync(host("large"), "w");
    fs.writeSync(fd, "a line of text\n".repeat(100_000));
    fs.ftruncateSync(fd, 5_000_000_000);
    fs.closeSync(fd);
    const before = process.memoryUsage().arrayBuffers;
    const first = await files.read(place("/data/large"), { limit: 3 });
    expect(first).toMatchObject({ bytes: 5_000_000_000, outputLines: 3, totalLines: null, truncatedBy: "lines" });
    const later = await files.read(place("/data/large"), { offset: 99_000, limit: 2 });
    expect(later).toMatchObject({ content: "a line of text\n".repeat(2), totalLines: null });
    if (later.type === "text")
      expect(later.hint).toBe("There is more: continue with offset 99002. The file is too large to count its lines.");
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(100 * 1024 ** 2);
    await expect(files.edit(place("/data/large"), [{ old: "a", new: "b" }])).rejects.toThrow(/10 MiB/);
  });

  it("is listed as far as it goes, and says so: a folder of more entries than may be removed", async () => {
    fs.mkdirSync(host("many"));
    // In memory, because a slow disk takes half a minute to make so many files.
    execFileSync("mount", ["-t", "tmpfs", "-o", "nr_inodes=0", "tmpfs", host("many")]);
    try {
      for (let number = 0; number < 100_001; number++) fs.closeSync(fs.openSync(host(`many/${number}`), "w"));
      const listing = await files.list(place("/data/many"));
      expect(listing).toMatchObject({ truncated: true, entries: { length: 10_000 } });
      expect(listing.hint).toMatch(/narrower pattern/);
      const found = await files.list(place("/data"), { pattern: "many/9999?" });
      expect(found).toMatchObject({ truncated: false, entries: { length: 10 } });
      await expect(files.delete(place("/data/many"), { recursive: true })).rejects.toThrow(/more than 100000 entries/);
      const soon = { signal: AbortSignal.timeout(100) };
      await expect(files.copy(place("/data/many"), place("/data/copy"), soon)).rejects.toThrow(/timeout/);
    } finally {
      execFileSync("umount", [host("many")]);
    }
    expect(fs.readdirSync(folder.path)).toEqual(["many"]);
  });
});
