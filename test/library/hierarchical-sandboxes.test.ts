import fs from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  type FileSandbox,
  PathNotInSandboxError,
  type SandboxDeclaration,
  SandboxPermissionEscalationError,
  sandboxOf,
} from "../../src/sandbox.ts";
import { temporaryFolder } from "../files/temporary-folder.ts";

/* A sandbox over one directory, and children that only restrict: the seven tests that its first design asked for. */

let folder: ReturnType<typeof temporaryFolder>;
let program: FileSandbox;
let named: FileSandbox;
const host = (path: string): string => join(folder.path, path);
beforeEach(() => {
  folder = temporaryFolder();
  for (const name of ["src/lib", "docs", "output/reports"]) fs.mkdirSync(host(name), { recursive: true });
  for (const name of ["src/a.py", "src/lib/b.py", "docs/x.md", "output/reports/r.md"])
    fs.writeFileSync(host(name), "x");
  program = sandboxOf({ base: folder.path, root: { host: "." } });
  named = sandboxOf({
    base: folder.path,
    mounts: { src: { host: "./src", mode: "rw" }, output: { host: "output", mode: "rw" } },
  });
});
afterEach(() => folder.remove());

const code = (work: () => unknown): string => {
  try {
    work();
    return "none";
  } catch (error) {
    if (!(error instanceof SandboxPermissionEscalationError)) throw error;
    return error.violations.map((violation) => violation.code).join();
  }
};

describe("a sandbox over one directory", () => {
  it("resolves relative paths and paths from `/`, and what does not exist yet", async () => {
    for (const path of ["/src/a.py", "src/a.py", "./src/a.py"])
      expect(await program.resolve(path)).toBe(host("src/a.py"));
    expect(await program.resolve("/src/new/c.py")).toBe(host("src/new/c.py"));
    expect(await program.resolve("/")).toBe(folder.path);
  });

  it("refuses what leads out, with what can be read and written", async () => {
    fs.symlinkSync("/etc", host("out"));
    fs.symlinkSync("../..", host("src/up"));
    const outside = ["../x", "/src/../../x", "~/x", "C:/x", "/out/passwd", "/src/up/etc/passwd"];
    for (const path of outside) {
      const refused = await program.resolve(path).catch((error: unknown) => error);
      expect(refused).toBeInstanceOf(PathNotInSandboxError);
      expect(String(refused)).toMatch(/\nReadable paths: \/\nWritable paths: \/$/);
    }
    const readonly = sandboxOf({ root: { host: folder.path, readonly: true } });
    await expect(readonly.resolve("../x")).rejects.toThrow(/Writable paths: none$/);
    // An absolute path begins in the sandbox, and is none of the host.
    expect(await program.resolve("/etc/passwd")).toBe(host("etc/passwd"));
  });

  it("follows links that stay in it, also absolute ones", async () => {
    fs.symlinkSync("lib", host("src/near"));
    fs.symlinkSync(host("src/lib"), host("docs/far"));
    fs.symlinkSync(host("src/../docs"), host("src/around"));
    expect(await program.resolve("/src/near/b.py")).toBe(host("src/lib/b.py"));
    expect(await program.resolve("/docs/far/b.py")).toBe(host("src/lib/b.py"));
    expect(await program.resolve("/src/around/x.md")).toBe(host("docs/x.md"));
    // What lies in another directory of the sandbox is reached by its own path.
    fs.symlinkSync(host("output"), host("src/other"));
    await expect(named.resolve("/src/other/reports")).rejects.toBeInstanceOf(PathNotInSandboxError);
  });
});

