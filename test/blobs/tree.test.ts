import { execFileSync } from "node:child_process";
import fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { formatManifest, parseManifest, TREE_LIMITS } from "../../src/blobs/manifest.ts";
import { readTree, sendTree } from "../../src/blobs/send-mounts.ts";
import type { VirtualPath } from "../../src/sandbox/virtual-path.ts";
import { plant } from "../changes/staged-folder.ts";
import { DATA, machinePair } from "./machine-pair.ts";

describe("the tree of a mount", () => {
  it("is the same text for the same directory, however it was made", async () => {
    await using one = machinePair();
    await using other = machinePair();
    plant(one.home, { b: "2", a: "1", "a.txt": "3", "a b/c": "4", l: { link: "a" }, "a-": null });
    plant(other.home, { "a-": null, l: { link: "a" }, "a b/c": "4", "a.txt": "3", a: "1", b: "2" });
    const [x, y] = await Promise.all(
      [one, other].map(async ({ mount }) => await readTree({ mount: mount(), mounts: [] })),
    );
    expect(formatManifest(x?.tree as never).toString()).toBe(formatManifest(y?.tree as never).toString());
    expect(parseManifest(formatManifest(x?.tree as never))).toEqual(x?.tree);
    expect(x?.tree.entries.map(({ path }) => path)).toEqual(["a", "a b", "a b/c", "a-", "a.txt", "b", "l"]);
  });

  it("leaves out what cannot travel, says why, and opens none of it", { timeout: 20_000 }, async () => {
    await using pair = machinePair();
    plant(pair.home, { a: "1", "d/b": "2" });
    execFileSync("mkfifo", [join(pair.home, "d/fifo")]);
    execFileSync("mknod", [join(pair.home, "zero"), "c", "1", "5"]);
    fs.symlinkSync(Buffer.from("\xff", "latin1"), join(pair.home, "odd"));
    const { tree, leftOut } = await readTree({ mount: pair.mount(), mounts: [] });
    expect(tree.entries.map(({ path }) => path)).toEqual(["a", "d", "d/b"]);
    expect(leftOut.toSorted((a, b) => (a.path < b.path ? -1 : 1))).toEqual([
      { path: "d/fifo", reason: "it is no file, directory or link" },
      { path: "odd", reason: "it is a link whose target is not UTF-8" },
      { path: "zero", reason: "it is no file, directory or link" },
    ]);
  });

  it("has what the mount shows, and of other mounts in it the place alone", async () => {
    await using pair = machinePair();
    plant(pair.home, {
      "a.md": "1",
      "b.txt": "2",
      "large.md": "x".repeat(200),
      "sub/secret": "3",
      "sub/more/x.md": "4",
    });
    const own = pair.mount({ suffixes: [".md"], maxFileBytes: 100 });
    const sub = pair.mount({ path: `${DATA}/sub` as VirtualPath, host: join(pair.home, "sub"), mode: "ro" });
    const { tree } = await readTree({ mount: own, mounts: [own, sub] });
    expect(tree.entries.map(({ path }) => path)).toEqual(["a.md", "sub"]);
  });

  it("is one file if the mount is one", async () => {
    await using pair = machinePair();
    plant(pair.home, { "one.txt": "1", other: "2" });
    const mount = pair.mount({ host: join(pair.home, "one.txt") });
    const mirror = await pair.mirrored(mount);
    expect(mirror.tree).toMatchObject({ rootMode: null, entries: [{ path: "one.txt" }] });
    expect(fs.readFileSync(mirror.path, "utf8")).toBe("1");
  });

  it.each([
    [{ entries: 2 }, "it is one of more than 2 entries"],
    [{ bytes: 5 }, "with it, there are more than 5 bytes"],
    [{ depth: 2 }, "it is deeper than 2 levels"],
    [{ nameBytes: 3 }, "its name is longer than 3 bytes"],
    [{ pathBytes: 6 }, "its path is longer than 6 bytes"],
  ])("is refused beyond its limits (%o), with the place", async (limits, why) => {
    await using pair = machinePair();
    plant(pair.home, { "name/of/a": "123", "name/of/b": "456" });
    const read = readTree({ mount: pair.mount(), mounts: [], limits: { ...TREE_LIMITS, ...limits } });
    await expect(read).rejects.toThrow(new RegExp(`^/data cannot be sent to other machines: 'name.*': ${why}$`));
  });

  it("is refused if a file is no longer what was read when it is sent", async () => {
    await using pair = machinePair();
    plant(pair.home, { a: "1" });
    const { tree } = await readTree({ mount: pair.mount(), mounts: [] });
    fs.writeFileSync(join(pair.home, "a"), "2");
    await expect(sendTree(tree, { mount: pair.mount(), store: pair.store })).rejects.toThrow(
      "'a': it changed while it was sent",
    );
    fs.rmSync(join(pair.home, "a"));
    fs.symlinkSync("/etc/passwd", join(pair.home, "a"));
    await expect(sendTree(tree, { mount: pair.mount(), store: pair.store })).rejects.toThrow(
      "'a': it changed while it was sent",
    );
    expect(fs.globSync("*/*", { cwd: pair.storeDir })).toEqual([]);
  });
});
