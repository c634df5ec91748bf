import { describe, expect, it } from "vitest";
import { canRead, canWrite, checkRead, checkWrite, hostPathOf } from "../../src/sandbox/access.ts";
import { PathNotInSandboxError } from "../../src/sandbox/errors.ts";
import { parseVirtualPath } from "../../src/sandbox/virtual-path.ts";
import { SandboxPermissionEscalationError } from "../../src/sandbox/wording.ts";
import { at, child, refusals, rooted, shown, zones } from "./sandboxes.ts";

describe("sandboxes of one root, derived level by level", () => {
  it("shows a program's directory as /", () => {
    expect(hostPathOf(rooted(), at("/src/main.py"))).toBe("/host/src/main.py");
    // In that namespace `/tmp/x` is a file of the program, so it can never mean the host's /tmp.
    expect(hostPathOf(rooted(), at("/tmp/x"))).toBe("/host/tmp/x");
  });

  it("lets an analyzer read its sources and nothing else", () => {
    const analyzer = child(rooted(), { allowRead: [at("/src")], readonly: true });
    expect(canRead(analyzer, at("/src/a.py"))).toBe(true);
    expect(canWrite(analyzer, at("/src/a.py"))).toBe(false);
    expect(checkRead(analyzer, at("/docs/x.md"))).toBeInstanceOf(PathNotInSandboxError);
  });

  it("refuses readonly: false under a readonly parent, with what would be valid", () => {
    const violations = refusals(rooted(true), { inherit: true, readonly: false });
    const error = new SandboxPermissionEscalationError(violations);
    expect(error.message).toMatch(/`readonly: false` is not possible.*the caller cannot write/);
    expect(error.message).toMatch(/Remove it, or set `readonly: true`/);
  });
});

describe("sandboxes of one root, at their edges", () => {
  it("1: relative and absolute paths mean the same in a root", () => {
    expect([at("src/a.py"), at("/src/a.py"), at("./src//a.py")]).toEqual(Array(3).fill("/src/a.py"));
  });

  it("2: a root is not escaped by .., drive letters or a host's home", () => {
    const escapes = ["../x", "/src/../../etc/passwd", "C:/Windows", "~/x", "~root/x"];
    expect(escapes.filter((raw) => parseVirtualPath(raw).ok)).toEqual([]);
    expect(hostPathOf(rooted(), at("/etc/passwd"))).toBe("/host/etc/passwd");
  });

  it("3: derive with nothing blocks everything", () => {
    const empty = child(rooted(), {});
    expect(["/", "/src", "/src/a.py"].some((path) => canRead(empty, at(path)))).toBe(false);
    expect(checkWrite(empty, at("/src/a.py"))?.message).toContain("Readable paths: none");
  });

  it.each([
    ["a root", rooted(), "/src"],
    ["named directories", zones({ out: "rw", other: "rw" }), "/out/reports"],
  ])("4: allow_read opens those prefixes only, in %s", (_, parent, prefix) => {
    const narrowed = child(parent, { allowRead: [at(prefix)] });
    expect(canRead(narrowed, at(`${prefix}/a`))).toBe(true);
    expect(canRead(narrowed, at(`${prefix}-evil/a`))).toBe(false);
    expect(canRead(narrowed, at("/other/a"))).toBe(false);
  });

  it("4: every way of writing an entry opens the same place", () => {
    const entries = ["/out/reports", "out/reports", "out:reports"].map((raw) => {
      const parsed = parseVirtualPath(raw, { mountNames: ["out"] });
      return parsed.ok ? shown(child(zones({ out: "rw" }), { allowRead: [parsed.path] })) : [];
    });
    expect(entries).toEqual(Array(3).fill(["/out/reports ro"]));
  });

  it("5: reads alone give no writes; writes alone imply reads", () => {
    const reader = child(rooted(), { allowRead: [at("/src")] });
    const writer = child(rooted(), { allowWrite: [at("/src")] });
    expect([canRead(reader, at("/src/a")), canWrite(reader, at("/src/a"))]).toEqual([true, false]);
    expect([canRead(writer, at("/src/a")), canWrite(writer, at("/src/a"))]).toEqual([true, true]);
  });

  it("6: inherit gives the parent's access, and lists narrow it", () => {
    expect(canWrite(child(rooted(), { inherit: true }), at("/anything"))).toBe(true);
    const narrowed = child(rooted(), { inherit: true, allowRead: [at("/src")] });
    expect([canRead(narrowed, at("/src/a")), canRead(narrowed, at("/docs"))]).toEqual([true, false]);
  });

  it("7: readonly goes down and never up; a sandbox that nobody derives stays as it is", () => {
    const parent = zones({ data: "ro", out: "rw" });
    const reader = child(parent, { inherit: true, readonly: true });
    expect(canWrite(reader, at("/out/a"))).toBe(false);
    expect(refusals(reader, { inherit: true, readonly: false })).toMatchObject([{ code: "READONLY_ESCALATION" }]);
    expect(shown(parent)).toEqual(["/data ro", "/out rw"]);
  });

  it("a callee never sees more than its caller, whatever its own file says", () => {
    const caller = child(rooted(), { allowRead: [at("/src")] }, "caller");
    expect(refusals(caller, { allowRead: [at("/docs")], allowWrite: [at("/src")] })).toMatchObject([
      { code: "PATH_NOT_AVAILABLE", asked: "/docs", by: "caller", valid: ["/src"] },
      { code: "WRITE_NOT_AVAILABLE", asked: "/src", by: "caller", valid: [] },
    ]);
  });
});
