import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type Files, mountedPlace, type Place } from "../../src/files/model/files.ts";
import { at, mount } from "../sandbox/sandboxes.ts";

export interface Opened {
  readonly files: Files;
  close(): void;
}

/** Two mounts, one of them with a third below it. */
export const contractMounts = [mount("/data", "rw"), mount("/data/inner/own", "rw"), mount("/out", "rw")];

export function place(path: string): Place {
  const found = mountedPlace(contractMounts, at(path));
  if (found === null) throw new Error(`no mount governs ${path}`);
  return found;
}

/** What every backend does. A backend's own test calls it with a way to open an empty one. */
export function filesContract(open: () => Opened): void {
  let opened: Opened;
  let files: Files;
  beforeEach(() => {
    opened = open();
    files = opened.files;
  });
  afterEach(() => opened.close());

  const write = (path: string, content: string | Uint8Array) => files.write(place(path), content);
  const text = async (path: string): Promise<string> => {
    const read = await files.read(place(path));
    return read.type === "text" ? read.content : "";
  };
  const paths = async (path: string, pattern?: string): Promise<string[]> => {
    const { entries } = await files.list(place(path), { pattern });
    return entries.map((entry) => `${entry.path}${entry.type === "directory" ? "/" : ""}`);
  };

  describe("writing and reading", () => {
    it("gives back what was written, and creates the folders above", async () => {
      expect(await write("/data/a/b/c.txt", "one\r\ntwo")).toEqual({ bytes: 8, created: true });
      expect(await files.read(place("/data/a/b/c.txt"))).toEqual({
        type: "text",
        content: "one\r\ntwo",
        bytes: 8,
        totalLines: 2,
        outputLines: 2,
        truncated: false,
        truncatedBy: null,
        hint: null,
      });
    });

    it("replaces a whole file, or refuses to where it must not", async () => {
      await write("/data/a", "a longer text");
      expect(await write("/data/a", "short")).toEqual({ bytes: 5, created: false });
      await expect(files.write(place("/data/a"), "x", { overwrite: false })).rejects.toMatchObject({
        code: "FILE_SYSTEM",
      });
      expect(await text("/data/a")).toBe("short");
    });

    it("refuses directories, missing files and files in the place of directories, by the path asked for", async () => {
      await write("/data/d/f", "x");
      await expect(files.read(place("/data/d"))).rejects.toMatchObject({ code: "FILE_SYSTEM", path: "/data/d" });
      await expect(write("/data/d", "x")).rejects.toMatchObject({ code: "FILE_SYSTEM", path: "/data/d" });
      await expect(files.read(place("/data/none"))).rejects.toMatchObject({ code: "NOT_FOUND", path: "/data/none" });
      await expect(files.read(place("/data/d/f/g"))).rejects.toMatchObject({ code: "FILE_SYSTEM" });
      await expect(write("/data/d/f/g", "x")).rejects.toMatchObject({ code: "FILE_SYSTEM" });
    });

    it("asks the check with the size, and leaves everything as it was where it refuses", async () => {
      const seen: unknown[] = [];
      const refusing = (path: string, size: number): void => {
        seen.push(path, size);
        throw new RangeError("refused");
      };
      await write("/data/f", "12345");
      const read = { checks: { read: refusing } };
      const changed = { checks: { write: refusing } };
      await expect(files.read(place("/data/f"), read)).rejects.toThrow("refused");
      await expect(files.write(place("/data/f"), "1", changed)).rejects.toThrow("refused");
      await expect(files.append(place("/data/f"), "67", changed)).rejects.toThrow("refused");
      await expect(files.edit(place("/data/f"), [{ old: "5", new: "" }], changed)).rejects.toThrow("refused");
      await expect(files.delete(place("/data/f"), changed)).rejects.toThrow("refused");
      await expect(files.copy(place("/data/f"), place("/out/f"), changed)).rejects.toThrow("refused");
      await expect(files.move(place("/data/f"), place("/data/g"), changed)).rejects.toThrow("refused");
      await expect(files.move(place("/data/f"), place("/out/g"), changed)).rejects.toThrow("refused");
      expect(seen).toEqual(
        [5, 1, 7, 4, 0].flatMap((size) => ["/data/f", size]).concat(["/out/f", 5, "/data/f", 0, "/data/f", 0]),
      );
      expect(await text("/data/f")).toBe("12345");
      expect(await paths("/out")).toEqual([]);
    });
  });

  describe("appending and editing", () => {
    it("appends to what is there, and creates what is not", async () => {
      expect(await files.append(place("/data/log"), "a")).toEqual({ bytes: 1, created: true });
      expect(await files.append(place("/data/log"), "bc")).toEqual({ bytes: 3, created: false });
      expect(await text("/data/log")).toBe("abc");
    });

    it("replaces exactly what it is told to, or nothing", async () => {
      await write("/data/f", "one two two");
      await expect(files.edit(place("/data/f"), [{ old: "two", new: "2" }])).rejects.toMatchObject({ code: "EDIT" });
      const edits = [
        { old: "one", new: "1" },
        { old: "two", new: "2", all: true },
      ];
      expect(await files.edit(place("/data/f"), edits)).toMatchObject({
        bytes: 5,
        replacements: 3,
      });
      expect(await text("/data/f")).toBe("1 2 2");
    });

    it("edits no binary content", async () => {
      await write("/data/f", Uint8Array.of(0x66, 0xff));
      await expect(files.edit(place("/data/f"), [{ old: "f", new: "g" }])).rejects.toThrow(/not UTF-8 text/);
    });
  });

  describe("deleting", () => {
    it("removes files and empty folders, and full ones only when told to", async () => {
      await write("/data/d/e/f", "x");
      await write("/data/d/g", "x");
      await expect(files.delete(place("/data/d"))).rejects.toThrow(/not empty/);
      expect(await files.delete(place("/data/d/g"))).toEqual({ files: 1, folders: 0 });
      expect(await files.delete(place("/data/d"), { recursive: true })).toEqual({ files: 1, folders: 2 });
      expect(await files.exists(place("/data/d"))).toBe(false);
      await files.mkdir(place("/data/empty"));
      expect(await files.delete(place("/data/empty"))).toEqual({ files: 0, folders: 1 });
      await expect(files.delete(place("/data/empty"))).rejects.toMatchObject({ code: "NOT_FOUND" });
    });

    it("removes neither what was granted nor what holds it", async () => {
      await files.mkdir(place("/data/inner/x"));
      await expect(files.delete(place("/data"), { recursive: true })).rejects.toThrow(/granted/);
      await expect(files.delete(place("/data/inner"), { recursive: true })).rejects.toThrow(/granted/);
      expect(await files.exists(place("/data/inner/x"))).toBe(true);
    });

    it("removes nothing of a folder in which one file is refused", async () => {
      await write("/data/d/a", "x");
      await write("/data/d/e/keep", "x");
      const keep = (path: string): void => {
        if (path.endsWith("keep")) throw new RangeError("refused");
      };
      const options = { recursive: true, checks: { write: keep } };
      await expect(files.delete(place("/data/d"), options)).rejects.toThrow("refused");
      expect(await paths("/data", "**")).toEqual(["/data/d/", "/data/d/a", "/data/d/e/", "/data/d/e/keep"]);
    });
  });

  describe.each(["/data/to/new", "/out/new"])("moving and copying to %s", (to) => {
    it("moves a file", async () => {
      await write("/data/f", "abc");
      expect(await files.move(place("/data/f"), place(to))).toEqual({ files: 1, bytes: 3 });
      expect(await files.exists(place("/data/f"))).toBe(false);
      expect(await text(to)).toBe("abc");
    });

    it("copies a file", async () => {
      await write("/data/f", "abc");
      expect(await files.copy(place("/data/f"), place(to))).toEqual({ files: 1, bytes: 3 });
      expect([await text("/data/f"), await text(to)]).toEqual(["abc", "abc"]);
    });

    it("moves and copies folders with all that is in them", async () => {
      await write("/data/d/e/f", "abc");
      await write("/data/d/g", "d");
      expect(await files.copy(place("/data/d"), place(`${to}-copy`))).toEqual({ files: 2, bytes: 4 });
      expect(await files.move(place("/data/d"), place(to))).toEqual({ files: 2, bytes: 4 });
      expect([await text(`${to}/e/f`), await text(`${to}-copy/g`)]).toEqual(["abc", "d"]);
      expect(await files.exists(place("/data/d"))).toBe(false);
    });

    it("replaces a file only when told to, and never a folder", async () => {
      await write("/data/f", "new");
      await write(to, "old");
      await expect(files.move(place("/data/f"), place(to))).rejects.toThrow(/already exists/);
      await expect(files.copy(place("/data/f"), place(to))).rejects.toThrow(/already exists/);
      expect([await text("/data/f"), await text(to)]).toEqual(["new", "old"]);
      await files.copy(place("/data/f"), place(to), { overwrite: true });
      await files.move(place("/data/f"), place(to), { overwrite: true });
      expect(await text(to)).toBe("new");
      await write("/data/f", "again");
      await files.delete(place(to));
      await files.mkdir(place(to));
      const overwriting = { overwrite: true };
      await expect(files.move(place("/data/f"), place(to), overwriting)).rejects.toMatchObject({ code: "FILE_SYSTEM" });
      await expect(files.copy(place("/data/f"), place(to), overwriting)).rejects.toMatchObject({ code: "FILE_SYSTEM" });
    });

    it("finds nothing to move or copy where nothing is", async () => {
      await expect(files.move(place("/data/f"), place(to))).rejects.toMatchObject({ code: "NOT_FOUND" });
      await expect(files.copy(place("/data/f"), place(to))).rejects.toMatchObject({ code: "NOT_FOUND" });
    });
  });

  it("does not move or copy a folder into itself", async () => {
    await write("/data/d/f", "x");
    await expect(files.move(place("/data/d"), place("/data/d/e"))).rejects.toThrow(/into itself/);
    await expect(files.copy(place("/data/d"), place("/data/d/e"))).rejects.toThrow(/into itself/);
    await expect(files.move(place("/data/d"), place("/data/d"))).rejects.toThrow(/are the same/);
    expect(await paths("/data", "**")).toEqual(["/data/d/", "/data/d/f"]);
  });

  describe("looking", () => {
    it("tells files from folders, and how large files are", async () => {
      expect(await files.mkdir(place("/data/d/e"))).toEqual({ created: true });
      expect(await files.mkdir(place("/data/d/e"))).toEqual({ created: false });
      await write("/data/d/f", "12");
      expect(await files.stat(place("/data/d"))).toMatchObject({ path: "/data/d", type: "directory", size: null });
      expect(await files.stat(place("/data/d/f"))).toMatchObject({ path: "/data/d/f", type: "file", size: 2 });
      await expect(files.stat(place("/data/x"))).rejects.toMatchObject({ code: "NOT_FOUND" });
      await expect(files.mkdir(place("/data/d/f"))).rejects.toMatchObject({ code: "FILE_SYSTEM" });
      expect(await files.exists(place("/data/d/f/g"))).toBe(false);
    });

    it("lists a folder, or what matches a pattern below it, but nothing that a mount hides", async () => {
      for (const path of ["/data/b.md", "/data/a.md", "/data/c.txt", "/data/inner/d.md", "/data/inner/.e.md"]) {
        await write(path, "x");
      }
      await write("/data/inner/own/hidden.md", "x");
      expect(await paths("/data")).toEqual(["/data/a.md", "/data/b.md", "/data/c.txt", "/data/inner/"]);
      expect(await paths("/data", "*.md")).toEqual(["/data/a.md", "/data/b.md"]);
      expect(await paths("/data", "**/*.md")).toEqual([
        "/data/a.md",
        "/data/b.md",
        "/data/inner/.e.md",
        "/data/inner/d.md",
      ]);
      expect(await paths("/data", "inner/*")).toEqual(["/data/inner/.e.md", "/data/inner/d.md"]);
      expect(await paths("/data", "{a,c}.*")).toEqual(["/data/a.md", "/data/c.txt"]);
      await expect(files.list(place("/data/a.md"))).rejects.toThrow(/not a directory/);
    });

    it("lists no more than it was asked for, and says that there is more", async () => {
      for (const name of ["a", "b", "c"]) await write(`/data/${name}`, "x");
      expect(await files.list(place("/data"), { max: 3 })).toMatchObject({ truncated: false, hint: null });
      const listing = await files.list(place("/data"), { max: 2 });
      expect(listing).toMatchObject({ truncated: true, entries: { length: 2 } });
      expect(listing.hint).toMatch(/more than these 2/);
    });

    it("takes parentheses in a pattern for what they are in names, and no pattern that takes long to match", async () => {
      await write("/data/a (1).txt", "x");
      await write("/data/a1.txt", "x");
      expect(await paths("/data", "a (1).*")).toEqual(["/data/a (1).txt"]);
      for (const pattern of ["*a*a*a*a", "**/**/**/**/x", "../x", "", "/", ".//", "x".repeat(600), "a\\b"]) {
        await expect(files.list(place("/data"), { pattern })).rejects.toMatchObject({ code: "FILE_SYSTEM" });
      }
    });
  });
}
