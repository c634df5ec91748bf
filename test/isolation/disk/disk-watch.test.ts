import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { DiskBaseline, DiskWatch, type DiskWatchOptions } from "../../../src/isolation/disk/disk-watch.ts";
import { temporaryFolder } from "../../files/temporary-folder.ts";
import { nodeIn, OTHER } from "../../other-user.ts";

const MEBIBYTE = 1024 ** 2;
const LIMIT = 8 * MEBIBYTE;

let folder: ReturnType<typeof temporaryFolder>;
let place: string;

beforeEach(() => {
  folder = temporaryFolder();
  // A file system of its own: on another one everybody else writes as well.
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=512m", "corral-test", folder.path]);
  place = join(folder.path, "place");
  fs.mkdirSync(place);
});

afterEach(() => {
  execFileSync("umount", ["-l", folder.path]);
  folder.remove();
});

const watching = (more: Partial<DiskWatchOptions> = {}): Promise<DiskWatch> =>
  DiskWatch.start({ places: [place], limitBytes: LIMIT, unnamedBytes: async () => 0, onFailure: () => {}, ...more });

const write = (name: string, bytes: number, at = place): void =>
  fs.writeFileSync(join(at, name), Buffer.alloc(bytes, 1));

async function exceeded({ exceeded: signal }: DiskWatch): Promise<void> {
  if (!signal.aborted) await once(signal, "abort");
}

/** Long enough for several looks. */
const looks = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 400));

describe("a watch over what is written", () => {
  it("tells of one file, of many small ones, and of ones without a byte", async () => {
    for (const fill of [
      () => write("large", LIMIT + MEBIBYTE),
      () => Array.from({ length: 40 }, (_, index) => write(`f${index}`, MEBIBYTE / 4)),
      () => execFileSync("sh", ["-c", `seq 2100 | xargs touch`], { cwd: place }),
    ]) {
      await using watch = await watching();
      fill();
      await exceeded(watch);
      for (const name of fs.readdirSync(place)) fs.rmSync(join(place, name));
    }
  });

  it("does not count what was there before, nor what is written again and again", async () => {
    write("before", 2 * LIMIT);
    await using watch = await watching();
    for (let round = 0; round < 20; round++) {
      write("same", LIMIT / 2);
      write(`turn`, LIMIT / 4);
      fs.rmSync(join(place, "turn"));
    }
    await looks();
    expect(watch.exceeded.aborted).toBe(false);
    expect(await watch.isExceeded()).toBe(false);
  });

  it("adds up all places, and lets one have what another gave back", async () => {
    const second = join(folder.path, "second");
    fs.mkdirSync(second);
    write("old", LIMIT, second);
    await using watch = await watching({ places: [second, place] });
    write("new", LIMIT / 2);
    write("new", LIMIT / 4, second);
    expect(await watch.isExceeded()).toBe(false);
    fs.rmSync(join(second, "old"));
    write("more", LIMIT);
    expect(await watch.isExceeded()).toBe(false);
    write("too much", LIMIT / 2, second);
    expect(await watch.isExceeded()).toBe(true);
  });

  it("tells in the end of what was written faster than anybody looked, also where others gave space back", async () => {
    const others = join(folder.path, "others");
    fs.mkdirSync(others);
    write("old", 2 * LIMIT, others);
    await using watch = await watching();
    write("large", LIMIT + MEBIBYTE);
    fs.rmSync(join(others, "old"));
    expect(await watch.isExceeded()).toBe(true);
  });

  it("tells of files without a name, and does not take others' writing for the run's", async () => {
    const others = join(folder.path, "others");
    fs.mkdirSync(others);
    let unnamed = 0;
    await using watch = await watching({ unnamedBytes: async () => unnamed });
    write("theirs", 2 * LIMIT, others);
    await looks();
    expect(watch.exceeded.aborted).toBe(false);
    unnamed = 2 * LIMIT;
    write("more", LIMIT, others);
    await exceeded(watch);
  });

  it("is over, and tells why, where one look after another fails, but not for a few", async () => {
    const others = join(folder.path, "others");
    fs.mkdirSync(others);
    let left = 5;
    const unnamedBytes = async (): Promise<number> => {
      if (left-- > 0) throw new Error("nobody answers");
      return 0;
    };
    const failures: unknown[] = [];
    await using watch = await watching({ unnamedBytes, onFailure: (error) => failures.push(error) });
    // What others write makes it look.
    const until = async (isSo: () => boolean): Promise<void> => {
      for (let n = 0; n < 60 && !isSo(); n += 1) {
        fs.appendFileSync(join(others, "theirs"), Buffer.alloc(LIMIT / 2, 1));
        await new Promise((resolve) => setTimeout(resolve, 60));
      }
    };
    await until(() => left < 0);
    expect([left < 0, watch.exceeded.aborted, failures]).toEqual([true, false, []]);
    left = Number.POSITIVE_INFINITY;
    await until(() => watch.exceeded.aborted);
    expect(failures).toEqual([new Error("nobody answers")]);
    expect(watch.exceeded.reason).toBe(failures[0]);
  });

  it("lets cells that take turns have the limit together", async () => {
    const baseline = new DiskBaseline();
    {
      await using watch = await watching({ baseline });
      write("first", LIMIT / 2);
      expect(await watch.isExceeded()).toBe(false);
    }
    {
      await using watch = await watching({ baseline });
      expect(await watch.isExceeded()).toBe(false);
      write("second", (LIMIT * 3) / 4);
      await exceeded(watch);
    }
    await using watch = await watching({ baseline });
    await exceeded(watch);
    expect(await (await watching()).isExceeded()).toBe(false);
  });

  it("is over at once where there is nothing to watch, and where it is disposed of in the middle of a look", async () => {
    await using none = await watching({ places: [] });
    expect(await none.isExceeded()).toBe(false);
    const open = fs.readdirSync("/proc/self/fd").length;
    execFileSync("sh", ["-c", "seq 3000 | xargs touch"], { cwd: place });
    const watch = await watching();
    write("large", LIMIT + MEBIBYTE);
    await new Promise((resolve) => setTimeout(resolve, 55));
    await watch[Symbol.asyncDispose]();
    expect(fs.readdirSync("/proc/self/fd")).toHaveLength(open);
    await expect(watching({ places: [place, join(folder.path, "missing")] })).rejects.toThrow("ENOENT");
  });
});

