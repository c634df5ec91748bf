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

  it("append, delete, move, copy, make directories and say what exists", async () => {
    expect(await files.append("/out/log.md", "a")).toEqual({ bytes: 1, created: true });
    expect(await files.append("/out/log.md", "bc")).toEqual({ bytes: 3, created: false });
    expect(await files.mkdir("/out/d/e")).toEqual({ created: true });
    expect(await files.copy("/out/log.md", "/out/d/e/copy.md")).toEqual({ files: 1, bytes: 3 });
    expect(await files.move("/out/d/e/copy.md", "/out/moved.md")).toEqual({ files: 1, bytes: 3 });
    expect([
      await files.exists("/out/moved.md"),
      await files.exists("/out/d/e/copy.md"),
      await files.exists("/"),
    ]).toEqual([true, false, true]);
    await expect(files.delete("/out/d")).rejects.toThrow(/not empty/);
    expect(await files.delete("/out/d", { recursive: true })).toEqual({ files: 0, folders: 2 });
    expect(await files.delete("/out/moved.md")).toEqual({ files: 1, folders: 0 });
    for (const change of [
      () => files.append("/in/x", "x"),
      () => files.delete("/in/doc.txt"),
      () => files.mkdir("/in/d"),
    ])
      await expect(change()).rejects.toMatchObject({ code: "PATH_NOT_WRITABLE" });
    await expect(files.copy("/out/log.md", "/out/log.exe")).rejects.toMatchObject({ code: "SUFFIX_NOT_ALLOWED" });
    expect(asked).toEqual([]);
  });

  it("give a part of a long file, and say how to go on", async () => {
    await files.write("/out/long.md", "one\ntwo\nthree\n");
    expect(await files.readPart("/out/long.md", { offset: 2, limit: 1 })).toMatchObject({
      content: "two\n",
      truncated: true,
    });
    const part = await files.readPart("/out/long.md", { maxChars: 5 });
    expect(part).toMatchObject({ type: "text", truncatedBy: "chars", hint: expect.stringMatching(/offset/) });
  });

  it("ask for each change that the consent leaves to a question, and for what the host would execute", async () => {
    await files.write("/asked/a", "x");
    await files.append("/asked/a", "y");
    await files.move("/asked/a", "/asked/b");
    await files.mkdir("/asked/d");
    await files.delete("/asked/b");
    await files.write("/out/.git/hooks/pre-commit.md", "x");
    expect(asked.map(({ operation, path }) => `${operation} ${path}`)).toEqual([
      "write /asked/a",
      "write /asked/a",
      "delete /asked/a",
      "write /asked/b",
      "write /asked/d",
      "delete /asked/b",
      "write /out/.git/hooks/pre-commit.md",
    ]);
    expect(asked.at(-1)?.hostExecuted).toMatch(/git/);
    // It would take the hook with it.
    asked.length = 0;
    await files.delete("/out/.git", { recursive: true });
    expect(asked[0]?.hostExecuted).toMatch(/git/);
  });

  it("can be widened, directory by directory, by what another sandbox has", async () => {
    const few = sandbox.derive({ allowRead: "/in" });
    const grants: string[] = [];
    const answers: (boolean | "once")[] = [];
    using dynamic = openFiles(few, {
      backend,
      approve: () => true,
      dynamic: {
        from: sandbox,
        approve: ({ operation, path }) => {
          grants.push(`${operation} ${path}`);
          return answers.shift() ?? false;
        },
      },
    });
    await expect(dynamic.read("/out/a.md")).rejects.toMatchObject({ code: "PATH_NOT_IN_SANDBOX" });
    answers.push("once");
    await dynamic.write("/out/sub/a.md", "x");
    await expect(dynamic.read("/out/sub/a.md")).rejects.toMatchObject({ code: "PATH_NOT_IN_SANDBOX" });
    answers.push(true);
    expect(await dynamic.read("/out/sub/a.md")).toBe("x");
    expect(dynamic.sandbox.readableRoots).toEqual(["/in", "/out/sub"]);
    answers.push(true);
    await dynamic.write("/out/sub/a.md", "y");
    expect(await dynamic.read("/out/sub/a.md")).toBe("y");
    await expect(dynamic.write("/out/sub/a.exe", "y")).rejects.toMatchObject({ code: "SUFFIX_NOT_ALLOWED" });
    // The nearest directory that is there; a refusal is asked about again.
    expect(grants).toEqual([
      "grant_read /out",
      "grant_write /out",
      "grant_read /out/sub",
      "grant_read /out/sub",
      "grant_write /out/sub",
    ]);
    // What the other sandbox does not have is not asked for, and neither is what it never writes.
    grants.length = 0;
    for (const refused of [dynamic.read("/etc/passwd"), dynamic.write("/in/a", "x"), dynamic.write("/sealed/a", "x")])
      await expect(refused).rejects.toMatchObject({ code: expect.stringMatching(/^(PATH_|PERMISSION)/) });
    expect(grants).toEqual([]);
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
      for (const refused of [files.read(path), files.resolve(path), sandbox.resolve(path)])
        await expect(refused).rejects.toMatchObject({ code: "PATH_NOT_IN_SANDBOX", reason: /leads out/ });
    }
    await expect(files.write("/out/up/new.md", "x")).rejects.toThrow(/through links/);
    expect(await files.info("/in/etc")).toMatchObject({ type: "link", readable: false, writable: false });
    expect(fs.readdirSync(host("asked"))).toEqual([]);
  });

  it("show what a worker's file tools show: what may not be read is counted, and no more", async () => {
    for (const name of ["a.md", "b.exe", "large.md"]) fs.writeFileSync(host(`out/${name}`), name.repeat(200));
    fs.writeFileSync(host("out/a.md"), "x");
    using files = openFiles(sandbox, { backend: "host" });
    const { entries, hint } = await files.list("/out");
    expect(entries.map(({ path }) => path)).toEqual(["/out/a.md"]);
    expect(hint).toMatch(/1 with another suffix.*1 too large/);
    expect((await files.list("/out", { max: 1 })).truncated).toBe(false);
    await expect(files.info("/out/b.exe")).rejects.toMatchObject({ code: "SUFFIX_NOT_ALLOWED" });
    await expect(files.info("/out/large.md")).rejects.toMatchObject({ code: "FILE_TOO_LARGE" });
    expect([await files.exists("/out/b.exe"), await files.exists("/out/a.md")]).toEqual([false, true]);
  });

  it("are not written where changes are staged", async () => {
    using files = openFiles(sandbox, { backend: "host" });
    for (const path of ["/staged/a", "/dropped/a"])
      await expect(files.write(path, "x")).rejects.toThrow(/staged.*openProject/s);
    using memory = openFiles(sandbox, { backend: "memory" });
    expect(await memory.write("/staged/a", "x")).toEqual({ bytes: 1, created: true });
  });
});

