import fs from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { memoryBackend, openBackendFiles } from "../../src/files/backend/backend-files.ts";
import { type GuardedFiles, guarded } from "../../src/files/guarded.ts";
import { openHostFiles } from "../../src/files/host/host-files.ts";
import { SandboxError } from "../../src/sandbox/errors.ts";
import type { Sandbox } from "../../src/sandbox/sandbox.ts";
import { mount, project } from "../sandbox/sandboxes.ts";
import { temporaryFolder } from "./temporary-folder.ts";

const agreed = { approval: { write: "pre_approved", delete: "pre_approved" } } as const;

const sandbox: Sandbox = project([
  mount("/docs", "ro"),
  mount("/docs/out/deep", "rw", agreed),
  mount("/notes", "rw", { ...agreed, suffixes: [".md", ".txt"], maxFileBytes: 1024 }),
  mount("/sealed", "rw", { approval: { write: "blocked", delete: "blocked" } }),
  mount("/kept", "rw", { approval: { write: "pre_approved", delete: "blocked" } }),
  mount("/asked", "rw"),
]);

/** The host directories of the mounts, under one folder that no text may ever show. */
function onHost(folder: string): Sandbox {
  return project(
    sandbox.mounts.map((it) => {
      const host = join(folder, it.path.replaceAll("/", "_"));
      fs.mkdirSync(host, { recursive: true });
      return { ...it, host };
    }),
  );
}

let folder: ReturnType<typeof temporaryFolder>;
let files: GuardedFiles;
let host: (path: string) => string;
let close: () => void;
beforeEach(() => {
  folder = temporaryFolder();
  const opened = onHost(folder.path);
  const backend = openHostFiles(opened.mounts);
  files = guarded(backend, opened);
  host = (path) =>
    join(opened.mounts.find((it) => path.startsWith(it.path))?.host ?? "", path.split("/").slice(2).join("/"));
  close = () => backend[Symbol.dispose]();
});
afterEach(() => {
  close();
  folder.remove();
});

async function refusal(operation: Promise<unknown>): Promise<string> {
  const error = await operation.then(
    () => new Error("it was done"),
    (refused: unknown) => refused,
  );
  if (!(error instanceof SandboxError)) throw error;
  // The system's own error is kept for those who look after the machine; what is shown is the text.
  for (const secret of [folder.path, "zone", "/proc", "/host"]) expect(error.message).not.toContain(secret);
  return `${error.name}: ${error.message}`;
}

