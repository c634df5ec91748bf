import { execFileSync, spawnSync } from "node:child_process";
import fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { scanView } from "../../../src/changes/scan/scan.ts";
import { CannotStage } from "../../../src/changes/view/base-tree.ts";
import { openView } from "../../../src/changes/view/view.ts";
import type { VirtualPath } from "../../../src/sandbox/virtual-path.ts";
import { temporaryFolder } from "../../files/temporary-folder.ts";
import { nodeIn, OTHER } from "../../other-user.ts";
import { plant, treeAt } from "../staged-folder.ts";
import { DATA, mountsBelow, viewPlaces } from "./opened-view.ts";

describe.each([true, false])("a view (overlay: %s)", (overlays) => {
  it("takes what is written, shows it, and leaves the directory as it was", async () => {
    await using places = viewPlaces();
    plant(places.target, { a: "old", "sub/b": "b", l: { link: "a" } });
    const before = treeAt(places.target);
    const view = await places.view(overlays);
    expect(treeAt(view.host)).toEqual(before);
    plant(view.host, { a: "new", "made/c": "c" });
    fs.rmSync(join(view.host, "sub"), { recursive: true });
    expect(treeAt(view.host)).toEqual({ a: "new", l: { link: "a" }, made: null, "made/c": "c" });
    expect(treeAt(places.target)).toEqual(before);
  });

  it("leaves nothing mounted and nothing open once it is closed, and what was written stays", async () => {
    await using places = viewPlaces();
    plant(places.target, { a: "old" });
    const open = fs.readdirSync("/proc/self/fd").length;
    const view = await places.view(overlays);
    expect(mountsBelow(places.path)).toHaveLength(overlays ? 1 : 0);
    plant(view.host, { b: "kept" });
    await view.close();
    expect(mountsBelow(places.path)).toEqual([]);
    expect(fs.readdirSync("/proc/self/fd")).toHaveLength(open);
    expect(fs.readFileSync(join(view.contentPath, "b"), "utf8")).toBe("kept");
  });

  it("of a directory that is too deep is refused, and leaves nothing mounted and nothing open", async () => {
    await using places = viewPlaces();
    fs.mkdirSync(join(places.target, "d/".repeat(128)), { recursive: true });
    await places.view(overlays);
    fs.mkdirSync(join(places.target, "d/".repeat(129)));
    const open = fs.readdirSync("/proc/self/fd").length;
    const mounted = mountsBelow(places.path);
    await expect(places.view(overlays)).rejects.toThrow(CannotStage);
    expect(mountsBelow(places.path)).toEqual(mounted);
    expect(fs.readdirSync("/proc/self/fd")).toHaveLength(open);
  });

  it("has owners and permission bits, and nobody runs as somebody else in it", async () => {
    await using places = viewPlaces();
    plant(places.target, { run: { text: "x", mode: 0o755 }, "d/f": "x", l: { link: "run" } });
    for (const name of ["run", "d", "d/f", "l"]) fs.lchownSync(join(places.target, name), 1234, 4321);
    fs.chmodSync(join(places.target, "d"), 0o1770);
    const view = await places.view(overlays);
    const facts = ["run", "d", "d/f", "l"].map((name) => {
      const { uid, gid, mode } = fs.lstatSync(join(view.host, name));
      return `${uid}:${gid} ${(mode & 0o7777).toString(8)}`;
    });
    expect(facts).toEqual(["1234:4321 755", "1234:4321 1770", "1234:4321 644", "1234:4321 777"]);
    if (overlays) expect(mountOptions(view.host)).toEqual(expect.arrayContaining(["nosuid", "nodev"]));
  });

  it("of what is only read needs no look at all of it, and can be closed twice", async () => {
    await using places = viewPlaces();
    const view = await places.view(overlays, { discard: true });
    plant(view.host, { a: "x" });
    await view.close();
    await view.close();
    expect(fs.readdirSync(places.target)).toEqual([]);
  });

  it("is none where a link stands in the directory's path by now", async () => {
    await using places = viewPlaces();
    fs.renameSync(places.target, `${places.target}-moved`);
    fs.symlinkSync(`${places.target}-moved`, places.target);
    const mount = places.mount();
    expect(await openView({ mount, mounts: [mount], dir: places.path, overlays })).toBeNull();
    expect(mountsBelow(places.path)).toEqual([]);
  });
});

