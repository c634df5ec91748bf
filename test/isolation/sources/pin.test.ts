import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { link, mkdir, mkdtemp, readdir, realpath, rename, rm, stat, symlink, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { PlannedMount } from "../../../src/isolation/plan/plan.ts";
import { misplacedMounts, outerProcess, pinSources } from "../../../src/isolation/sources/pin.ts";
import { refusedSourcesFor } from "../../../src/isolation/sources/refused-sources.ts";
import { outerProcessFor } from "../../../src/run/open/options.ts";

let dir: string;
const refused = refusedSourcesFor("/nowhere", null);

beforeEach(async () => {
  dir = await realpath(await mkdtemp(join(tmpdir(), "corral-pin-")));
  await mkdir(join(dir, "a/b/c"), { recursive: true });
  await writeFile(join(dir, "a/b/file"), "");
});
afterEach(() => rm(dir, { recursive: true, force: true }));

async function reasons(...paths: string[]): Promise<string[]> {
  const pinning = await pinSources(paths, refused);
  if (!pinning.ok) return pinning.refusals.map(({ reason }) => reason);
  await pinning.pins[Symbol.asyncDispose]();
  return [];
}

describe("pinning a mount source", () => {
  it("tells what it is: its device, inode, owner and kind", async () => {
    const pinning = await pinSources([join(dir, "a/b"), join(dir, "a/b/file")], refused);
    if (!pinning.ok) throw new Error(JSON.stringify(pinning.refusals));
    await using pins = pinning.pins;
    const { dev, ino, uid, gid } = await stat(join(dir, "a/b"));
    const expected = { device: String(dev), inode: String(ino), uid, gid, kind: "directory" };
    expect(pins.sources.get(join(dir, "a/b"))).toMatchObject(expected);
    expect(pins.sources.get(join(dir, "a/b/file"))?.kind).toBe("file");
  });

  it("takes what the host has at the path, if Corral has mounts of its own, and only if both are the same", async () => {
    const host = join(dir, "host");
    await mkdir(join(host, dir, "a"), { recursive: true });
    const other = await pinSources([join(dir, "a")], { ...refused, hostRoot: host });
    expect(other).toMatchObject({ ok: false, refusals: [{ reason: expect.stringContaining("something else") }] });
    const same = await pinSources([join(dir, "a")], { ...refused, hostRoot: "/proc/self/root" });
    if (!same.ok) throw new Error(JSON.stringify(same.refusals));
    await same.pins[Symbol.asyncDispose]();
  });

  it("is refused for a Corral that says it is in a container and has the mounts of the host", () => {
    const said = { engineEnv: { CORRAL_CONTAINED: "1" } };
    if (outerProcess() === null) expect(() => outerProcessFor(said)).toThrow(/CORRAL_CONTAINED=1 .*pid: host/);
    expect(outerProcessFor({ engineEnv: {} })).toBeNull();
  });

  it("holds what was checked: after a swap, the descriptor is still that directory", async () => {
    const pinning = await pinSources([join(dir, "a/b")], refused);
    if (!pinning.ok) throw new Error(JSON.stringify(pinning.refusals));
    await using pins = pinning.pins;
    await rename(join(dir, "a/b"), join(dir, "moved"));
    await symlink("/etc", join(dir, "a/b"));
    const held = pins.sources.get(join(dir, "a/b"))?.descriptorPath ?? "";
    expect((await readdir(held)).sort()).toEqual(["c", "file"]);
  });

  it.each(["first", "first/b", "first/b/c", "a/b/last", "a/middle/c", "a/b/relative"])(
    "refuses a symbolic link in any component: %s",
    async (path) => {
      await symlink(join(dir, "a"), join(dir, "first"));
      await symlink(join(dir, "a/b"), join(dir, "a/middle"));
      await symlink(join(dir, "a/b/c"), join(dir, "a/b/last"));
      await symlink("c", join(dir, "a/b/relative"));
      expect(await reasons(join(dir, path))).toEqual([expect.stringContaining("symbolic link")]);
    },
  );

  it("refuses a link that leads nowhere, and one that leads to itself", async () => {
    await symlink("nowhere", join(dir, "dangling"));
    await symlink("loop", join(dir, "loop"));
    expect(await reasons(join(dir, "dangling"), join(dir, "loop"), join(dir, "loop/x"))).toHaveLength(3);
  });

  it("refuses a FIFO, a device and a socket at once, and does nothing to them", async () => {
    execFileSync("mkfifo", [join(dir, "fifo")]);
    execFileSync("mknod", [join(dir, "device"), "c", "1", "5"]);
    const server = createServer().listen(join(dir, "socket"));
    await once(server, "listening");
    const paths = ["fifo", "device", "socket"].map((name) => join(dir, name));
    const expected = "it is neither a directory nor a regular file";
    expect(await reasons(...paths)).toEqual([expected, expected, expected]);
    server.close();
  });

  it("refuses what is missing, and what has a file in the place of a directory", async () => {
    expect(await reasons(join(dir, "none"), join(dir, "a/none/c"), join(dir, "a/b/file/c"))).toEqual([
      "it does not exist",
      "it does not exist",
      expect.stringContaining("one of its parent directories"),
    ]);
  });

  it("refuses paths that are too long or too deep, or no path, instead of failing", async () => {
    const long = join(dir, "x".repeat(300));
    const deep = "/d".repeat(300);
    expect(await reasons(long, deep, "")).toEqual(Array(3).fill("its path cannot be mounted"));
  });

  it.each(["/srv/../etc", "/./etc", "//etc", "etc", "/etc/", "../etc", "."])(
    "refuses %s, which is another place than its text says",
    async (path) => {
      expect(await reasons(path)).toEqual(["its path cannot be mounted"]);
    },
  );

  it("refuses the whole where one source is refused, tells every reason, and keeps nothing open", async () => {
    const before = (await readdir("/proc/self/fd")).length;
    const paths = [join(dir, "a"), join(dir, "none"), join(dir, "a/b"), "/etc"];
    expect(await reasons(...paths)).toEqual(["it does not exist", "it lies in a directory of the operating system"]);
    expect((await readdir("/proc/self/fd")).length).toBe(before);
  });

  it("pins a path that is asked for twice once, and lets go of it once", async () => {
    const before = (await readdir("/proc/self/fd")).length;
    const pinning = await pinSources([join(dir, "a"), join(dir, "a")], refused);
    if (!pinning.ok) throw new Error(JSON.stringify(pinning.refusals));
    expect(pinning.pins.sources.size).toBe(1);
    await pinning.pins[Symbol.asyncDispose]();
    await pinning.pins[Symbol.asyncDispose]();
    expect((await readdir("/proc/self/fd")).length).toBe(before);
  });

  it("takes a hard link for the file that it is", async () => {
    await link(join(dir, "a/b/file"), join(dir, "hard"));
    expect(await reasons(join(dir, "hard"))).toEqual([]);
  });
});

describe("a mount inside of another", () => {
  const at = (path: string, host: string, origin: PlannedMount["origin"] = "sandbox") =>
    ({ path, host: join(dir, host), mode: "rw", kind: "directory", origin }) as const;
  const planned = () => [at("/a", "a"), at("/a/b", "a/b", "anchor"), at("/a/b/c", "a/b/c")];

  async function misplaced(change: () => Promise<void>, mounts = planned()): Promise<string[]> {
    const pinning = await pinSources(
      mounts.map(({ host }) => host),
      refused,
    );
    if (!pinning.ok) throw new Error(JSON.stringify(pinning.refusals));
    await using pins = pinning.pins;
    await change();
    const held = mounts.map((mount): PlannedMount => {
      const { device = "", inode = "" } = pins.sources.get(mount.host) ?? {};
      return { ...mount, identity: { device, inode } };
    });
    return misplacedMounts(held, pins).map((found) =>
      found.code === "MOUNT_SOURCE_REFUSED" ? `${found.path}: ${found.reason}` : found.code,
    );
  }

  it("is in its place if what is held open around it shows it there", async () => {
    expect(await misplaced(async () => {})).toEqual([]);
  });

  it("is refused if a folder on the way was replaced by another one, or by a link to itself", async () => {
    const replaced = [expect.stringMatching(/^\/a\/b: .*replaced meanwhile/)];
    expect(
      await misplaced(async () => {
        await rename(join(dir, "a/b"), join(dir, "a/gone"));
        await mkdir(join(dir, "a/b/c"), { recursive: true });
      }),
    ).toEqual(replaced);
    await rm(join(dir, "a/b"), { recursive: true });
    await rename(join(dir, "a/gone"), join(dir, "a/b"));
    expect(
      await misplaced(async () => {
        await rename(join(dir, "a/b"), join(dir, "a/gone"));
        await symlink("gone", join(dir, "a/b"));
      }),
    ).toEqual(replaced);
  });

  it("is refused if the directory around it has no place for it: it would be made on the host, by root", async () => {
    await mkdir(join(dir, "view"));
    const mounts = [at("/a", "a/b/c"), at("/a/inner", "view")];
    expect(await misplaced(async () => {}, mounts)).toEqual([expect.stringMatching(/^\/a\/inner: .*does not exist/)]);
    await writeFile(join(dir, "a/b/c/inner"), "");
    expect(await misplaced(async () => {}, mounts)).toHaveLength(1);
  });

  it.runIf(process.getuid?.() === 0)("is refused if another file system is mounted on the way to it", async () => {
    execFileSync("mount", ["--bind", join(dir, "a/b"), join(dir, "a/b")]);
    try {
      expect(await misplaced(async () => {})).toEqual([expect.stringMatching(/^\/a\/b: .*another file system/)]);
    } finally {
      execFileSync("umount", [join(dir, "a/b")]);
    }
  });
});