describe("the texts of refusals", () => {
  it("say of a place outside what can be read", async () => {
    const text = "PathNotInSandboxError: Cannot access '/etc/passwd': the path is outside what this worker can see.\n";
    const readable = "Readable paths: /asked, /docs, /kept, /notes, /sealed";
    expect(await refusal(files.read("/etc/passwd"))).toBe(text + readable);
    expect(await refusal(files.write("/etc/passwd", "x"))).toBe(
      `${text}${readable}\nWritable paths: /asked, /docs/out/deep, /kept, /notes`,
    );
    expect(await refusal(files.list("/docs-evil"))).toContain("'/docs-evil': the path is outside");
    expect(await refusal(files.delete("/", { recursive: true }))).toContain("'/': the path is outside");
  });

  it("say of a text that is no path why not", async () => {
    expect(await refusal(files.read("/docs/../../etc/passwd"))).toBe(
      "PathNotInSandboxError: Cannot access '/docs/../../etc/passwd': `..` would leave `/`.\nReadable paths: /asked, /docs, /kept, /notes, /sealed",
    );
    expect(await refusal(files.read("/docs/a\0b"))).toContain("'/docs/a\\u{0}b': control characters are not allowed");
    expect(await refusal(files.read("~/a"))).toContain("there is no home directory here");
  });

  it("say of what is read-only what can be written", async () => {
    expect(await refusal(files.write("/docs/a", "x"))).toBe(
      "PathNotWritableError: Cannot write '/docs/a': it is read-only.\nWritable paths: /asked, /docs/out/deep, /kept, /notes",
    );
    for (const operation of [
      files.append("docs:a", "x"),
      files.edit("docs/a", [{ old: "a", new: "b" }]),
      files.delete("/docs/a"),
      files.mkdir("/docs/a"),
      files.move("/docs/a", "/asked/a"),
      files.move("/asked/a", "/docs/a"),
      files.copy("/asked/a", "/docs/a"),
    ]) {
      expect(await refusal(operation)).toContain("PathNotWritableError: Cannot write '/docs/a': it is read-only.");
    }
  });

  it("say of a suffix which are allowed, whatever the operation", async () => {
    const text =
      "SuffixNotAllowedError: Cannot access '/notes/a.exe': files of this kind are not allowed there.\nAllowed suffixes: .md, .txt";
    fs.writeFileSync(host("/notes/a.exe"), "x");
    fs.writeFileSync(host("/asked/a.exe"), "x");
    expect(await refusal(files.read("/notes/a.exe"))).toBe(text);
    expect(await refusal(files.write("/notes/a.exe", "x"))).toBe(text);
    expect(await refusal(files.append("/notes/a.exe", "x"))).toBe(text);
    expect(await refusal(files.delete("/notes/a.exe"))).toBe(text);
    expect(await refusal(files.copy("/asked/a.exe", "/notes/a.exe", { overwrite: true }))).toBe(text);
    expect(await refusal(files.move("/asked/a.exe", "/notes/a.exe", { overwrite: true }))).toBe(text);
    expect(await refusal(files.copy("/notes/a.exe", "/asked/b"))).toBe(text);
    fs.symlinkSync("a.exe", host("/notes/a.md"));
    expect(await refusal(files.read("/notes/a.md"))).toBe(text);
    expect(fs.readFileSync(host("/notes/a.exe"), "utf8")).toBe("x");
  });

  it("say of a size what it is and what it may be, before anything is changed", async () => {
    const text = (size: string) =>
      `FileTooLargeError: Cannot access '/notes/a.md': its size is ${size}.\nLargest file allowed there: 1 KiB`;
    expect(await refusal(files.write("/notes/a.md", "x".repeat(1025)))).toBe(text("1025 bytes"));
    await files.write("/notes/a.md", "x".repeat(1024));
    expect(await refusal(files.append("/notes/a.md", "x"))).toBe(text("1025 bytes"));
    await files.edit("/notes/a.md", [{ old: "x".repeat(1024), new: "x".repeat(1023).concat("y") }]);
    expect(await refusal(files.edit("/notes/a.md", [{ old: "y", new: "yy" }]))).toBe(text("1025 bytes"));
    fs.writeFileSync(host("/notes/a.md"), "x".repeat(2048));
    expect(await refusal(files.read("/notes/a.md"))).toBe(text("2 KiB"));
    fs.writeFileSync(host("/asked/big.md"), "x".repeat(2048));
    expect(await refusal(files.copy("/asked/big.md", "/notes/b.md"))).toContain("FileTooLargeError");
    expect(fs.existsSync(host("/notes/b.md"))).toBe(false);
  });

  it("say of what is missing what is there", async () => {
    fs.writeFileSync(host("/docs/Read-Me.md"), "x");
    expect(await refusal(files.read("/docs/readme.md"))).toBe(
      "NotFoundError: Cannot find '/docs/readme.md': it does not exist.\nThere are: /docs/Read-Me.md",
    );
    expect(await refusal(files.stat("/docs/x/y"))).toBe(
      "NotFoundError: Cannot find '/docs/x/y': it does not exist.\nList the directory to see what exists.",
    );
  });

  it("say of what a view leaves out how large it is, and of another suffix the same whether or not it exists", async () => {
    const size = (path: string): number | null => (path.startsWith("/notes/large") ? 2048 : null);
    const opened = onHost(folder.path);
    using backend = openHostFiles(opened.mounts);
    const hiding = guarded(backend, opened, { sizeAt: size, below: () => [] });
    const text = (path: string) =>
      `FileTooLargeError: Cannot access '${path}': its size is 2 KiB.\nLargest file allowed there: 1 KiB`;
    for (const operation of [
      hiding.read("/notes/large.md"),
      hiding.stat("/notes/large.md"),
      hiding.write("/notes/large.md", "x"),
      hiding.edit("/notes/large.md", [{ old: "a", new: "b" }]),
      hiding.delete("/notes/large.md"),
      hiding.move("/notes/large.md", "/notes/y.md"),
      hiding.copy("/notes/large.md", "/notes/y.md"),
    ])
      expect(await refusal(operation)).toBe(text("/notes/large.md"));
    const other = (name: string) =>
      `SuffixNotAllowedError: Cannot access '${name}': files of this kind are not allowed there.\nAllowed suffixes: .md, .txt`;
    for (const name of ["/notes/large.key", "/notes/none.key"])
      expect(await refusal(hiding.stat(name))).toBe(other(name));
  });

  it("say of what is blocked that nobody can approve it", async () => {
    fs.writeFileSync(host("/kept/a"), "x");
    expect(await refusal(files.write("/sealed/a", "x"))).toBe(
      "PermissionError: Cannot write '/sealed/a': writing is blocked there, and no approval can allow it.\nPaths where writing is not blocked: /asked, /docs/out/deep, /kept, /notes",
    );
    expect(await refusal(files.delete("/kept/a"))).toBe(
      "PermissionError: Cannot delete '/kept/a': deleting is blocked there, and no approval can allow it.\nPaths where deleting is not blocked: /asked, /docs/out/deep, /notes",
    );
    expect(await refusal(files.move("/kept/a", "/kept/b"))).toContain("PermissionError: Cannot delete '/kept/a'");
    expect(await refusal(files.copy("/kept/a", "/sealed/a"))).toContain("PermissionError: Cannot write '/sealed/a'");
    expect(await refusal(files.mkdir("/sealed/a"))).toContain("PermissionError: Cannot write '/sealed/a'");
    expect(await refusal(files.append("/sealed/a", "x"))).toContain("PermissionError: Cannot write '/sealed/a'");
  });

  it("say of an edit what was found", async () => {
    await files.write("/asked/a", "x x");
    expect(await refusal(files.edit("/asked/a", [{ old: "x", new: "y" }]))).toBe(
      "EditError: Cannot edit '/asked/a': the text to replace was found 2 times (lines 1, 1). Include more of the surrounding text to name one place, or replace all.",
    );
  });

  it("say of what the file system refuses what can be done", async () => {
    await files.write("/asked/d/f", "x");
    expect(await refusal(files.read("/asked/d"))).toBe(
      "FileSystemError: Cannot read '/asked/d': it is a directory. Name a file in it, or list it.",
    );
    expect(await refusal(files.list("/asked/d/f"))).toBe(
      "FileSystemError: Cannot list '/asked/d/f': it is not a directory. Read it instead.",
    );
    expect(await refusal(files.read("/asked/d/f/g"))).toBe(
      "FileSystemError: Cannot read '/asked/d/f/g': part of its path is a file, not a directory. List the parent directory.",
    );
    expect(await refusal(files.delete("/asked/d"))).toBe(
      "FileSystemError: Cannot delete '/asked/d': the directory is not empty. Delete its contents first, or delete it recursively.",
    );
    expect(await refusal(files.delete("/asked"))).toBe(
      "FileSystemError: Cannot delete '/asked': it is itself a granted directory. Work with its contents.",
    );
  });
});

