import { execFileSync, spawnSync } from "node:child_process";
import { chown, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { roomAt } from "../../src/platform/errno.ts";
import { sh, WORKER_UID } from "../run/project-fixture.ts";
import { openFleetProject } from "./fleet-fixture.ts";

/** A file system in memory in place of a folder of the project. */
async function smallDisk(path: string): Promise<AsyncDisposable & { fill(): Promise<void>; free(): Promise<void> }> {
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=2m", "none", path]);
  await chown(path, WORKER_UID, WORKER_UID);
  const filler = join(path, "filler");
  return {
    fill: () => writeFile(filler, Buffer.alloc(roomAt(path)?.freeBytes ?? 0)),
    free: () => rm(filler),
    [Symbol.asyncDispose]: async () => void spawnSync("umount", ["-l", path]),
  };
}

it.skipIf(process.geteuid?.() !== 0)(
  "begins no item more where a disk is full, also if programs do not mind, and goes on with nothing lost",
  async () => {
    const out = { name: "out", mode: "rw", approval: { write: "pre_approved", delete: "pre_approved" } };
    await using f = await openFleetProject({
      workers: {
        careless: { command: sh("echo text > /out/file; true"), sandbox: { zones: [out] } },
        careful: { command: sh("[ ! -s /out/filler ]"), sandbox: { zones: [out] } },
      },
      zones: { out: "rw" },
    });
    const path = join(f.project.dir, "out");
    await using disk = await smallDisk(path);
    const items = [{}, {}, {}];
    for (const [worker, most] of [
      ["careless", 2],
      ["careful", 0],
    ] as const) {
      await disk.fill();
      const { summary } = await f.map({ worker, concurrency: 1 }, items);
      expect(summary).toMatchObject({ state: "paused", why: `the disk of ${path} is full: free space there` });
      // A further one may have begun while the first was recorded.
      expect(summary.done).toBeLessThanOrEqual(most);
      expect(summary.byStatus.failed ?? 0).toBe(0);
      await disk.free();
      const { summary: resumed } = await f.resume(summary.fleet);
      expect(resumed).toMatchObject({ state: "done", done: items.length, byStatus: { succeeded: items.length } });
    }
  },
);
