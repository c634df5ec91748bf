import { describe, expect, it } from "vitest";
import type { ApprovalRequest } from "../../src/approval/approver.ts";
import { ApprovalMemory } from "../../src/approval/memory.ts";

const request = (more: Partial<ApprovalRequest>): ApprovalRequest => {
  return { run: "r", root: "r", worker: "w", operations: ["write"], paths: ["/drafts/a.md"], ...more };
};

/** A memory in which one request was approved for the session. */
function approvedFor(more: Partial<ApprovalRequest>, scope: "tree" | "session" = "session") {
  const memory = new ApprovalMemory();
  memory.remember(request(more), scope);
  return (later: Partial<ApprovalRequest>) => memory.scopeOf(request(later));
}

describe("ApprovalMemory", () => {
  it("knows the directory of what was approved, and all below", () => {
    const scopeOf = approvedFor({});
    for (const path of ["/drafts/a.md", "/drafts/b.md", "/drafts/sub/deep/c.md"])
      expect(scopeOf({ paths: [path] }), path).toBe("session");
  });

  it("does not know what lies beside or above that directory", () => {
    const scopeOf = approvedFor({ paths: ["/drafts/sub/a.md"] });
    for (const path of [
      "/drafts/a.md",
      "/drafts/sub",
      "/drafts",
      "/",
      "/drafts/sub-evil/a.md",
      "/drafts/subs",
      "/other/a",
    ])
      expect(scopeOf({ paths: [path] }), path).toBeNull();
  });

  it("is asked about another operation and another worker anew", () => {
    const scopeOf = approvedFor({});
    expect(scopeOf({ operations: ["delete"] })).toBeNull();
    expect(scopeOf({ operations: ["write", "delete"] })).toBeNull();
    expect(scopeOf({ operations: ["exec"] })).toBeNull();
    expect(scopeOf({ worker: "other" })).toBeNull();
  });

  it("covers a request only where every operation on every path of it was approved", () => {
    const memory = new ApprovalMemory();
    memory.remember(request({ operations: ["write", "delete"], paths: ["/a/1", "/b/1"] }), "session");
    memory.remember(request({ operations: ["write"], paths: ["/c/1"] }), "session");
    expect(memory.scopeOf(request({ operations: ["write", "delete"], paths: ["/a/2", "/b/2"] }))).toBe("session");
    expect(memory.scopeOf(request({ paths: ["/a/2", "/c/2"] }))).toBe("session");
    expect(memory.scopeOf(request({ operations: ["write", "delete"], paths: ["/a/2", "/c/2"] }))).toBeNull();
    expect(memory.scopeOf(request({ paths: ["/a/2", "/d/2"] }))).toBeNull();
  });

  it("never widens a path directly below / to all that there is", () => {
    const scopeOf = approvedFor({ paths: ["/out"] });
    expect(scopeOf({ paths: ["/out"] })).toBe("session");
    for (const path of ["/other", "/out/a", "/a/b", "/"]) expect(scopeOf({ paths: [path] }), path).toBeNull();
    expect(approvedFor({ paths: ["/"] })({ paths: ["/"] })).toBeNull();
  });

  it("keeps what was approved for one tree of runs to that tree", () => {
    const scopeOf = approvedFor({ root: "one" }, "tree");
    expect(scopeOf({ root: "one", run: "another" })).toBe("tree");
    expect(scopeOf({ root: "two" })).toBeNull();
  });

  it("puts approvals for the tree and for the session together", () => {
    const memory = new ApprovalMemory();
    memory.remember(request({ paths: ["/a/1"] }), "session");
    memory.remember(request({ paths: ["/b/1"] }), "tree");
    expect(memory.scopeOf(request({ paths: ["/a/2", "/b/2"] }))).toBe("tree");
    expect(memory.scopeOf(request({ paths: ["/a/2", "/b/2"], root: "other" }))).toBeNull();
  });

  it("knows a grant by its directory, reading and writing apart", () => {
    const scopeOf = approvedFor({ operations: ["grant_read"], directory: "/home/me/docs" });
    const read = (directory: string) => scopeOf({ operations: ["grant_read"], directory });
    expect(read("/home/me/docs")).toBe("session");
    expect(read("/home/me/docs/sub")).toBe("session");
    for (const other of ["/home/me", "/home/me/docs-evil", "/home/me/other", "/"])
      expect(read(other), other).toBeNull();
    expect(scopeOf({ operations: ["grant_write"], directory: "/home/me/docs" })).toBeNull();
    expect(scopeOf({ operations: ["grant_read"] })).toBeNull();
    expect(
      approvedFor({ operations: ["grant_read"], directory: "/" })({ operations: ["grant_read"], directory: "/" }),
    ).toBeNull();
  });

  it("knows a grant of the network by its host and port, and by the workers it goes through", () => {
    const to = "api.example.org:443";
    const scopeOf = approvedFor({ operations: ["grant_network"], paths: [], to, through: ["root", "w"] });
    const reach = (more: Partial<ApprovalRequest>) =>
      scopeOf({ operations: ["grant_network"], paths: [], to, through: ["root", "w"], ...more });
    expect(reach({})).toBe("session");
    for (const other of ["api.example.org:80", "example.org:443", "b.api.example.org:443", "*.example.org:443"])
      expect(reach({ to: other }), other).toBeNull();
    expect(reach({ through: ["other", "w"] })).toBeNull();
    expect(scopeOf({ operations: ["grant_read"], directory: to })).toBeNull();
    expect(scopeOf({ operations: ["grant_network"] })).toBeNull();
  });

  it("knows a command by its every character", () => {
    const scopeOf = approvedFor({ operations: ["exec"], paths: [], command: "ls -l" });
    const exec = (command: string) => scopeOf({ operations: ["exec"], paths: [], command });
    expect(exec("ls -l")).toBe("session");
    for (const other of ["ls", "ls -l ", "ls -l; rm -r /drafts", "LS -l"]) expect(exec(other), other).toBeNull();
    expect(scopeOf({ operations: ["exec"], paths: [] })).toBeNull();
  });

  it("never remembers a push, nor what is approved with one", () => {
    expect(approvedFor({ operations: ["push"] })({ operations: ["push"] })).toBeNull();
    expect(approvedFor({ operations: ["write", "push"] })({ operations: ["write"] })).toBeNull();
  });

  it("remembers nothing of paths that could mean others than they show", () => {
    for (const path of ["/drafts/../etc/a", "/drafts//a", "drafts/a", "/drafts/./a", "", "/drafts/a/", "/dr\nafts/a"]) {
      expect(approvedFor({ paths: [path] })({ paths: [path] }), path).toBeNull();
      expect(approvedFor({})({ paths: [path] }), path).toBeNull();
    }
  });

  it("covers nothing that names nothing", () => {
    expect(approvedFor({})({ paths: [] })).toBeNull();
    expect(approvedFor({})({ operations: [] })).toBeNull();
    expect(approvedFor({ paths: [] })({ paths: [] })).toBeNull();
  });

  it("asks each time about what lies very deep, and does not search for long", () => {
    const deep = `/${Array.from({ length: 2000 }, () => "d").join("/")}`;
    expect(approvedFor({ paths: [deep] })({ paths: [deep] })).toBeNull();
  });

  it("remembers nothing more once it is full", () => {
    const memory = new ApprovalMemory();
    const many = Array.from({ length: 10_000 }, (_, index) => `/d${index}/a`);
    memory.remember(request({ paths: many }), "session");
    memory.remember(request({ paths: ["/more/a"] }), "session");
    expect(memory.scopeOf(request({ paths: ["/more/a"] }))).toBeNull();
    expect(memory.scopeOf(request({ paths: many }))).toBe("session");
  });
});