describe("queries", () => {
  it("answer of a path what its operations would do", async () => {
    for (const path of ["/docs/a", "/notes/a.md", "/notes/a.exe", "/notes/large.md", "/sealed/a", "/asked/a"])
      fs.writeFileSync(host(path), path.includes("large") ? "x".repeat(1025) : "x");
    fs.symlinkSync("a.exe", host("/notes/link.md"));
    fs.symlinkSync("/etc/passwd", host("/asked/away"));
    fs.symlinkSync("a", host("/asked/near"));
    const rights = async (path: string) => {
      const { readable, writable } = await files.inspect(path);
      return `${path} ${readable ? "r" : "-"}${writable ? "w" : "-"}`;
    };
    const wanted = [
      ["/", "r-"],
      ["/docs", "r-"],
      ["/docs/a", "r-"],
      ["/notes", "rw"],
      ["/notes/a.md", "rw"],
      ["/notes/link.md", "--"],
      ["/sealed/a", "r-"],
      ["/asked/a", "rw"],
      ["/asked/away", "--"],
      ["/asked/near", "r-"],
    ];
    for (const [path = "", rw] of wanted) expect(await rights(path)).toBe(`${path} ${rw}`);
    await expect(files.inspect("/notes/none.md")).rejects.toMatchObject({ code: "NOT_FOUND" });
    // What the list leaves out is described by no operation either.
    await expect(files.inspect("/notes/a.exe")).rejects.toMatchObject({ code: "SUFFIX_NOT_ALLOWED" });
    await expect(files.stat("/notes/large.md")).rejects.toMatchObject({ code: "FILE_TOO_LARGE" });
    const { entries, notShown } = await files.list("/notes");
    expect(entries.map(({ path }) => path)).toEqual(["/notes/a.md", "/notes/link.md"]);
    expect(notShown).toEqual({ otherSuffix: 1, tooLarge: 1, unreadable: 0 });
    expect([await files.exists("/notes/a.exe"), await files.exists("/notes/a.md")]).toEqual([false, true]);
    await expect(files.inspect("/etc")).rejects.toMatchObject({ code: "PATH_NOT_IN_SANDBOX" });
  });

  it("find the place that a path leads to, be it not there yet, and never one outside", async () => {
    fs.mkdirSync(host("/asked/d"));
    fs.symlinkSync("d", host("/asked/l"));
    fs.symlinkSync("..", host("/asked/up"));
    fs.symlinkSync("/etc", host("/asked/etc"));
    fs.symlinkSync("nothing", host("/asked/dangling"));
    fs.symlinkSync("out", host("/docs/o"));
    fs.mkdirSync(host("/docs/out"));
    fs.writeFileSync(host("/asked/f"), "");
    expect(await files.realPath("/asked/l/new/deep.txt")).toBe("/asked/d/new/deep.txt");
    expect(await files.realPath("asked:l")).toBe("/asked/d");
    expect(await files.realPath("/docs/out")).toBe("/docs/out");
    for (const path of ["/asked/up", "/asked/up/x", "/asked/etc/passwd", "/docs/o/deep", "/docs/o/deep/new"])
      await expect(files.realPath(path), path).rejects.toMatchObject({ code: "FILE_SYSTEM" });
    await expect(files.realPath("/asked/dangling")).rejects.toMatchObject({ code: "NOT_FOUND" });
    await expect(files.realPath("/asked/f/x")).rejects.toMatchObject({ code: "FILE_SYSTEM" });
    await expect(files.realPath("/elsewhere")).rejects.toMatchObject({ code: "PATH_NOT_IN_SANDBOX" });
  });

  it("answer for texts, and never throw", () => {
    expect(files.resolve("docs:./a/../b")).toEqual({ ok: true, path: "/docs/b", access: "read" });
    expect(files.resolve("/etc")).toMatchObject({ ok: false, error: { code: "PATH_NOT_IN_SANDBOX", path: "/etc" } });
    expect(files.readableRoots()).toEqual(["/asked", "/docs", "/kept", "/notes", "/sealed"]);
    expect(files.writableRoots()).toEqual(["/asked", "/docs/out/deep", "/kept", "/notes"]);
  });

  it("tell what somebody must agree to", () => {
    expect(files.needs("read", "/docs/a")).toEqual([]);
    expect(files.needs("write", "asked/a")).toEqual([{ operation: "write", path: "/asked/a", consent: "ask" }]);
    expect(files.needs("delete", "/kept/a")).toEqual([{ operation: "delete", path: "/kept/a", consent: "blocked" }]);
    expect(files.needs("move", "/asked/a", "/notes/a.md")).toEqual([
      { operation: "delete", path: "/asked/a", consent: "ask" },
      { operation: "write", path: "/notes/a.md", consent: "pre_approved" },
    ]);
    expect(files.needs("copy", "/docs/a", "/asked/a")).toEqual([
      { operation: "write", path: "/asked/a", consent: "ask" },
    ]);
    expect(() => files.needs("write", "/docs/a")).toThrow("read-only");
  });
});