describe("the files of a sandbox in a store of the program's own", () => {
  it("need six operations on text", async () => {
    const stored = new Map<string, string>([["/store/in/doc.txt", "stored"]]);
    const isFolder = (path: string) => [...stored.keys()].some((one) => one.startsWith(`${path}/`));
    const backend = {
      read: async (path: string) => {
        const content = stored.get(path);
        if (content === undefined) throw new Error(`${path} is no file`);
        return content;
      },
      write: async (path: string, content: string) => void stored.set(path, content),
      delete: async (path: string) => void stored.delete(path),
      exists: async (path: string) => stored.has(path) || isFolder(path),
      list: async (path: string) => [
        ...new Set(
          [...stored.keys()]
            .filter((one) => one.startsWith(`${path}/`))
            .map((one) => one.slice(path.length + 1).split("/")[0] ?? ""),
        ),
      ],
      mkdir: async () => {},
    };
    const mounts = { in: { host: "/store/in" }, out: { host: "/store/out", mode: "rw", approval: free } } as const;
    using files = openFiles(sandboxOf({ mounts }), { backend });
    expect(await files.read("/in/doc.txt")).toBe("stored");
    await files.write("/out/a/b.txt", "one");
    await files.append("/out/a/b.txt", " two");
    await files.edit("/out/a/b.txt", [{ old: "one", new: "1" }]);
    expect(stored.get("/store/out/a/b.txt")).toBe("1 two");
    expect((await files.list("/out", { pattern: "**" })).entries.map(({ path }) => path)).toEqual([
      "/out/a",
      "/out/a/b.txt",
    ]);
    await expect(files.write("/in/doc.txt", "x")).rejects.toMatchObject({ code: "PATH_NOT_WRITABLE" });
    await files.delete("/out/a/b.txt");
    expect([...stored.keys()]).toEqual(["/store/in/doc.txt"]);
  });
});

describe("the files of a sandbox in memory", () => {
  it("begin empty, are no one else's, and hold so much", { timeout: 60_000 }, async () => {
    const host = `/nowhere-${process.pid}`;
    const roomy = sandboxOf({ mounts: { m: { host, mode: "rw", approval: free } } });
    using files = openFiles(roomy, { backend: "memory" });
    using others = openFiles(roomy, { backend: "memory" });
    const large = Buffer.alloc(60 << 20);
    for (const name of ["a", "b", "c", "d"]) await files.write(`/m/${name}`, large);
    await expect(files.write("/m/e", large)).rejects.toThrow(/would hold more than 256 MiB/);
    await files.write("/m/d", "small");
    await files.write("/m/e", large);
    expect((await others.list("/m")).entries).toEqual([]);
    expect(fs.existsSync(host)).toBe(false);
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
