import { execFile, execFileSync } from "node:child_process";
import fs from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openHostFiles } from "../../../src/files/host/host-files.ts";
import { type Files, mountedPlace, type Place } from "../../../src/files/model/files.ts";
import { at, mount } from "../../sandbox/sandboxes.ts";
import { temporaryFolder } from "../temporary-folder.ts";

let folder: ReturnType<typeof temporaryFolder>;
let files: Files;
beforeEach(() => {
  folder = temporaryFolder();
  files = openHostFiles([{ path: at("/d"), host: folder.path }]);
});
afterEach(() => {
  files[Symbol.dispose]();
  folder.remove();
});
const host = (name: string): string => join(folder.path, name);
const place = (name: string): Place => mountedPlace([mount("/d", "rw")], at(`/d/${name}`)) as Place;

describe("a host without descriptors", () => {
  it("has every operation refused or done, with nothing leaked, broken or left behind", {
    timeout: 60_000,
  }, async () => {
    for (const name of ["sub", "tree/deep"]) fs.mkdirSync(host(name), { recursive: true });
    for (const name of ["sub/f", "tree/a", "tree/deep/b"]) fs.writeFileSync(host(name), "old");
    const script = join(import.meta.dirname, "few-descriptors.ts");
    const run = `ulimit -n 80; exec "$0" "$1" "$2"`;
    const { stdout } = await promisify(execFile)("sh", ["-c", run, process.execPath, script, folder.path]);
    const { wrong, ended } = JSON.parse(stdout) as { wrong: string[]; ended: string[] };
    expect(wrong).toEqual([]);
    expect(ended).toEqual(expect.arrayContaining(["read FILE_SYSTEM", "read done", "copy FILE_SYSTEM", "copy done"]));
    expect(ended.filter((one) => !/ (done|FILE_SYSTEM|NOT_FOUND|EDIT)$/.test(one))).toEqual([]);
  });
});

describe.skipIf(process.getuid?.() !== 0)("a full disk", () => {
  beforeEach(() => {
    files[Symbol.dispose]();
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=64k", "tmpfs", folder.path]);
    files = openHostFiles([{ path: at("/d"), host: folder.path }]);
    fs.writeFileSync(host("f"), "old\n");
    fs.writeFileSync(host("source"), "x".repeat(30_000));
  });
  afterEach(() => {
    files[Symbol.dispose]();
    execFileSync("umount", [folder.path]);
  });
  const large = "y".repeat(100_000);

  it.each<readonly [string, () => Promise<unknown>]>([
    ["write", () => files.write(place("f"), large)],
    ["write of a new file", () => files.write(place("new/f"), large)],
    ["append", () => files.append(place("f"), large)],
    ["edit", () => files.edit(place("f"), [{ old: "old", new: large }])],
    [
      "copy",
      async () => {
        await files.copy(place("source"), place("copy"));
        await files.copy(place("source"), place("again"));
      },
    ],
  ])("refuses a %s in words, keeps the old content and leaves nothing unfinished", async (_, operation) => {
    await expect(operation()).rejects.toMatchObject({ code: "FILE_SYSTEM", message: expect.stringContaining("full") });
    expect(fs.readFileSync(host("f"), "utf8").slice(0, 20)).toBe("old\n");
    const names = fs.readdirSync(folder.path, { recursive: true });
    expect(names.filter((name) => !["f", "source", "copy", "new"].includes(String(name)))).toEqual([]);
    await files.delete(place("source"));
    await files.write(place("f"), "after\n");
  });
});

describe.skipIf(process.getuid?.() !== 0)("a full disk under a mount that is one file", () => {
  it("keeps the old content, which is written in place", async () => {
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=64k", "tmpfs", folder.path]);
    try {
      fs.writeFileSync(host("f"), "old\n");
      using single = openHostFiles([{ path: at("/d"), host: host("f") }]);
      const large = "y".repeat(100_000);
      for (const operation of [
        () => single.write(rootPlace(), large),
        () => single.append(rootPlace(), large),
        () => single.edit(rootPlace(), [{ old: "old", new: large }]),
      ])
        await expect(operation()).rejects.toThrow(/disk is full/);
      expect(fs.readFileSync(host("f"), "utf8").slice(0, 20)).toBe("old\n");
      await single.write(rootPlace(), "shorter than before, or longer");
      await single.write(rootPlace(), "x");
      expect(fs.readFileSync(host("f"), "utf8")).toBe("x");
    } finally {
      execFileSync("umount", [folder.path]);
    }
  });
});