describe("a view of what may be read in part", () => {
  it("does not have the rest, cannot overwrite it, and never deletes it", async () => {
    await using places = viewPlaces();
    plant(places.target, {
      "a.txt": "a",
      "b.png": "b",
      "sub/c.txt": "c",
      "sub/d.png": "d",
      "large.txt": "x".repeat(11),
    });
    const view = await places.view(true, { suffixes: [".txt"], maxFileBytes: 10 });
    expect(view.kind).toBe("copy");
    expect(treeAt(view.host)).toEqual({ "a.txt": "a", sub: null, "sub/c.txt": "c" });
    for (const name of fs.readdirSync(view.host)) fs.rmSync(join(view.host, name), { recursive: true });
    plant(view.host, { "b.png": "mine", "large.txt": "mine" });
    const drafts = await scanView(view);
    expect(
      drafts.map(({ kind, names, overHidden = false }) => `${kind} ${names.join("/")} ${overHidden}`).sort(),
    ).toEqual(["create b.png true", "create large.txt true", "delete a.txt false", "delete sub/c.txt false"]);
  });

  it("shows no file whose name is no text, for that has no suffix; where every suffix may be read it does", async () => {
    await using places = viewPlaces();
    fs.writeFileSync(Buffer.concat([Buffer.from(`${places.target}/`), Buffer.from("\xff.txt", "latin1")]), "x");
    const named = async (more: object): Promise<string[]> => fs.readdirSync((await places.view(false, more)).host);
    expect(await named({ suffixes: [".txt"] })).toEqual([]);
    expect(await named({})).toHaveLength(1);
  });
});

describe("a view of a single file", () => {
  it("is a copy of that one alone, whatever is beside it", async () => {
    await using places = viewPlaces();
    plant(places.target, { "a.txt": "old", "b.txt": "b", sub: null });
    const view = await places.view(true, { host: join(places.target, "a.txt"), path: "/data/a.txt" as VirtualPath });
    expect(view.host).toBe(join(view.contentPath, "a.txt"));
    expect(treeAt(view.contentPath)).toEqual({ "a.txt": "old" });
    expect(await scanView(view)).toEqual([]);
    fs.writeFileSync(view.host, "new");
    const drafts = await scanView(view);
    expect(drafts).toMatchObject([{ kind: "modify", names: ["a.txt"] }]);
    expect(view.pathOf(drafts[0]?.names ?? [])).toBe("/data/a.txt");
  });
});

describe("a view with another mount inside", () => {
  it("has an empty place for it, and no link leads that place elsewhere", async () => {
    await using places = viewPlaces();
    plant(places.target, { "a/own/x": "x", "a/file": "text", c: "c" });
    fs.mkdirSync(join(places.path, "outside"));
    const at = (rest: string) =>
      places.mount({ path: `${DATA}/${rest}` as VirtualPath, host: join(places.target, rest) });
    const view = await places.view(false, {}, [at("a/own"), at("a/file")]);
    expect(treeAt(view.host)).toEqual({ a: null, "a/own": null, "a/file": "", c: "c" });
    expect(await scanView(view)).toEqual([]);
    fs.rmSync(join(places.target, "a"), { recursive: true });
    fs.symlinkSync(join(places.path, "outside"), join(places.target, "a"));
    await places.view(false, {}, [at("a/own"), at("a/file")]);
    expect(fs.readdirSync(join(places.path, "outside"))).toEqual([]);
  });
});

