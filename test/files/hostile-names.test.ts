import fs from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type GuardedFiles, guarded } from "../../src/files/guarded.ts";
import { openHostFiles } from "../../src/files/host/host-files.ts";
import { mount, project } from "../sandbox/sandboxes.ts";
import { temporaryFolder } from "./temporary-folder.ts";

const agreed = { approval: { write: "pre_approved", delete: "pre_approved" } } as const;

let folder: ReturnType<typeof temporaryFolder>;
let data: string;
let files: GuardedFiles;
let close: () => void;
beforeEach(() => {
  folder = temporaryFolder();
  data = join(folder.path, "data");
  for (const name of ["data", "data-evil"]) fs.mkdirSync(join(folder.path, name));
  fs.writeFileSync(join(folder.path, "data-evil", "canary"), "secret");
  const sandbox = project([mount("/data", "rw", { host: data, ...agreed })]);
  const backend = openHostFiles(sandbox.mounts);
  files = guarded(backend, sandbox);
  close = () => backend[Symbol.dispose]();
});
afterEach(() => {
  close();
  folder.remove();
});

async function text(path: string): Promise<string> {
  const read = await files.read(path);
  return read.type === "text" ? read.content : "";
}

describe("a name", () => {
  it.each([
    "$(id)",
    "`id`",
    "-rf",
    "--",
    " ",
    "...",
    "a.",
    "a:b",
    "data:a",
    "%2e%2e",
    "..%2f..%2fdata-evil",
    "~",
    "*",
    "{a,b}",
    "con",
    "\u202etxt.exe",
    "é".normalize("NFC"),
    "é".normalize("NFD"),
    "x".repeat(255),
    "é".repeat(127),
  ])("such as %j is a name and nothing else", async (name) => {
    const path = `/data/${name}`;
    await files.write(path, "x");
    await files.append(path, "y");
    await files.edit(path, [{ old: "xy", new: "z" }]);
    expect(await text(path)).toBe("z");
    expect(fs.readdirSync(data)).toEqual([name]);
    expect((await files.list("/data")).entries).toEqual([{ path, type: "file", size: 1 }]);
    await files.copy(path, "/data/folder/copy");
    await files.move("/data/folder/copy", `/data/folder/${name}`);
    await files.delete("/data/folder", { recursive: true });
    await files.delete(path);
    expect(fs.readdirSync(data)).toEqual([]);
  });

  it("is another name in another case or in another form of Unicode", async () => {
    const names = ["a", "A", "é".normalize("NFC"), "é".normalize("NFD")];
    for (const [index, name] of names.entries()) await files.write(`/data/${name}`, String(index));
    for (const [index, name] of names.entries()) expect(await text(`/data/${name}`)).toBe(String(index));
    expect(fs.readdirSync(data).length).toBe(4);
  });

  it.each([
    "/data/../data-evil/canary",
    "/data/./../../data-evil/canary",
    "/data-evil/canary",
    "/data\0/../data-evil/canary",
    "/data/\ncanary",
    "/data\\..\\data-evil\\canary",
    "data:../../data-evil/canary",
    "C:/data/x",
    `/data/${"x".repeat(256)}`,
    `/data/${"é".repeat(128)}`,
    `/data/${"x/".repeat(2100)}`,
    "/data/\ud800",
    "",
  ])("such as %j leads nowhere", async (path) => {
    const refused = { code: "PATH_NOT_IN_SANDBOX" };
    await expect(files.read(path)).rejects.toMatchObject(refused);
    await expect(files.write(path, "x")).rejects.toMatchObject(refused);
    await expect(files.delete(path, { recursive: true })).rejects.toMatchObject(refused);
    await expect(files.move("/data", path)).rejects.toThrow();
    expect(fs.readdirSync(folder.path).sort()).toEqual(["data", "data-evil"]);
    expect(fs.readFileSync(join(folder.path, "data-evil", "canary"), "utf8")).toBe("secret");
  });

  it("means the same with slashes and dots that say nothing", async () => {
    await files.write("/data/d//./f/", "x");
    for (const path of ["/data/d/f", "//data///d/f//", "data/d/./f/.", "data:d/f", "./data/x/../d/f"]) {
      expect(await text(path)).toBe("x");
    }
  });

  it("of a path of 4,096 bytes works to the last component", async () => {
    const parts = Array.from({ length: 2044 }, () => "d");
    const path = `/data/${parts.join("/")}/ab`;
    expect(path.length).toBe(4096);
    await files.write(path, "deep");
    expect(await text(path)).toBe("deep");
    await files.delete(path);
    expect(await files.exists(path)).toBe(false);
    await expect(files.delete("/data/d", { recursive: true })).rejects.toThrow(/deeper than 64 levels/);
  });

  it("that no path can hold is counted where a directory is listed, and goes with its folder", async () => {
    fs.mkdirSync(join(data, "d"));
    for (const name of [Buffer.from("invalid-\xff", "latin1"), Buffer.from("new\nline"), Buffer.from("back\\slash")]) {
      fs.writeFileSync(Buffer.concat([Buffer.from(`${data}/d/`), name]), "x");
    }
    await files.write("/data/d/fine", "x");
    const listing = await files.list("/data/d");
    expect(listing).toMatchObject({ unusableNames: 3, truncated: false, entries: [{ path: "/data/d/fine" }] });
    expect(listing.hint).toMatch(/^Not shown: 3 entries whose name/);
    await expect(files.read("/data/d/fin")).rejects.not.toThrow(/new/);
    await files.copy("/data/d", "/data/e");
    expect(fs.readdirSync(join(data, "e"), { encoding: "buffer" }).sort(Buffer.compare)).toEqual(
      fs.readdirSync(join(data, "d"), { encoding: "buffer" }).sort(Buffer.compare),
    );
    expect(await files.delete("/data/d", { recursive: true })).toEqual({ files: 4, folders: 1 });
  });
});