describe("a file that changes while it is read", () => {
  it("is read as far as it went when it was opened, although it grows", async () => {
    fs.writeFileSync(host("f"), "a".repeat(1000));
    const grow = { checks: { read: () => fs.appendFileSync(host("f"), "b".repeat(1000)) } };
    expect(await files.bytes(place("f"), { maxBytes: 2000, ...grow })).toHaveLength(1000);
  });

  it("is read as far as it goes, although it shrinks", async () => {
    fs.writeFileSync(host("f"), "a".repeat(1000));
    const shrink = { checks: { read: () => fs.truncateSync(host("f"), 10) } };
    expect(await files.bytes(place("f"), { maxBytes: 2000, ...shrink })).toHaveLength(10);
  });

  it("is the one that was found, although a FIFO takes its name", async () => {
    fs.writeFileSync(host("f"), "found");
    const swap = () => {
      fs.rmSync(host("f"));
      execFileSync("mkfifo", [host("f")]);
    };
    expect(String(await files.bytes(place("f"), { maxBytes: 10, checks: { read: swap } }))).toBe("found");
    await expect(files.bytes(place("f"), { maxBytes: 10 })).rejects.toThrow(/not a regular file/);
  });

  it("cannot be written in place while a program runs from it", async () => {
    fs.copyFileSync("/bin/sleep", host("run"));
    fs.chmodSync(host("run"), 0o755);
    using single = openHostFiles([{ path: at("/d"), host: host("run") }]);
    const running = execFile(host("run"), ["60"]);
    try {
      const root = mountedPlace([mount("/d", "rw")], at("/d")) as Place;
      await expect(single.append(root, "x")).rejects.toThrow(/a program is running from it/);
    } finally {
      running.kill("SIGKILL");
    }
  });
});

describe("what is larger than anything", () => {
  it("is described and refused, and read in part: a sparse file of 8 EiB", async () => {
    const dir = fs.mkdtempSync("/dev/shm/corral-");
    try {
      fs.writeFileSync(join(dir, "f"), "begin\n");
      execFileSync("truncate", ["-s", "9223372036854771712", join(dir, "f")]);
      using large = openHostFiles([{ path: at("/d"), host: dir }]);
      expect((await large.stat(place("f"))).size).toBeGreaterThan(9e18);
      await expect(large.bytes(place("f"), { maxBytes: 1000 })).rejects.toThrow(/at most 1000 bytes/);
      await expect(large.edit(place("f"), [{ old: "begin", new: "x" }])).rejects.toMatchObject({
        code: /EDIT|FILE_SYSTEM/,
      });
      await expect(large.append(place("f"), "x".repeat(10_000))).rejects.toMatchObject({ code: "FILE_SYSTEM" });
      const stopped = large.copy(place("f"), place("g"), { signal: AbortSignal.timeout(100) });
      await expect(stopped).rejects.toThrow(/abort|timeout/i);
      expect(fs.readdirSync(dir)).toEqual(["f"]);
    } finally {
      fs.rmSync(dir, { recursive: true });
    }
  });

  it("is listed in part, without holding up the thread: 20,000 names of 255 bytes", { timeout: 60_000 }, async () => {
    const make = `my $d = shift; for (1..20000) { open(my $f, ">", "$d/" . sprintf("%0255d", $_)) }`;
    execFileSync("perl", ["-e", make, folder.path]);
    const longest = await longestTurn(async () => {
      expect((await files.list(rootPlace())).truncated).toBe(true);
      await expect(files.read(place("none"))).rejects.toMatchObject({ code: "NOT_FOUND" });
    });
    expect(longest).toBeLessThan(500);
  });

  it("is no name: 255 newlines, which are counted and not shown", async () => {
    fs.writeFileSync(host("\n".repeat(255)), "");
    fs.writeFileSync(host("a"), "");
    const listing = await files.list(rootPlace());
    expect([listing.entries.map(({ path }) => path), listing.unusableNames]).toEqual([["/d/a"], 1]);
  });
});

/** Milliseconds of the thread's processor time, which waits for no other process, in the turn of the event loop that used most. */
async function longestTurn(task: () => Promise<void>): Promise<number> {
  let longest = 0;
  let isOver = false;
  let before = process.threadCpuUsage();
  const next = () => {
    const { user, system } = process.threadCpuUsage(before);
    longest = Math.max(longest, (user + system) / 1000);
    before = process.threadCpuUsage();
    if (!isOver) setImmediate(next);
  };
  setImmediate(next);
  await task();
  isOver = true;
  await new Promise((resolve) => setImmediate(resolve));
  return longest;
}

function rootPlace(): Place {
  return mountedPlace([mount("/d", "rw")], at("/d")) as Place;
}
