import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { placeOfEntry, wantedIn } from "../../src/git/tree-archive.ts";
import { covers } from "../../src/sandbox/virtual-path.ts";
import { at } from "../sandbox/sandboxes.ts";
import { repoAt } from "./worker-side.ts";

const notes = at("/notes");

describe("a path of a repository", () => {
  it.each([
    "a.md",
    "docs/ä b.md",
    ".gitignore",
    ".github/x",
    "a..b",
    "git",
    "x.git",
    "git~x",
    "-n",
    "c:a",
    "docs/.gitattributes",
  ])("%j is a place below its directory", (path) => {
    expect(placeOfEntry(notes, path)).toEqual({ ok: true, path: `/notes/${path}` });
  });

  it.each([
    ".git",
    ".git/hooks/pre-commit",
    "docs/.git/config",
    ".GIT/config",
    ".Git",
    "git~1/config",
    "GIT~2",
    ".git /config",
    ".git./config",
    ".git . ./x",
    ".git::$INDEX_ALLOCATION/config",
    ".git:x",
    ".g\u200cit/config",
    "\ufeff.git",
    ".gi\u206ft",
    "．git/config",
  ])("%j is inside of git's own directory, or another git would think so", (path) => {
    expect(placeOfEntry(notes, path)).toEqual({ ok: false, fault: "is inside of git's own directory" });
  });

  it.each([
    "",
    ".",
    "..",
    "../x",
    "a/../../x",
    "a//b",
    "/etc/passwd",
    "a/",
    "a\\b",
    "..\\x",
    "a\nb",
    "a\0b",
    `${"x".repeat(256)}`,
  ])("%j is none", (path) => {
    expect(placeOfEntry(notes, path).ok).toBe(false);
  });

  it("never is a place elsewhere, whatever it holds", () => {
    const part = fc.oneof(
      fc.constantFrom(".", "..", "", ".git", "a", "~", "c:", "\\", "notes"),
      fc.string({ unit: "binary" }),
    );
    fc.assert(
      fc.property(fc.array(part, { maxLength: 6 }), (parts) => {
        const place = placeOfEntry(notes, parts.join("/"));
        if (!place.ok) return;
        expect(place.path).toBe(`/notes/${parts.join("/")}`);
        expect(covers(notes, place.path)).toBe(true);
        expect(parts.some((name) => name === ".." || name.toLowerCase() === ".git")).toBe(false);
      }),
      { numRuns: 2000 },
    );
  });

  it("that a worker names may be absolute where it lies below the repository's directory", () => {
    const repo = repoAt("/srv/r.git", { at: at("/work/notes") });
    expect(wantedIn(repo, "/work/notes/a/../b")).toEqual({ entry: "b", path: "/work/notes/b" });
    expect(wantedIn(repo, "./b/")).toEqual({ entry: "b", path: "/work/notes/b" });
    expect(wantedIn(repo, "/work/notes/")).toEqual({ entry: "", path: "/work/notes" });
    for (const raw of ["/work/notes-evil/a", "/work", "b/../c", "/work/notes/.git/config", ".git/config"])
      expect(() => wantedIn(repo, raw)).toThrow(/cannot be a path of the repository notes/);
  });
});
