import { execFileSync, spawnSync } from "node:child_process";
import fs from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Descriptor } from "../../../src/files/host/descriptor.ts";
import { listedUsage, MANY_NAMES, treeUsage, walkedUsage } from "../../../src/isolation/disk/tree-usage.ts";
import { ALL_NAMES, carryOut, operations } from "../../changes/scan/byte-tree.ts";
import { temporaryFolder } from "../../files/temporary-folder.ts";

const { signal } = new AbortController();
const ALL = { enough: Number.POSITIVE_INFINITY, names: Number.POSITIVE_INFINITY };
/** What every name takes at the least. */
const NAME = 4096;

async function inFolder(work: (path: string, root: Descriptor) => Promise<void>): Promise<void> {
  const folder = temporaryFolder();
  try {
    using root = Descriptor.name(folder.path, true).reopenFolder();
    await work(folder.path, root);
  } finally {
    execFileSync("rm", ["-rf", folder.path]);
  }
}

describe("what a tree takes", () => {
  it("is the same, whoever adds it up", async () => {
    await fc.assert(
      fc.asyncProperty(operations(ALL_NAMES), async (todo) => {
        await inFolder(async (path, root) => {
          carryOut(path, todo);
          const walked = await walkedUsage(root, ALL, signal);
          expect(await listedUsage(root, ALL.enough, signal)).toEqual(walked);
          expect(walked?.complete).toBe(true);
        });
      }),
      { numRuns: 40 },
    );
  });

  it("counts blocks and not sizes, a file of several names once, and nothing empty as nothing", async () => {
    await inFolder(async (path, root) => {
      fs.writeFileSync(join(path, "large"), Buffer.alloc(100_000, 1));
      fs.linkSync(join(path, "large"), join(path, "again"));
      fs.truncateSync(join(path, "large"), 1024 ** 4);
      fs.writeFileSync(join(path, "empty"), "");
      fs.symlinkSync("/", join(path, "link"));
      const walked = await walkedUsage(root, ALL, signal);
      expect(walked?.names).toBe(4);
      expect(walked?.bytes).toBeGreaterThanOrEqual(100_000 + 2 * NAME);
      expect(walked?.bytes).toBeLessThan(100_000 + 8 * NAME);
      expect(await listedUsage(root, ALL.enough, signal)).toEqual(walked);
    });
  });

  it("is counted to where it is enough", async () => {
    await inFolder(async (path, root) => {
      execFileSync("sh", ["-c", `seq ${MANY_NAMES + 2000} | xargs touch`], { cwd: path });
      const all = await treeUsage(root, ALL.enough, signal);
      expect(all).toEqual({ bytes: (MANY_NAMES + 2000) * NAME, names: MANY_NAMES + 2000, complete: true });
      expect(await treeUsage(root, 10 * NAME, signal)).toEqual({ bytes: 11 * NAME, names: 11, complete: true });
      const most = (MANY_NAMES + 1000) * NAME;
      expect((await treeUsage(root, most, signal)).bytes).toBeGreaterThan(most);
    });
  });

  it("does not include what is mounted there", async () => {
    await inFolder(async (path, root) => {
      fs.mkdirSync(join(path, "mounted"));
      execFileSync("mount", ["-t", "tmpfs", "corral-test", join(path, "mounted")]);
      try {
        fs.writeFileSync(join(path, "mounted/file"), "x");
        const walked = await walkedUsage(root, ALL, signal);
        expect(walked?.names).toBe(1);
        expect((await listedUsage(root, ALL.enough, signal))?.names).toBe(1);
      } finally {
        execFileSync("umount", [join(path, "mounted")]);
      }
    });
  });

  it("is added up however deep it is, by the one that knows no limit; the other one says that it left something out", async () => {
    await inFolder(async (path, root) => {
      const script = "n=$(printf %0100d 0); for i in $(seq 300); do mkdir $n; cd $n; done";
      execFileSync("bash", ["-c", script], { cwd: path });
      expect(await listedUsage(root, ALL.enough, signal)).toMatchObject({ names: 300, complete: true });
      expect(await walkedUsage(root, ALL, signal)).toMatchObject({ names: 257, complete: false });
    });
  });

  it("stops where nobody waits for it any more", async () => {
    await inFolder(async (path, root) => {
      execFileSync("sh", ["-c", "seq 5000 | xargs touch"], { cwd: path });
      const over = new AbortController();
      const counting = treeUsage(root, ALL.enough, over.signal);
      over.abort();
      await expect(counting).rejects.toThrow();
      await expect(listedUsage(root, ALL.enough, over.signal)).rejects.toThrow();
    });
  });
});

/** Of a program that needs root and the package btrfs-progs. */
const hasBtrfs = process.getuid?.() === 0 && spawnSync("mkfs.btrfs", ["--version"]).status === 0;

it.skipIf(!hasBtrfs)("a subvolume counts, and a mount does not, whoever adds it up", async () => {
  await inFolder(async (path) => {
    const [image, place] = [join(path, "image"), join(path, "place [*]")];
    fs.writeFileSync(image, "");
    fs.truncateSync(image, 200 * 1024 ** 2);
    fs.mkdirSync(place);
    execFileSync("mkfs.btrfs", ["-q", image]);
    execFileSync("mount", ["-o", "loop", image, place]);
    try {
      execFileSync("btrfs", ["-q", "subvolume", "create", join(place, "sub")]);
      fs.mkdirSync(join(place, "other"));
      execFileSync("mount", ["-t", "tmpfs", "x", join(place, "other")]);
      for (const dir of ["sub", "other"]) fs.writeFileSync(join(place, dir, "large"), Buffer.alloc(3 * 1024 ** 2, 1));
      execFileSync("sync", ["-f", place]);
      using root = Descriptor.name(place, true).reopenFolder();
      const walked = await walkedUsage(root, ALL, signal);
      expect(walked).toEqual({ bytes: 3 * 1024 ** 2 + 2 * NAME, names: 3, complete: true });
      expect(await listedUsage(root, ALL.enough, signal)).toEqual(walked);
    } finally {
      for (const mounted of [join(place, "other"), place]) execFileSync("umount", [mounted]);
    }
  });
});