describe("a watch of a user who is not root", () => {
  it("takes what it may not look into for the run's, once that much is gone", async () => {
    fs.chmodSync(folder.path, 0o755);
    fs.chownSync(place, OTHER, OTHER);
    fs.cpSync(join(import.meta.dirname, "../../../src"), join(folder.path, "src"), { recursive: true });
    fs.writeFileSync(join(folder.path, "watch.mjs"), WATCH);
    const child = spawn(nodeIn(folder.path), [join(folder.path, "watch.mjs"), place, String(LIMIT)], {
      uid: OTHER,
      gid: OTHER,
      cwd: folder.path,
      stdio: ["pipe", "pipe", "inherit"],
    });
    const lines: string[] = [];
    child.stdout.setEncoding("utf8").on("data", (line: string) => lines.push(line.trim()));
    await once(child.stdout, "data");
    fs.mkdirSync(join(place, "shut"), { mode: 0o000 });
    write("small", MEBIBYTE, join(place, "shut"));
    await looks();
    expect(lines).toEqual(["watching"]);
    write("large", LIMIT, join(place, "shut"));
    await once(child, "close");
    expect(lines).toEqual(["watching", "exceeded"]);
  });
});

const WATCH = `
  import { once } from "node:events";
  import { DiskWatch } from "./src/isolation/disk/disk-watch.ts";
  const [, , place, limit] = process.argv;
  const watch = await DiskWatch.start({ places: [place], limitBytes: Number(limit), unnamedBytes: async () => null, onFailure: () => {} });
  console.log("watching");
  process.stdin.resume();
  await once(watch.exceeded, "abort");
  console.log("exceeded");
  process.exit();
`;