describe("a view of a view", () => {
  it("is an overlay once more, and a copy from the third on; each takes what is written in it", async () => {
    await using places = viewPlaces();
    plant(places.target, { a: "0" });
    const first = await places.view(true);
    const second = await places.view(true, { host: first.host });
    const third = await places.view(true, { host: second.host });
    expect([first.kind, second.kind, third.kind]).toEqual(["overlay", "overlay", "copy"]);
    for (const [index, view] of [first, second, third].entries()) plant(view.host, { a: String(index + 1) });
    const texts = [places.target, first.host, second.host, third.host].map((dir) =>
      fs.readFileSync(join(dir, "a"), "utf8"),
    );
    expect(texts).toEqual(["0", "1", "2", "3"]);
  });

  it.runIf(fs.statSync("/dev/shm").dev !== fs.statSync("/tmp").dev)(
    "has every file of it, also where the first stands on another file system than the directory",
    async () => {
      const elsewhere = fs.mkdtempSync("/dev/shm/corral-view-");
      try {
        plant(elsewhere, { a: "a", "sub/b": "b" });
        await using places = viewPlaces();
        const first = await places.view(true, { host: elsewhere });
        plant(first.host, { c: "c" });
        for (const overlays of [true, false]) {
          const second = await places.view(overlays, { host: first.host });
          expect(treeAt(second.host)).toEqual({ a: "a", c: "c", sub: null, "sub/b": "b" });
          expect(await scanView(second)).toEqual([]);
          plant(second.host, { a: "new", "sub/b": "new", c: "new" });
          expect((await scanView(second)).map(({ kind, names }) => `${kind} ${names.join("/")}`).sort()).toEqual([
            "modify a",
            "modify c",
            "modify sub/b",
          ]);
        }
      } finally {
        fs.rmSync(elsewhere, { recursive: true });
      }
    },
  );
});

describe("a user who is not root", () => {
  it("gets a copy of what they can read, and what they cannot is neither in it nor said to be deleted", () => {
    const folder = temporaryFolder();
    try {
      fs.chmodSync(folder.path, 0o755);
      const target = join(folder.path, "target");
      plant(target, { a: "a", "shut/x": "x", locked: { text: "x", mode: 0o000 } });
      const own = join(folder.path, "own");
      fs.mkdirSync(own);
      for (const name of ["target", "target/a", "target/locked", "own"])
        fs.chownSync(join(folder.path, name), OTHER, OTHER);
      fs.chmodSync(join(target, "shut"), 0o700);
      const child = join(folder.path, "src.mjs");
      fs.cpSync(join(import.meta.dirname, "../../../src"), join(folder.path, "src"), { recursive: true });
      fs.writeFileSync(child, SEEN_BY_USER);
      const as = { uid: OTHER, gid: OTHER, cwd: folder.path };
      const said = spawnSync(nodeIn(folder.path), [child, target, own], { ...as, encoding: "utf8" });
      expect(said.stderr).toBe("");
      expect(JSON.parse(said.stdout)).toEqual({
        shown: ["a"],
        changed: [],
        afterwards: "a folder in it cannot be read",
      });
    } finally {
      execFileSync("rm", ["-rf", folder.path]);
    }
  });
});

const SEEN_BY_USER = `
  import fs from "node:fs";
  import { openView } from "./src/changes/view/view.ts";
  import { scanView } from "./src/changes/scan/scan.ts";
  const [, , host, dir] = process.argv;
  const mount = { name: "data", path: "/data", host, mode: "rw" };
  const view = await openView({ mount, mounts: [mount], dir, overlays: true });
  const shown = fs.readdirSync(view.host);
  const changed = await scanView(view);
  fs.mkdirSync(view.host + "/d", 0o000);
  const afterwards = await scanView(view).then(() => "", (error) => error.message);
  console.log(JSON.stringify({ shown, changed, afterwards }));
`;

function mountOptions(point: string): string[] {
  const lines = fs.readFileSync("/proc/self/mountinfo", "utf8").split("\n");
  const line = lines.find((each) => each.split(" ")[4] === point);
  return line?.split(" ")[5]?.split(",") ?? [];
}
