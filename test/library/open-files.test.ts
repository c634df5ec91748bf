import { execFile } from "node:child_process";
import fs from "node:fs";
import { dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type FileApproval, type FileSandbox, openFiles, type SandboxFiles, sandboxOf } from "../../src/sandbox.ts";
import { temporaryFolder } from "../files/temporary-folder.ts";

const free = { write: "pre_approved", delete: "pre_approved" } as const;
const blocked = { write: "blocked", delete: "blocked" } as const;

let folder: ReturnType<typeof temporaryFolder>;
let sandbox: FileSandbox;
const host = (path: string): string => join(folder.path, path);
beforeEach(() => {
  folder = temporaryFolder();
  for (const name of ["in", "out", "asked", "sealed", "staged", "dropped"]) fs.mkdirSync(host(name));
  fs.writeFileSync(host("in/doc.txt"), "from the host\n");
  const mode = "rw";
  sandbox = sandboxOf({
    mounts: {
      in: { host: host("in") },
      out: { host: host("out"), mode, approval: free, suffixes: ["md", "bin"], maxFileBytes: 1000 },
      asked: { host: host("asked"), mode },
      sealed: { host: host("sealed"), mode, approval: blocked },
      staged: { host: host("staged"), mode, approval: free, stage: true },
      dropped: { host: host("dropped"), mode, approval: free, discard: true },
    },
  });
});
afterEach(() => folder.remove());