describe("the namespace", () => {
  it("has the directories that were granted and those that lead to them, and nothing else", async () => {
    const { entries, truncated } = await files.list("/");
    expect(entries.map(({ path, type }) => `${path} ${type}`)).toEqual([
      "/asked directory",
      "/docs directory",
      "/kept directory",
      "/notes directory",
      "/sealed directory",
    ]);
    expect(truncated).toBe(false);
    expect(await files.list()).toEqual(await files.list("/"));
    expect((await files.list("/docs")).entries.map(({ path }) => path)).toEqual(["/docs/out"]);
    expect((await files.list("/docs/out")).entries.map(({ path }) => path)).toEqual(["/docs/out/deep"]);
    expect([await files.exists("/"), await files.exists("/docs/out")]).toEqual([true, true]);
    expect(await files.stat("/")).toMatchObject({ type: "directory" });
  });

  it("is searched across all that was granted, with paths as the pattern's directory sees them", async () => {
    for (const path of ["/asked/a.md", "/asked/d/b.md", "/docs/out/deep/c.md"]) await files.write(path, "x");
    fs.writeFileSync(host("/docs/d.md"), "x");
    const all = ["/asked/a.md", "/asked/d/b.md", "/docs/d.md", "/docs/out/deep/c.md"];
    expect((await files.list("/", { pattern: "**/*.md" })).entries.map(({ path }) => path)).toEqual(all);
    expect((await files.list("/", { pattern: "*/*.md" })).entries.map(({ path }) => path)).toEqual([all[0], all[2]]);
    const limited = await files.list("/", { pattern: "**/*.md", max: 2 });
    expect([limited.entries.length, limited.truncated]).toEqual([2, true]);
  });

  it("shows a mount's name alone where what was granted lies deeper", async () => {
    const narrow = project([mount("/work/a/b", "ro"), mount("/work/c", "ro")]);
    using backend = openBackendFiles(memoryBackend(), narrow.mounts);
    const narrowed = guarded(backend, narrow);
    const shown = async (path: string) => (await narrowed.list(path)).entries.map((entry) => entry.path);
    expect([await shown("/"), await shown("/work"), await shown("/work/a")]).toEqual([
      ["/work"],
      ["/work/a", "/work/c"],
      ["/work/a/b"],
    ]);
    await expect(narrowed.list("/work/x")).rejects.toMatchObject({ code: "PATH_NOT_IN_SANDBOX" });
  });
});
