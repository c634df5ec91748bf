import fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import {
  type DeriveRequest,
  type FileSandbox,
  FileTooLargeError,
  PathNotInSandboxError,
  PathNotWritableError,
  SandboxPermissionEscalationError,
  SuffixNotAllowedError,
  sandboxOf,
} from "../../src/sandbox.ts";
import { temporaryFolder } from "../files/temporary-folder.ts";

const program = (readonly = false): FileSandbox => sandboxOf({ root: { host: "/host", readonly } });
const named = (): FileSandbox =>
  sandboxOf({
    mounts: {
      data: { host: "/srv/data" },
      out: { host: "/srv/out", mode: "rw", suffixes: ["md"], maxFileBytes: 10 },
    },
  });

function escalation(parent: FileSandbox, request: DeriveRequest): SandboxPermissionEscalationError {
  try {
    parent.derive(request, "child");
  } catch (error) {
    if (error instanceof SandboxPermissionEscalationError) return error;
    throw error;
  }
  throw new Error("it was derived");
}

describe("a sandbox of one root", () => {
  it("has one root to read and, if it may, to write", () => {
    const sandbox = program();
    expect([sandbox.readableRoots, sandbox.writableRoots]).toEqual([["/"], ["/"]]);
    expect(program(true).writableRoots).toEqual([]);
  });

  it.each(["../x", "/a/../../x", "C:/x", "~/x", "a\\b", "a\0b", ""])("is not left by %j", async (path) => {
    const sandbox = program();
    expect([sandbox.canRead(path), sandbox.canWrite(path), sandbox.access(path)]).toEqual([false, false, "none"]);
    await expect(sandbox.resolve(path)).rejects.toThrow(/Readable paths: \//);
    expect(sandbox.checkRead(path)?.code).toBe("PATH_NOT_IN_SANDBOX");
    expect(sandbox.checkWrite(path)?.code).toBe("PATH_NOT_IN_SANDBOX");
  });

  it("derives nothing from nothing, a reader from `allowRead`, and a writer from `allowWrite`", async () => {
    const empty = program().derive();
    expect([empty.canRead("/src/a.py"), empty.readableRoots]).toEqual([false, []]);
    const reader = program().derive({ allowRead: "/src" });
    expect([reader.canRead("/src/a.py"), reader.canWrite("/src/a.py")]).toEqual([true, false]);
    await expect(reader.resolve("/docs/x.md")).rejects.toThrow(/Readable paths: \/src/);
    expect(program().derive({ inherit: true, allowRead: [] }).readableRoots).toEqual([]);
    const writer = program().derive({ allowWrite: ["/out"], allowRead: ["/out", "/src"] });
    expect([writer.readableRoots, writer.writableRoots]).toEqual([["/out", "/src"], ["/out"]]);
    expect(program().derive({ inherit: true, readonly: true }).writableRoots).toEqual([]);
  });

  it("refuses `readonly: false` under a parent that only reads", () => {
    expect(escalation(program(true), { inherit: true, readonly: false }).violations).toMatchObject([
      { code: "READONLY_ESCALATION" },
    ]);
  });
});

describe("a sandbox of named directories", () => {
  it("takes every way of writing a path", () => {
    expect(["/out/a.md", "out/a.md", "out:a.md"].map((path) => named().canWrite(path))).toEqual(Array(3).fill(true));
    expect(["out", "out:", "/out"].map((allowWrite) => named().derive({ allowWrite }).writableRoots)).toEqual(
      Array(3).fill(["/out"]),
    );
  });

  it("says which file may not be read or written, and what may", () => {
    const sandbox = named();
    expect(sandbox.checkRead("/out/a.md")).toBeNull();
    expect(sandbox.checkRead("/out/a.pdf")?.message).toContain("Allowed suffixes: .md");
    expect(sandbox.checkWrite("/out/a.md", { size: 11 })?.code).toBe("FILE_TOO_LARGE");
    expect(sandbox.checkWrite("/data/a")?.message).toContain("Writable paths: /out");
    expect(named().canRead("/data-evil/a")).toBe(false);
  });

  it("answers what reading and writing would do: suffix, size and what is blocked count", () => {
    const approval = { write: "blocked", delete: "blocked" } as const;
    const sealed = sandboxOf({ mounts: { sealed: { host: "/srv/sealed", mode: "rw", approval } } });
    expect([sealed.canRead("/sealed/a"), sealed.canWrite("/sealed/a")]).toEqual([true, false]);
    expect(sealed.checkWrite("/sealed/a")?.code).toBe("PERMISSION");
    const sandbox = named();
    expect([sandbox.canRead("/out/a.pdf"), sandbox.canWrite("/out/a.pdf")]).toEqual([false, false]);
    expect([sandbox.canRead("/out/a.md"), sandbox.canRead("/out/a.md", { size: 11 })]).toEqual([true, false]);
    expect([sandbox.canWrite("/out/a.md"), sandbox.canWrite("/out/a.md", { size: 11 })]).toEqual([true, false]);
    expect(sandbox.canRead("/out/sub", { directory: true })).toBe(true);
  });

  it("tells all violations at once, of paths that are none and of those that the parent lacks", () => {
    const error = escalation(named(), {
      allowRead: ["/data", "../up", "/nowhere"],
      allowWrite: ["/data"],
      network: true,
    });
    expect(error.violations.map(({ code }) => code).toSorted()).toEqual([
      "NETWORK_NOT_AVAILABLE",
      "PATH_NOT_AVAILABLE",
      "PATH_NOT_AVAILABLE",
      "WRITE_NOT_AVAILABLE",
    ]);
    for (const said of ["../up", "/nowhere", "/data", "/out"]) expect(error.message).toContain(said);
  });

  it.each([{ allowRead: "../up" }, { allowWrite: ["/out", "C:/x"] }, { inherit: true, workingDir: "~/x" }])(
    "refuses a child that asks well but for a text that is no path: %j",
    (request) => {
      expect(escalation(named(), request).violations).toMatchObject([{ code: "PATH_NOT_AVAILABLE" }]);
    },
  );

  it("keeps constraints, and names who took something away, through generations", () => {
    const child = named().derive({ allowRead: ["/out/sub", "/data"] }, "first");
    expect(child.checkRead("/out/sub/a.pdf")?.code).toBe("SUFFIX_NOT_ALLOWED");
    expect(() => child.derive({ allowWrite: "/out/sub" }, "second")).toThrow(/first/);
    expect(child.derive({ zones: [{ name: "data" }] }).readableRoots).toEqual(["/data"]);
  });

  it("refuses with errors that a program can tell apart", async () => {
    const sandbox = named();
    for (const path of ["/elsewhere", "/"])
      await expect(sandbox.resolve(path), path).rejects.toThrow(PathNotInSandboxError);
    expect(sandbox.checkRead("/elsewhere")).toBeInstanceOf(PathNotInSandboxError);
    expect(sandbox.checkWrite("/data/a")).toBeInstanceOf(PathNotWritableError);
    expect(sandbox.checkWrite("/out/a.pdf")).toBeInstanceOf(SuffixNotAllowedError);
    expect(sandbox.checkRead("/out/a.md", { size: 11 })).toBeInstanceOf(FileTooLargeError);
  });

  it("stands relative paths on its working directory, and hands on what it is as plain data", () => {
    const child = named().derive({ inherit: true, workingDir: "/out" });
    expect(child.canWrite("a.md")).toBe(true);
    expect(JSON.parse(JSON.stringify(child.data))).toEqual(child.data);
  });
});

describe("the host path that a sandbox resolves", () => {
  it("is below its mount, need not exist, and leads through no link", async () => {
    using folder = temporary();
    const { path } = folder;
    for (const name of ["real", "other"]) fs.mkdirSync(join(path, name));
    fs.writeFileSync(join(path, "real/a.md"), "");
    fs.symlinkSync("real", join(path, "near"));
    fs.symlinkSync("/etc", join(path, "real/etc"));
    fs.symlinkSync("../other", join(path, "real/up"));
    const root = sandboxOf({ root: { host: path } });
    expect(await root.resolve("/near/new/b.md")).toBe(join(path, "real/new/b.md"));
    expect(await root.resolve("etc/passwd")).toBe(join(path, "etc/passwd"));
    const one = sandboxOf({ mounts: { data: { host: join(path, "real") } } });
    expect(await one.resolve("data:a.md")).toBe(join(path, "real/a.md"));
    for (const away of ["/data/etc", "/data/etc/passwd", "/data/up", "/data/up/new"])
      await expect(one.resolve(away), away).rejects.toMatchObject({ code: "PATH_NOT_IN_SANDBOX", path: away });
  });
});

function temporary(): { readonly path: string } & Disposable {
  const { path, remove } = temporaryFolder();
  return { path, [Symbol.dispose]: remove };
}

describe("sandboxOf", () => {
  it.each([
    ["a relative host path", { mounts: { a: { host: "srv" } } }],
    ["a name that is no directory", { mounts: { "a/b": { host: "/srv" } } }],
    ["a name of the cell's own", { mounts: { proc: { host: "/srv" } } }],
  ])("refuses %s", (_, declaration) => {
    expect(() => sandboxOf(declaration)).toThrow(RangeError);
  });

  it("refuses both forms at once, also where the compiler does not look", () => {
    const both = { root: { host: "/a" }, mounts: {} } as unknown as Parameters<typeof sandboxOf>[0];
    expect(() => sandboxOf(both)).toThrow(/not both/);
  });

  it("refuses what it does not know, so that no restriction is left out by a spelling", () => {
    const mounts = { data: { host: "/srv/data", mode: "rw" } };
    const declared = (given: object) => () => sandboxOf(given as never);
    const mount = (more: object) => declared({ mounts: { data: { ...mounts.data, ...more } } });
    expect(mount({ approval: "blocked" })).toThrow(RangeError);
    expect(mount({ approval: { wirte: "blocked" } })).toThrow(/`wirte`, did you mean `write`\?/);
    expect(mount({ approval: { everything: "blocked" } })).toThrow(
      /`everything`; there are: read, write, delete, call/,
    );
    expect(mount({ approval: { write: "never" } })).toThrow(/pre_approved, ask, blocked/);
    expect(mount({ max_file_bytes: 5 })).toThrow(/`max_file_bytes`/);
    expect(mount({ mode: "rwx" })).toThrow(/ro, rw/);
    expect(declared({ mounts, limit: {} })).toThrow(/`limit`/);
    expect(declared({ mounts, limits: { memory: "64m" } })).toThrow(/`memory`.*memoryBytes/);
    expect(declared({ root: { host: "/srv", readOnly: true } })).toThrow(/`readOnly`/);
    const parent = sandboxOf({ mounts: { data: { host: "/srv/data", mode: "rw" } } });
    const derived = (request: object) => () => parent.derive({ inherit: true, ...request } as never);
    expect(derived({ readOnly: true })).toThrow(RangeError);
    expect(derived({ approval: "blocked" })).toThrow(/map of read, write, delete, call/);
    expect(derived({ limits: { memory: 1 } })).toThrow(/`memory`/);
    expect(derived({ policy: "untrusted" })).toThrow(/`policy`.*loadPolicy/);
    expect(derived({ network: "none" })).toThrow(/`network`/);
    expect(() => parent.derive({ zones: [{ name: "data", mdoe: "rw" }] } as never)).toThrow(/`mdoe`/);
  });

  it("takes rules of a network as texts and as data, and refuses what is none", () => {
    const rule = { to: "API.example.org:443", methods: ["get"], paths: ["/v1/**"] };
    const parent = sandboxOf({ mounts: {}, network: { allow: ["example.org:443", rule], limits: { requests: 5 } } });
    const api = { to: "api.example.org:443", methods: ["GET"], paths: ["/v1/**"] };
    expect(parent.data.network).toEqual({ allow: [api, { to: "example.org:443" }], limits: { requests: 5 } });
    expect(parent.derive({ network: { allow: ["EXAMPLE.org:443"] } }).data.network).toEqual({
      allow: [{ to: "example.org:443" }],
      limits: { requests: 5 },
    });
    expect(parent.derive({ network: parent.data.network }).data.network).toEqual(parent.data.network);
    expect(escalation(parent, { network: { allow: [{ ...rule, methods: ["POST"] }] } }).violations).toMatchObject([
      { code: "NETWORK_NOT_AVAILABLE", exceeding: [{ rule: { methods: ["POST"] }, term: "methods" }], by: "project" },
    ]);
  });

  it.each([
    [{ allow: ["example.org"] }, /`to` of rule 1 of `network` of the request: .*port is missing/],
    [
      { allow: ["a.org:1", { to: "b.org:1", method: ["GET"] }] },
      /rule 2 of .* has no `method`, did you mean `methods`/,
    ],
    [{ allow: [{ to: "b.org:1", methods: [] }] }, /`methods` of rule 1 .* not empty/],
    [{ allow: [{ to: "b.org:1", methods: "GET" }] }, /`methods` of rule 1 .* list/],
    [{ allow: [{ to: "b.org:1", paths: ["a"] }] }, /`paths` of rule 1 .*: must begin with/],
    [{ allow: [{ to: "b.org:1", addresses: ["a"] }] }, /`addresses` of rule 1 .*: must be addresses/],
    [{ allow: [{ to: "b.org:1", set: { host: { secret: "a" } } }] }, /`host` in `set` of rule 1 .* cannot be set/],
    [{ allow: [{ to: "b.org:1", set: { a: "sk" } }] }, /`a` in `set` of rule 1 .* must be \{ secret: NAME \}/],
    [{ allow: [{ to: "b.org:1", tls: true }] }, /`tls` of rule 1 .* only be false/],
    [{ allow: [{ to: "10.0.0.1:1" }] }, /is not public/],
    [{ allow: [{ to: "b.org:443", methods: ["GET"] }, "b.org:80"] }, /rule 2 of .* would both be/],
    [{ allow: [5] }, /rule 1 of .* must be `host:port`/],
    [{ allow: "a.org:1" }, /must be true, false or/],
    [{ allow: [], limit: {} }, /has no `limit`/],
    [{ allow: [], limits: { upload: 5 } }, /`limits` of .* has no `upload`/],
    [{ allow: [], dynamic: { within: ["a"], max: 1 } }, /`within` of `dynamic`.*port is missing/],
    [{ allow: [], dynamic: { within: ["a.org:1"] } }, /`max` of `dynamic`.* number/],
    ["none", /must be true, false or/],
  ])("refuses the network %j", (network, message) => {
    const parent = sandboxOf({ mounts: {}, network: true });
    expect(() => parent.derive({ network } as never)).toThrow(message);
    expect(() => sandboxOf({ mounts: {}, network } as never)).toThrow(RangeError);
  });

  it("refuses a declaration that its policy does not allow, and does not use the rest of it", () => {
    const { policy } = sandboxOf({ mounts: {} }).data;
    const strict = { ...policy, network: false, maxLimits: { ...policy.maxLimits, pids: 5 } } as const;
    expect(() => sandboxOf({ mounts: {}, network: true, limits: { pids: 6 }, policy: strict })).toThrow(
      SandboxPermissionEscalationError,
    );
    expect(sandboxOf({ mounts: {}, limits: { pids: 5 }, policy: strict }).data.limits.pids).toBe(5);
  });

  it("gives no network that was not said, and lets a child have at most the limits", () => {
    const parent = sandboxOf({ mounts: {}, limits: { timeoutMs: 1000 } });
    expect(parent.data.network).toBe(false);
    expect(escalation(parent, { limits: { timeoutMs: 2000 } }).violations).toMatchObject([{ code: "LIMIT_TOO_LARGE" }]);
  });
});