describe.each(["host", "memory"] as const)("the files of a sandbox (%s)", (backend) => {
  let files: SandboxFiles;
  const asked: FileApproval[] = [];
  beforeEach(() => {
    asked.length = 0;
    const approve = (request: FileApproval): boolean => {
      asked.push(request);
      return request.path !== "/asked/no";
    };
    files = openFiles(sandbox, { backend, approve });
  });
  afterEach(() => files[Symbol.dispose]());

  it("give back text and bytes as they were written, and make the directories above", async () => {
    expect(await files.write("/out/a/b.md", "\ufeffünï\r\n")).toEqual({ bytes: 10, created: true });
    expect(await files.read("out:a/b.md")).toBe("\ufeffünï\r\n");
    const bytes = Uint8Array.from({ length: 256 }, (_, index) => index);
    await files.write("/out/x.bin", bytes);
    expect(Uint8Array.from(await files.readBytes("/out/x.bin"))).toEqual(bytes);
    await expect(files.read("/out/x.bin")).rejects.toThrow(/not UTF-8 text. Read its bytes/);
    await expect(files.readBytes("/out/x.bin", { maxBytes: 255 })).rejects.toThrow(/256 bytes, and at most 255 bytes/);
    await expect(files.write("/out/x.bin", "y", { overwrite: false })).rejects.toThrow(/already exists/);
  });

  it("edit exact texts, list and describe", async () => {
    await files.write("/out/a.md", "one two one");
    expect(await files.edit("/out/a.md", [{ old: "two", new: "2" }])).toEqual({ bytes: 9, replacements: 1 });
    await expect(files.edit("/out/a.md", [{ old: "one", new: "1" }])).rejects.toMatchObject({ code: "EDIT" });
    await files.write("/out/sub/b.md", "");
    const listed = async (path?: string, pattern?: string) =>
      (await files.list(path, pattern === undefined ? {} : { pattern })).entries.map((entry) => entry.path);
    expect(await listed("/out")).toEqual(["/out/a.md", "/out/sub"]);
    expect(await listed("/out", "**/*.md")).toEqual(["/out/a.md", "/out/sub/b.md"]);
    expect(await listed()).toEqual(["/asked", "/dropped", "/in", "/out", "/sealed", "/staged"]);
    expect(await files.info("/out/a.md")).toMatchObject({ type: "file", size: 9, readable: true, writable: true });
    expect(await files.info("/sealed")).toMatchObject({ type: "directory", readable: true, writable: false });
    expect(await files.info("/in")).toMatchObject({ readable: true, writable: false });
    expect(await files.resolve("out:new/c.md")).toBe("/out/new/c.md");
  });

  it("refuse what the sandbox does not allow, in its words", async () => {
    const code = (work: Promise<unknown>) => work.then(String, (error: { code: string }) => error.code);
    expect(await code(files.read("/etc/passwd"))).toBe("PATH_NOT_IN_SANDBOX");
    expect(await code(files.resolve("../x"))).toBe("PATH_NOT_IN_SANDBOX");
    expect(await code(files.write("/in/a", "x"))).toBe("PATH_NOT_WRITABLE");
    expect(await code(files.write("/out/a.exe", "x"))).toBe("SUFFIX_NOT_ALLOWED");
    expect(await code(files.write("/out/a.md", "x".repeat(1001)))).toBe("FILE_TOO_LARGE");
    expect(await code(files.write("/sealed/a", "x"))).toBe("PERMISSION");
    expect(await code(files.read("/out/none.md"))).toBe("NOT_FOUND");
    expect(asked).toEqual([]);
  });

  it("ask for what needs consent, and refuse without it", async () => {
    await files.write("/asked/yes", "x");
    await expect(files.write("/asked/no", "x")).rejects.toThrow(/it was not approved/);
    await files.edit("/asked/yes", [{ old: "x", new: "y" }]);
    expect(asked).toEqual(["yes", "no", "yes"].map((name) => ({ operation: "write", path: `/asked/${name}` })));
    using loose = openFiles(sandbox, { backend, approve: () => "no" as unknown as boolean });
    await expect(loose.write("/asked/yes", "x")).rejects.toMatchObject({ code: "PERMISSION" });
    using alone = openFiles(sandbox.data, { backend });
    await expect(alone.write("/asked/yes", "x")).rejects.toMatchObject({ code: "PERMISSION" });
  });

  it("do nothing for a signal that is aborted, also while a question waits", async () => {
    await files.write("/out/a.md", "old");
    const ended = { signal: AbortSignal.abort(new Error("ended")) };
    await expect(files.read("/out/a.md", ended)).rejects.toThrow("ended");
    await expect(files.readBytes("/out/a.md", ended)).rejects.toThrow("ended");
    await expect(files.write("/out/a.md", "new", ended)).rejects.toThrow("ended");
    await expect(files.list("/out", ended)).rejects.toThrow("ended");
    const ending = new AbortController();
    using slow = openFiles(sandbox, {
      backend,
      approve: () => {
        ending.abort(new Error("ended meanwhile"));
        return true;
      },
    });
    await expect(slow.write("/asked/late", "x", { signal: ending.signal })).rejects.toThrow("ended meanwhile");
    await expect(slow.info("/asked/late")).rejects.toMatchObject({ code: "NOT_FOUND" });
    expect(await files.read("/out/a.md")).toBe("old");
  });

  it("are closed with what was opened", async () => {
    await files.write("/out/a.md", "x");
    files[Symbol.dispose]();
    await expect(files.read("/out/a.md")).rejects.toThrow();
  });

  it("are narrowed with their sandbox", async () => {
    using reader = openFiles(sandbox.derive({ allowRead: "/out" }), { backend });
    await expect(reader.write("/out/a.md", "x")).rejects.toMatchObject({ code: "PATH_NOT_WRITABLE" });
    await expect(reader.list("/in")).rejects.toMatchObject({ code: "PATH_NOT_IN_SANDBOX" });
  });
});