describe("a child sandbox", () => {
  it("without arguments is empty, and blocks everything", async () => {
    for (const empty of [program.derive(), named.derive({})]) {
      expect([empty.readableRoots, empty.writableRoots]).toEqual([[], []]);
      expect([empty.canRead("/src/a.py"), empty.canWrite("/src/a.py")]).toEqual([false, false]);
      await expect(empty.resolve("/src/a.py")).rejects.toBeInstanceOf(PathNotInSandboxError);
      expect(code(() => empty.derive({ allowRead: "/src" }))).toBe("PATH_NOT_AVAILABLE");
    }
  });

  it("reads only below the prefixes of its list; a file means its directory", async () => {
    const analyzer = program.derive({ allowRead: "/src", readonly: true });
    expect([analyzer.canRead("/src/a.py"), analyzer.canWrite("/src/a.py"), analyzer.canRead("/docs/x.md")]).toEqual([
      true,
      false,
      false,
    ]);
    await expect(analyzer.resolve("/docs/x.md")).rejects.toThrow(/Readable paths: \/src\n/);
    for (const path of ["output/reports", "output:reports", "/output/reports"]) {
      expect(named.derive({ allowRead: path }).readableRoots).toEqual(["/output/reports"]);
    }
    expect(named.derive({ allowRead: "output" }).readableRoots).toEqual(["/output"]);
    expect(program.deriveOnDisk({ allowRead: ["/src/lib/b.py"] }).readableRoots).toEqual(["/src/lib"]);
    expect(named.deriveOnDisk({ allowWrite: "output:reports/r.md" }).writableRoots).toEqual(["/output/reports"]);
    expect(program.deriveOnDisk({ allowRead: ["/src/none.py"] }).readableRoots).toEqual(["/src/none.py"]);
    // No link is followed, which a worker may have planted.
    fs.symlinkSync("../docs", host("src/link"));
    expect(program.deriveOnDisk({ allowRead: "/src/link/x.md" }).readableRoots).toEqual(["/src/link/x.md"]);
  });

  it("writes nothing by a read list, and reads what it may write", () => {
    const reader = program.derive({ allowRead: "/src" });
    expect([reader.canRead("/src/a.py"), reader.canWrite("/src/a.py")]).toEqual([true, false]);
    const writer = program.derive({ allowWrite: "/output" });
    expect([writer.canRead("/output/a"), writer.canWrite("/output/a"), writer.canRead("/src/a.py")]).toEqual([
      true,
      true,
      false,
    ]);
    const both = program.derive({ allowRead: "/src", allowWrite: "/output" });
    expect([both.readableRoots, both.writableRoots]).toEqual([["/output", "/src"], ["/output"]]);
    expect(program.derive({ allowRead: [], allowWrite: [] }).readableRoots).toEqual([]);
  });

  it("has everything with `inherit`, and lists restrict that", () => {
    const all = program.derive({ inherit: true });
    expect([all.canRead("/docs/x.md"), all.canWrite("/docs/x.md")]).toEqual([true, true]);
    const less = program.derive({ inherit: true, allowRead: "/src" });
    expect([less.canRead("/src/a.py"), less.canWrite("/src/a.py"), less.canRead("/docs/x.md")]).toEqual([
      true,
      false,
      false,
    ]);
  });

  it("can be made read-only and never writable again, and only derived sandboxes are narrower", () => {
    const reader = program.derive({ inherit: true, readonly: true });
    expect([reader.canRead("/src/a.py"), reader.canWrite("/src/a.py")]).toEqual([true, false]);
    expect(code(() => reader.derive({ inherit: true, readonly: false }))).toBe("READONLY_ESCALATION");
    expect(code(() => program.derive().derive({ readonly: false }))).toBe("READONLY_ESCALATION");
    expect(code(() => reader.derive({ allowWrite: "/src" }))).toBe("WRITE_NOT_AVAILABLE");
    expect(program.derive({ inherit: true, readonly: false }).canWrite("/src/a.py")).toBe(true);
    expect(named.writableRoots).toEqual(["/output", "/src"]);
  });

  it("can be narrowed by suffix and size, and never widened", () => {
    const texts = program.derive({ inherit: true, suffixes: ["md", ".PY"], maxFileBytes: 100 });
    expect(texts.checkRead("/a.exe")?.code).toBe("SUFFIX_NOT_ALLOWED");
    expect([texts.canRead("/a.py"), texts.canRead("/a.py", { size: 101 })]).toEqual([true, false]);
    const more = texts.derive({ inherit: true, suffixes: [".md", ".exe"], maxFileBytes: 1000 });
    expect([more.canRead("/a.exe"), more.canRead("/a.py"), more.canRead("/a.md", { size: 100 })]).toEqual([
      false,
      false,
      true,
    ]);
    expect(more.canRead("/a.md", { size: 101 })).toBe(false);
  });
});

describe("what a program gives that says nothing", () => {
  it.each([
    [() => sandboxOf({} as SandboxDeclaration), /give `mounts`.*or `root`/],
    [() => sandboxOf(null as unknown as SandboxDeclaration), /must be an object/],
    [() => sandboxOf({ root: {} as { host: string } }), /needs `host`/],
    [() => sandboxOf({ mounts: { a: { host: "./x" } } }), /with `base` it may be relative/],
    [() => sandboxOf({ base: "x", mounts: {} }), /`base`.* must be absolute/],
    [() => sandboxOf({ mounts: { a: { host: "/x", maxFileBytes: -1 } } }), /whole number, 0 or more/],
    [() => sandboxOf({ mounts: { a: { host: "/x", suffixes: "md" as unknown as string[] } } }), /list of suffixes/],
    [() => program.derive({ allowRead: null as unknown as string }), /`allowRead` of the request must be a path/],
    [() => program.derive({ inherit: true, maxFileBytes: Number.NaN }), /whole number/],
    [() => program.derive(null as never), /must be an object/],
  ])("is a RangeError in words: %#", (act, words) => {
    expect(act).toThrow(RangeError);
    expect(act).toThrow(words);
  });
});
