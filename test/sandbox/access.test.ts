import { describe, expect, it } from "vitest";
import {
  accessOf,
  canRead,
  canWrite,
  checkConsent,
  checkRead,
  checkWrite,
  governingMount,
  hostPathOf,
  parsePathIn,
  readablePaths,
  writablePaths,
} from "../../src/sandbox/access.ts";
import { at, child, mount, project } from "./sandboxes.ts";

const sandbox = project([
  mount("/data", "ro", { suffixes: [".md", ".tar.gz"], maxFileBytes: 100 }),
  mount("/data/out", "rw"),
  mount("/data/out/fixed", "ro"),
  mount("/data/out/fixed/log", "rw"),
]);

describe("access", () => {
  it("is what the longest mount prefix says, by whole components", () => {
    expect(governingMount(sandbox, at("/data/out/fixed/x"))?.path).toBe("/data/out/fixed");
    expect(governingMount(sandbox, at("/data/outer"))?.path).toBe("/data");
    expect(accessOf(sandbox, at("/data-evil/a.md"))).toBe("none");
    expect(accessOf(sandbox, at("/"))).toBe("none");
  });

  it("lets writing imply reading, and not the other way round", () => {
    expect([canRead(sandbox, at("/data/out/a")), canWrite(sandbox, at("/data/out/a"))]).toEqual([true, true]);
    expect([canRead(sandbox, at("/data/a.md")), canWrite(sandbox, at("/data/a.md"))]).toEqual([true, false]);
  });

  it("says of a suffix, a size and what is blocked what the operation says", () => {
    expect([canRead(sandbox, at("/data/a")), canRead(sandbox, at("/data/a.md"), { size: 101 })]).toEqual([
      false,
      false,
    ]);
    expect(canRead(sandbox, at("/data/a"), { directory: true })).toBe(true);
    const sealed = project([mount("/sealed", "rw", { approval: { write: "blocked", delete: "blocked" } })]);
    expect([canRead(sealed, at("/sealed/a")), canWrite(sealed, at("/sealed/a"))]).toEqual([true, false]);
    expect(checkConsent(sealed, at("/sealed/a"), "delete")?.message).toContain("deleting is blocked");
  });

  it("lists the topmost paths, and what is writable again below something read-only", () => {
    expect(readablePaths(sandbox)).toEqual(["/data"]);
    expect(writablePaths(sandbox)).toEqual(["/data/out", "/data/out/fixed/log"]);
  });

  it("knows where a path stands on the host, and nothing of what it does not show", () => {
    expect(hostPathOf(sandbox, at("/data/x/y"))).toBe("/host/data/x/y");
    expect(hostPathOf(sandbox, at("/data"))).toBe("/host/data");
    expect(hostPathOf(sandbox, at("/other"))).toBeNull();
  });
});

describe("parsePathIn", () => {
  it("reads a path as the sandbox means it", () => {
    const parent = project([mount("/data", "ro"), mount("/home", "rw")]);
    const worker = child(parent, { inherit: true, workingDir: at("/data/in") });
    const places = ["a", "data:a", "~/a"].map((raw) => parsePathIn(worker, raw));
    expect(places).toEqual(["/data/in/a", "/data/a", "/home/a"].map((path) => ({ ok: true, path })));
    expect(parsePathIn(sandbox, "~/a").ok).toBe(false);
    // A command's home is then the cell's own, in memory.
    expect(parsePathIn(child(parent, { allowRead: [at("/home/docs")] }), "~/docs/a").ok).toBe(false);
  });
});

describe("the checks", () => {
  it("answer null for what is allowed", () => {
    expect(checkRead(sandbox, at("/data/A.MD"), { size: 100 })).toBeNull();
    expect(checkRead(sandbox, at("/data/x.tar.gz"))).toBeNull();
    expect(checkWrite(sandbox, at("/data/out/anything"), { size: 10_000 })).toBeNull();
    expect(checkRead(sandbox, at("/data/folder"), { directory: true })).toBeNull();
  });

  it("answer with the refusal that an LLM can act on", () => {
    expect(checkRead(sandbox, at("/secret"))).toMatchObject({ code: "PATH_NOT_IN_SANDBOX", path: "/secret" });
    expect(checkRead(sandbox, at("/secret"))?.message).toContain("Readable paths: /data");
    expect(checkWrite(sandbox, at("/secret"))).toMatchObject({ code: "PATH_NOT_IN_SANDBOX" });
    expect(checkWrite(sandbox, at("/data/a.md"))?.code).toBe("PATH_NOT_WRITABLE");
    expect(checkWrite(sandbox, at("/data/a.md"))?.message).toContain("Writable paths: /data/out, /data/out/fixed/log");
    expect(checkRead(sandbox, at("/data/a.gz"))?.message).toContain("Allowed suffixes: .md, .tar.gz");
    expect(checkRead(sandbox, at("/data/a.md"), { size: 101 })?.code).toBe("FILE_TOO_LARGE");
  });

  it("say none where nothing can be read or written", () => {
    const empty = project([]);
    expect(checkRead(empty, at("/a"))?.message).toContain("Readable paths: none");
    expect(checkWrite(project([mount("/a", "ro")]), at("/a/x"))?.message).toContain("Writable paths: none");
  });
});