describe("the files of a sandbox on the host", () => {
  it("are those of its directories, and no link leads out of them", async () => {
    using files = openFiles(sandbox, { backend: "host" });
    expect(await files.read("/in/doc.txt")).toBe("from the host\n");
    fs.symlinkSync("/etc", host("in/etc"));
    fs.symlinkSync("../asked", host("out/up"));
    for (const path of ["/in/etc/passwd", "/out/up/new.md"]) {
      await expect(files.read(path)).rejects.toMatchObject({ code: "FILE_SYSTEM" });
      await expect(files.resolve(path)).rejects.toMatchObject({ code: "FILE_SYSTEM" });
      await expect(sandbox.resolve(path)).rejects.toMatchObject({ code: "FILE_SYSTEM" });
    }
    await expect(files.write("/out/up/new.md", "x")).rejects.toThrow(/through links/);
    expect(await files.info("/in/etc")).toMatchObject({ type: "link", readable: false, writable: false });
    expect(fs.readdirSync(host("asked"))).toEqual([]);
  });

  it("are not written where changes are staged", async () => {
    using files = openFiles(sandbox, { backend: "host" });
    for (const path of ["/staged/a", "/dropped/a"])
      await expect(files.write(path, "x")).rejects.toThrow(/staged.*openProject/s);
    using memory = openFiles(sandbox, { backend: "memory" });
    expect(await memory.write("/staged/a", "x")).toEqual({ bytes: 1, created: true });
  });
});

describe("the files of a sandbox in memory", () => {
  it("begin empty, are no one else's, and hold so much", { timeout: 60_000 }, async () => {
    const roomy = sandboxOf({ mounts: { m: { host: "/nowhere", mode: "rw", approval: free } } });
    using files = openFiles(roomy, { backend: "memory" });
    using others = openFiles(roomy, { backend: "memory" });
    const large = Buffer.alloc(60 << 20);
    for (const name of ["a", "b", "c", "d"]) await files.write(`/m/${name}`, large);
    await expect(files.write("/m/e", large)).rejects.toThrow(/would hold more than 256 MiB/);
    await files.write("/m/d", "small");
    await files.write("/m/e", large);
    expect((await others.list("/m")).entries).toEqual([]);
    expect(fs.existsSync("/nowhere")).toBe(false);
  });
});

describe("`corral/sandbox`", () => {
  it("imports no client of an Engine, anywhere", async () => {
    const [files, packages] = reachable(resolve("src/sandbox.ts"));
    expect(files.size).toBeGreaterThan(50);
    expect([...files].filter((file) => file.includes("isolation/engine/"))).toEqual([]);
    expect([...packages].filter((name) => /docker|modelcontextprotocol|^ai$|@ai-sdk/.test(name))).toEqual([]);
  });

  it("works in a process in which that client cannot be loaded", async () => {
    const program = `import { registerHooks } from "node:module";
      registerHooks({ resolve: (name, context, next) => {
        if (/docker/.test(name) || /engine/.test(name)) throw new Error("loaded " + name);
        return next(name, context);
      } });
      const { openFiles, sandboxOf } = await import(${JSON.stringify(resolve("src/sandbox.ts"))});
      const sandbox = sandboxOf({ mounts: { m: { host: ${JSON.stringify(host("in"))} } } });
      const files = openFiles(sandbox, { backend: "host" });
      console.log(await files.read("/m/doc.txt"));`;
    const env = { PATH: "/nowhere", DOCKER_HOST: "unix:///nowhere.sock" };
    const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", program], { env });
    expect(stdout).toBe("from the host\n\n");
  });
});

/** The source files that an entry loads, at once or later, and the packages that these import. */
function reachable(entry: string): [Set<string>, Set<string>] {
  const [files, packages] = [new Set<string>(), new Set<string>()];
  const waiting = [entry];
  for (let file = waiting.pop(); file !== undefined; file = waiting.pop()) {
    if (files.has(file)) continue;
    files.add(file);
    const code = fs.readFileSync(file, "utf8").replace(/^(import|export) type .*?;$/gms, "");
    for (const [, target = ""] of code.matchAll(/(?:from|import)\s*\(?\s*["']([^"']+)["']/g)) {
      if (target.startsWith(".")) waiting.push(join(dirname(file), target));
      else packages.add(target);
    }
  }
  return [files, packages];
}
