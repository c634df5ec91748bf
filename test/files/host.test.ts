import { execFileSync } from "node:child_process";
import fs from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openHostFiles } from "../../src/files/host/host-files.ts";
import type { Files } from "../../src/files/model/files.ts";
import { contractMounts, filesContract, place } from "./files.contract.ts";
import { temporaryFolder } from "./temporary-folder.ts";

describe("files on the host", () => {
  filesContract(() => {
    const folder = temporaryFolder();
    const mounts = contractMounts.map((mount, index) => ({ path: mount.path, host: join(folder.path, String(index)) }));
    for (const { host } of mounts) fs.mkdirSync(host);
    const files = openHostFiles(mounts);
    return {
      files,
      close: () => {
        files[Symbol.dispose]();
        folder.remove();
      },
    };
  });
});

describe("files on the host, with links and other things in them", () => {
  let folder: ReturnType<typeof temporaryFolder>;
  let data: string;
  let outside: string;
  let files: Files;
  beforeEach(() => {
    folder = temporaryFolder();
    data = join(folder.path, "data");
    outside = join(folder.path, "outside");
    for (const path of [data, outside, join(folder.path, "out"), join(data, "inner"), join(data, "inner", "own")]) {
      fs.mkdirSync(path);
    }
    fs.writeFileSync(join(outside, "canary"), "secret");
    fs.writeFileSync(join(data, "inner", "own", "hidden"), "hidden by a mount");
    files = openHostFiles([
      { path: place("/data").path, host: data },
      { path: place("/data/inner/own").path, host: join(folder.path, "out") },
    ]);
  });
  afterEach(() => {
    files[Symbol.dispose]();
    folder.remove();
  });
  const text = async (path: string): Promise<string> => {
    const read = await files.read(place(path));
    return read.type === "text" ? read.content : "";
  };

  it("reads through links that stay inside, however they get there", async () => {
    fs.mkdirSync(join(data, "d/e"), { recursive: true });
    fs.writeFileSync(join(data, "f"), "here");
    fs.symlinkSync("../../f", join(data, "d/e/up"));
    fs.symlinkSync("d/e", join(data, "short"));
    fs.symlinkSync("./short/../../short/up", join(data, "round"));
    expect(await text("/data/d/e/up")).toBe("here");
    expect(await text("/data/short/up")).toBe("here");
    expect(await text("/data/round")).toBe("here");
    expect(await files.stat(place("/data/round"))).toMatchObject({ path: "/data/round", type: "file", size: 4 });
    expect((await files.list(place("/data/short"))).entries).toEqual([
      { path: "/data/short/up", type: "link", size: null },
    ]);
    await files.copy(place("/data/round"), place("/data/copied"));
    expect(fs.lstatSync(join(data, "copied")).isFile()).toBe(true);
  });

  it("lists nothing that a mount hides", async () => {
    fs.symlinkSync("inner", join(data, "linked"));
    const paths = (await files.list(place("/data"), { pattern: "**" })).entries.map(({ path }) => path);
    expect(paths).toEqual(["/data/inner", "/data/linked"]);
    expect((await files.list(place("/data/linked"))).entries).toEqual([]);
  });

  it("tells a check where a file really stands", async () => {
    fs.writeFileSync(join(data, "secret.pdf"), "x");
    fs.symlinkSync("secret.pdf", join(data, "a.md"));
    const seen: string[] = [];
    await files.read(place("/data/a.md"), { checks: { read: (path) => void seen.push(path) } });
    expect(seen).toEqual(["/data/secret.pdf"]);
  });

  it.each([
    ["leads out", "../outside/canary", "leads out of the directory"],
    ["leads out and in again", "../data/f", "leads out of the directory"],
    ["is absolute", "/etc/passwd", "is absolute"],
    ["is absolute and names a place of the sandbox", "/data/f", "is absolute"],
    ["leads to what a mount hides", "inner/own/hidden", "leads out of the directory"],
    ["leads to itself", "link", "too many symbolic links"],
  ])("neither reads, copies, lists nor looks through a link that %s", async (_, target, reason) => {
    fs.writeFileSync(join(data, "f"), "x");
    fs.symlinkSync(target, join(data, "link"));
    await expect(files.read(place("/data/link"))).rejects.toThrow(reason);
    await expect(files.copy(place("/data/link"), place("/data/new"))).rejects.toThrow(reason);
    await expect(files.list(place("/data/link"))).rejects.toThrow(reason);
    expect(await files.stat(place("/data/link"))).toMatchObject({ type: "link", size: null });
    expect(await files.exists(place("/data/link"))).toBe(true);
  });

  it("says of a link that leads nowhere that nothing is there to be read", async () => {
    fs.symlinkSync("none", join(data, "link"));
    await expect(files.read(place("/data/link"))).rejects.toMatchObject({ code: "NOT_FOUND", path: "/data/link" });
    expect(await files.stat(place("/data/link"))).toMatchObject({ type: "link" });
  });

  it("changes nothing through links, be they inside, and removes the link itself", async () => {
    fs.mkdirSync(join(data, "d"));
    fs.writeFileSync(join(data, "d/f"), "x");
    fs.symlinkSync("d", join(data, "folder"));
    fs.symlinkSync("d/f", join(data, "file"));
    fs.symlinkSync("../outside", join(data, "away"));
    fs.symlinkSync(".", join(data, "here"));
    for (const path of ["/data/here/d/f", "/data/file", "/data/folder/f", "/data/folder/new", "/data/away/canary"]) {
      await expect(files.write(place(path), "y")).rejects.toThrow(/nothing is changed through links/);
      await expect(files.append(place(path), "y")).rejects.toThrow(/nothing is changed through links/);
      await expect(files.copy(place("/data/d/f"), place(path), { overwrite: true })).rejects.toThrow(/through links/);
      await expect(files.move(place("/data/d/f"), place(path), { overwrite: true })).rejects.toThrow(/through links/);
    }
    await expect(files.edit(place("/data/file"), [{ old: "x", new: "y" }])).rejects.toThrow(/through links/);
    await expect(files.mkdir(place("/data/away/new"))).rejects.toThrow(/through links/);
    await expect(files.edit(place("/data/here/d/f"), [{ old: "x", new: "y" }])).rejects.toThrow(/through links/);
    await expect(files.delete(place("/data/here/d/f"))).rejects.toThrow(/through links/);
    await expect(files.move(place("/data/here/d/f"), place("/data/g"))).rejects.toThrow(/through links/);
    await expect(files.delete(place("/data/folder/f"))).rejects.toThrow(/through links/);
    await expect(files.move(place("/data/file"), place("/data/file2"))).rejects.toThrow(/through links/);
    await files.delete(place("/data/away"), { recursive: true });
    await files.delete(place("/data/file"));
    expect(fs.readdirSync(data).sort()).toEqual(["d", "folder", "here", "inner"]);
    expect(fs.readFileSync(join(data, "d/f"), "utf8")).toBe("x");
    expect(fs.readdirSync(outside)).toEqual(["canary"]);
  });

  it("removes links in a folder without what they lead to", async () => {
    fs.mkdirSync(join(data, "d"));
    fs.symlinkSync("../../outside", join(data, "d/away"));
    expect(await files.delete(place("/data/d"), { recursive: true })).toEqual({ files: 1, folders: 1 });
    expect(fs.readFileSync(join(outside, "canary"), "utf8")).toBe("secret");
  });

  it("keeps the mode of a file that it replaces, and gives new ones the owner of their folder", async () => {
    fs.writeFileSync(join(data, "run"), "x");
    fs.chownSync(join(data, "run"), 1234, 1235);
    fs.chmodSync(join(data, "run"), 0o4750);
    fs.chownSync(data, 4321, 4322);
    await files.write(place("/data/run"), "y");
    await files.edit(place("/data/run"), [{ old: "y", new: "z" }]);
    await files.write(place("/data/new/f"), "y");
    await files.copy(place("/data/run"), place("/data/copied"));
    await files.append(place("/data/appended"), "y");
    const owner = (path: string) => [fs.statSync(join(data, path)).uid, fs.statSync(join(data, path)).gid];
    expect(fs.statSync(join(data, "run")).mode & 0o7777).toBe(0o750);
    expect(owner("run")).toEqual([1234, 1235]);
    for (const path of ["new", "new/f", "copied", "appended"]) expect(owner(path)).toEqual([4321, 4322]);
    expect(fs.statSync(join(data, "copied")).mode & 0o7777).toBe(0o750);
  });

  it("breaks hard links instead of writing to the other name", async () => {
    for (const name of ["written", "appended", "edited", "overwritten"]) {
      fs.writeFileSync(join(outside, name), "old");
      fs.linkSync(join(outside, name), join(data, name));
    }
    await files.write(place("/data/written"), "new");
    await files.append(place("/data/appended"), "new");
    await files.edit(place("/data/edited"), [{ old: "old", new: "new" }]);
    await files.copy(place("/data/written"), place("/data/overwritten"), { overwrite: true });
    const names = ["written", "appended", "edited", "overwritten"];
    expect(names.map((name) => fs.readFileSync(join(outside, name), "utf8"))).toEqual(["old", "old", "old", "old"]);
    const changed = names.map((name) => fs.readFileSync(join(data, name), "utf8"));
    expect(changed).toEqual(["new", "oldnew", "new", "new"]);
  });

  it("shows a reader the old or the new content, never a part, and leaves no other file behind", async () => {
    const [old, fresh] = ["a".repeat(300_000), "b".repeat(300_000)];
    await files.write(place("/data/f"), old);
    const writing = (async () => {
      for (let round = 0; round < 20; round++) await files.write(place("/data/f"), round % 2 === 0 ? fresh : old);
    })();
    const seen = new Set<string>();
    let done = false;
    void writing.finally(() => {
      done = true;
    });
    while (!done) {
      seen.add(fs.readFileSync(join(data, "f"), "utf8"));
      await new Promise((resolve) => setImmediate(resolve));
    }
    await writing;
    expect([...seen].every((content) => content === old || content === fresh)).toBe(true);
    expect(fs.readdirSync(data).sort()).toEqual(["f", "inner"]);
  });

  it("does not overwrite what another writer puts there while a new file is filled", async () => {
    const other = { checks: { write: () => fs.writeFileSync(join(data, "new"), "theirs") } };
    await expect(files.write(place("/data/new"), "ours", { overwrite: false, ...other })).rejects.toThrow(/already/);
    expect(fs.readFileSync(join(data, "new"), "utf8")).toBe("theirs");
    const later = { checks: { write: () => fs.writeFileSync(join(data, "new"), "theirs, later") } };
    await expect(files.edit(place("/data/new"), [{ old: "theirs", new: "ours" }], later)).rejects.toThrow(
      /at the same time/,
    );
    expect(fs.readFileSync(join(data, "new"), "utf8")).toBe("theirs, later");
    expect(fs.readdirSync(data).sort()).toEqual(["inner", "new"]);
  });

  it("leaves nothing behind where a copy of a folder is refused in the middle", async () => {
    fs.mkdirSync(join(data, "d"));
    for (const name of ["a", "b", "c"]) fs.writeFileSync(join(data, "d", name), "x");
    execFileSync("mkfifo", [join(data, "d", "pipe")]);
    await expect(files.copy(place("/data/d"), place("/data/e"))).rejects.toThrow(/'\/data\/d\/pipe', .*not a regular/);
    expect(fs.readdirSync(data).sort()).toEqual(["d", "inner"]);
  });

  it("goes on with the directory that was granted, whatever its path leads to later", async () => {
    fs.writeFileSync(join(data, "f"), "granted");
    fs.renameSync(data, join(folder.path, "moved"));
    fs.symlinkSync("outside", data);
    expect(await text("/data/f")).toBe("granted");
    expect(await files.exists(place("/data/canary"))).toBe(false);
  });

  it("does not open a mount through a link, and says so without its path", async () => {
    fs.symlinkSync("outside", join(folder.path, "planted"));
    using planted = openHostFiles([{ path: place("/data").path, host: join(folder.path, "planted") }]);
    const refusal = await planted.read(place("/data/canary")).catch((error: unknown) => error);
    expect(refusal).toMatchObject({ code: "FILE_SYSTEM", path: "/data" });
    expect(String(refusal)).not.toContain(folder.path);
  });

  it("writes a mount that is a single file in its place, and deletes or moves it never", async () => {
    const host = join(folder.path, "single");
    fs.writeFileSync(host, "one");
    const { ino } = fs.statSync(host);
    using single = openHostFiles([{ path: place("/data").path, host }]);
    await single.append(place("/data"), " two");
    await single.edit(place("/data"), [{ old: "one", new: "1" }]);
    expect(await single.read(place("/data"))).toMatchObject({ content: "1 two" });
    await single.write(place("/data"), "three");
    expect([fs.readFileSync(host, "utf8"), fs.statSync(host).ino]).toEqual(["three", ino]);
    await expect(single.delete(place("/data"))).rejects.toThrow(/granted/);
  });

  it("offers the names that may have been meant", async () => {
    for (const name of ["Report.md", "report-final.md", "other.md"]) fs.writeFileSync(join(data, name), "x");
    await expect(files.read(place("/data/report.txt"))).rejects.toThrow("There are: /data/Report.md");
    await expect(files.read(place("/data/rep"))).rejects.toThrow("List the directory");
  });
});
