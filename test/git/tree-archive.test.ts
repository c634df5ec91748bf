import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { archiveOf, placeOfEntry, wantedIn } from "../../src/git/tree-archive.ts";
import { covers } from "../../src/sandbox/virtual-path.ts";
import { at } from "../sandbox/sandboxes.ts";
import { bareRemote, type Remote } from "./remote.ts";
import { never, repoAt } from "./worker-side.ts";

let remote: Remote;
let place: string;

beforeEach(() => {
  remote = bareRemote({ "a.txt": "one\n", "src/b.txt": "b\n" });
  place = mkdtempSync(join(tmpdir(), "corral-unpacked-"));
});
afterEach(() => {
  remote.remove();
  rmSync(place, { recursive: true, force: true });
});

/** The commit's archive, unpacked; answers with what is in it: `-rw-r--r-- path` a line. */
async function unpacked(revision = "main", cwd = remote.path): Promise<string[]> {
  await using archive = await archiveOf(revision, { cwd, signal: never });
  execFileSync("tar", ["-xf", archive.path, "-C", place]);
  const list = execFileSync("tar", ["-tvf", archive.path, "--numeric-owner"]).toString().trim().split("\n");
  return list.map((line) => line.replace(/^(\S+) .*?\d\d:\d\d /, "$1 "));
}

const read = (path: string): string => readFileSync(join(place, path), "utf8");
const reasonOf = async (revision: string, cwd = remote.path): Promise<string> =>
  await archiveOf(revision, { cwd, signal: never }).then(
    () => "it was archived",
    (error: Error) => error.message,
  );

describe("the archive of a commit", () => {
  it("has its files with their modes, its links as links, and nothing of git", async () => {
    remote.commitRaw([
      { mode: "100755", content: "#!/bin/sh\n", path: "run.sh" },
      { mode: "120000", content: "/etc/passwd", path: "link" },
      { mode: "100644", content: "b\n", path: "src/b.txt" },
    ]);
    expect(await unpacked()).toEqual([
      "lrwxrwxrwx link -> /etc/passwd",
      "-rwxr-xr-x run.sh",
      "drwxr-xr-x src/",
      "-rw-r--r-- src/b.txt",
    ]);
  });

  it("has the files as they are in the commit, whatever its attributes and the configuration of the repository say", async () => {
    const mark = join(place, "filter-ran");
    remote.git("config", "filter.evil.smudge", `touch ${mark}; cat`);
    const files = {
      "subst.txt": "$Format:%H$ $Id$\n",
      "left-out.txt": "x\n",
      "lines.txt": "a\nb\n",
      "big.bin": "pointer\n",
    };
    remote.commit({
      ...files,
      "coded.txt": "y\n",
      ".gitattributes": [
        "[attr]everything filter=evil",
        "subst.txt export-subst ident",
        "left-out.txt export-ignore",
        "lines.txt text eol=crlf",
        "*.bin everything",
      ].join("\n"),
      "src/.gitattributes": "* export-ignore\n",
    });
    // What git does by itself, so that this test shows what is kept from it.
    const plain = execFileSync("git", ["archive", "main"], { cwd: remote.path });
    expect(existsSync(mark)).toBe(true);
    rmSync(mark);
    const names = execFileSync("tar", ["-t"], { input: plain }).toString();
    expect(names).not.toContain("left-out.txt");

    const list = await unpacked();
    expect(existsSync(mark)).toBe(false);
    for (const [path, content] of Object.entries(files)) expect(read(path)).toBe(content);
    expect(list).toContain("-rw-r--r-- src/b.txt");
  });

  it("is that of the named commit, also from a folder of a work tree, and is removed after its use", async () => {
    const first = remote.git("rev-parse", "main");
    remote.commit({ "a.txt": "two\n" });
    const work = join(place, "work");
    execFileSync("git", ["clone", "--quiet", "--no-checkout", remote.path, work]);
    let path = "";
    {
      await using archive = await archiveOf(first, { cwd: work, signal: never });
      path = archive.path;
      expect(archive.commit).toBe(first);
      expect(execFileSync("tar", ["-xOf", path, "a.txt"]).toString()).toBe("one\n");
    }
    expect(existsSync(dirname(path))).toBe(false);
  });

  it("works for a repository of SHA-256", async () => {
    const repository = join(place, "repository");
    const git = (...args: string[]): string => execFileSync("git", args, { cwd: repository }).toString();
    execFileSync("git", ["init", "--quiet", "--object-format=sha256", repository]);
    writeFileSync(join(repository, "c.txt"), "c\n");
    git("add", ".");
    git("-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "--quiet", "--message", "one");
    expect(await unpacked("HEAD", repository)).toEqual(["-rw-r--r-- c.txt"]);
  });

  it("has an empty directory for a submodule", async () => {
    const commit = remote.git("rev-parse", "main");
    const tree = treeOf(`160000 commit ${commit}\tvendor\n`);
    expect(await unpacked(commitOf(tree))).toEqual(["drwxr-xr-x vendor/"]);
  });

  it.each([".git", ".GIT", "git~1", "..", "."])("is refused for a tree that has %s", async (name) => {
    const hooks = treeOf(`100644 blob ${remote.git("rev-parse", "main:a.txt")}\tpre-commit\n`);
    const commit = commitOf(treeOf(`040000 tree ${hooks}\t${name}\n`));
    expect(await reasonOf(commit)).toMatch(/has a file '.*pre-commit', which is (inside of git's own|not a plain)/);
  });

  it("is refused for a tree that would be larger than any disk, before anything is written", async () => {
    let tree = treeOf(`100644 blob ${remote.git("rev-parse", "main:a.txt")}\tf\n`);
    for (let level = 0; level < 12; level += 1) {
      tree = treeOf(Array.from({ length: 10 }, (_, index) => `040000 tree ${tree}\td${index}\n`).join(""));
    }
    expect(await reasonOf(commitOf(tree))).toContain("too many or too large: at most 200000 files and 2 GiB");
  });

  it("is refused for what is no commit of the repository, with the repository", async () => {
    const none = /has no commit .*: fetch it first/;
    for (const revision of ["0".repeat(40), "--output=/tmp/x", "main:a.txt", "", "nowhere"]) {
      expect(await reasonOf(revision)).toMatch(none);
    }
    expect(await reasonOf("main", place)).toContain("there is no git repository in");
  });
});

/** A tree from lines of `ls-tree`, of which git checks nothing. */
function treeOf(lines: string): string {
  return execFileSync("git", ["mktree", "--missing"], { cwd: remote.path, input: lines }).toString().trim();
}

function commitOf(tree: string): string {
  return remote.git("commit-tree", "-m", "a stranger's", tree);
}

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
