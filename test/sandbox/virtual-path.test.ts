import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { below, covers, joinVirtual, parseVirtualPath, ROOT } from "../../src/sandbox/virtual-path.ts";
import { at } from "./sandboxes.ts";

const mountNames = ["reports", "c"];

function place(raw: string, context: Parameters<typeof parseVirtualPath>[1] = { mountNames }): string {
  const parsed = parseVirtualPath(raw, context);
  return parsed.ok ? parsed.path : `refused: ${parsed.reason}`;
}

describe("parseVirtualPath", () => {
  it.each([
    ["/reports/a.md"],
    ["reports/a.md"],
    ["reports:a.md"],
    ["reports:/a.md"],
    ["//reports//./a.md"],
    ["/x/../reports/a.md"],
    ["reports/sub/../a.md/"],
  ])("takes %s for the same place", (raw) => {
    expect(place(raw)).toBe("/reports/a.md");
  });

  it("takes a bare name for the mount", () => {
    expect([place("reports"), place("reports:"), place("/reports/")]).toEqual(["/reports", "/reports", "/reports"]);
  });

  it("resolves relative paths against the working directory, and a mount's name before a colon against the root", () => {
    const context = { mountNames, workingDir: at("/work/here") };
    expect(place("a.md", context)).toBe("/work/here/a.md");
    expect(place("reports/a.md", context)).toBe("/work/here/reports/a.md");
    expect(place("reports:a.md", context)).toBe("/reports/a.md");
    expect(place("../../a", context)).toBe("/a");
    expect(place(".", context)).toBe("/work/here");
  });

  it("leaves a colon alone where no mount has the name before it", () => {
    expect(place("notes:today.md")).toBe("/notes:today.md");
    expect(place("/reports/a:b")).toBe("/reports/a:b");
  });

  it("knows a one-letter mount from a drive letter", () => {
    expect(place("c:a.md")).toBe("/c/a.md");
    expect(place("d:a.md")).toMatch(/drive letters/);
    expect(place("D:")).toMatch(/drive letters/);
  });

  it("takes ~ only for a declared home", () => {
    expect(place("~")).toMatch(/no home/);
    expect(place("~/a")).toMatch(/no home/);
    expect(place("~", { home: at("/home") })).toBe("/home");
    expect(place("~/a", { home: at("/home") })).toBe("/home/a");
    expect(place("~root/a", { home: at("/home") })).toMatch(/other users/);
    expect(place("./~$draft.docx")).toBe("/~$draft.docx");
  });

  it.each([
    ["..", /leave/],
    ["/..", /leave/],
    ["/reports/../../etc/passwd", /leave/],
    ["reports:../../x", /leave/],
    ["a\\b", /backslash/],
    ["C:\\Windows", /backslash/],
    ["\\\\server\\share", /backslash/],
    ["a\0b", /control/],
    ["a\nb", /control/],
    ["a\u0085b", /control/],
    ["a\ud800b", /Unicode/],
    ["", /empty/],
    [`/${"a/".repeat(2100)}`, /longer than 4096/],
    [`/${"é/".repeat(1400)}`, /longer than 4096/],
    ["a".repeat(256), /255/],
    ["é".repeat(128), /255/],
  ])("refuses %j", (raw, reason) => {
    expect(place(raw)).toMatch(reason);
  });

  it("counts the working directory in the length of the whole", () => {
    const workingDir = at(`/${"a/".repeat(1500)}`);
    expect(place("b/".repeat(600), { workingDir })).toMatch(/longer than 4096/);
  });

  it("never throws, and gives back only normalised absolute paths that mean themselves", () => {
    const pieces = fc.constantFrom("/", "..", ".", "~", ":", "\\", "\0", "reports", "c", "C:", "é", "a", "\ud800");
    const raws = fc.oneof(
      fc.string({ unit: "binary" }),
      fc.array(pieces).map((parts) => parts.join("")),
    );
    fc.assert(
      fc.property(raws, (raw) => {
        const parsed = parseVirtualPath(raw, { mountNames, workingDir: at("/work"), home: at("/home") });
        if (!parsed.ok) return parsed.reason.length > 0;
        const clean = /^\/$|^(\/[^/\\\p{Cc}]+)+$/u.test(parsed.path);
        const upwards = parsed.path.split("/").some((part) => part === "." || part === "..");
        return clean && !upwards && place(parsed.path) === parsed.path;
      }),
      { numRuns: 2000 },
    );
  });
});

describe("covers and below", () => {
  it("compares by whole components", () => {
    expect(covers(at("/data"), at("/data"))).toBe(true);
    expect(covers(at("/data"), at("/data/x"))).toBe(true);
    expect(covers(at("/data"), at("/data-evil"))).toBe(false);
    expect(covers(at("/data"), at("/dat"))).toBe(false);
    expect(covers(ROOT, at("/data"))).toBe(true);
  });

  it("gives the rest, which joins to the path again", () => {
    expect(below(at("/data"), at("/data/x/y"))).toBe("x/y");
    expect(below(ROOT, at("/data"))).toBe("data");
    expect(below(at("/data"), at("/data"))).toBe("");
    expect(below(at("/data"), at("/data-evil"))).toBeNull();
    expect(joinVirtual(at("/data"), "x/y")).toBe("/data/x/y");
    expect(joinVirtual(ROOT, "x")).toBe("/x");
  });

  it("does not join a rest that leads elsewhere", () => {
    expect(() => joinVirtual(at("/data"), "../etc")).toThrow(RangeError);
    expect(() => joinVirtual(at("/data"), "/etc")).toThrow(RangeError);
  });
});
