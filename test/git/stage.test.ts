import { createHash } from "node:crypto";
import fs from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { bareRemote, type Remote } from "./remote.ts";
import { never, refusal, type WorkerSide, type WorkerSideOptions, workerSide } from "./worker-side.ts";

let remote: Remote;
const opened: WorkerSide[] = [];

beforeEach(() => {
  remote = bareRemote({ "a.md": "one\ntwo\n", "docs/b.md": "b\n", "run.sh": "#!/bin/sh\n" });
});
afterEach(async () => {
  for (const worker of opened.splice(0).toReversed()) await worker[Symbol.asyncDispose]();
  remote.remove();
});

async function open(options: WorkerSideOptions = {}): Promise<WorkerSide> {
  const worker = await workerSide(remote, options);
  opened.push(worker);
  return worker;
}

const ours = (worker: WorkerSide): string[] =>
  fs
    .readdirSync(join(worker.stateDir, "notes.git"), { recursive: true, encoding: "utf8" })
    .filter(
      (name) => name.startsWith("refs/corral/") && fs.statSync(join(worker.stateDir, "notes.git", name)).isFile(),
    );

describe("staging", () => {
  it("makes a commit of what changed, which stays on this machine until it is pushed", async () => {
    const w = await open();
    await w.pull();
    w.write("a.md", "one\n2\n");
    w.write("new/ä b.md", "new");
    fs.rmSync(join(w.dir, "docs/b.md"));
    const before = remote.git("rev-parse", "main");
    const staged = await w.stage(["a.md", "/notes/new/ä b.md", "docs/b.md", "run.sh"], "Say why\n\nAt length.");
    expect(staged.files).toEqual([
      { path: "/notes/a.md", change: "modified" },
      { path: "/notes/new/ä b.md", change: "added" },
      { path: "/notes/docs/b.md", change: "deleted" },
    ]);
    for (const line of ["-two\n", "+2\n", "+new\n", "-b\n", "deleted file mode 100644"])
      expect(staged.diff).toContain(line);
    expect(remote.git("rev-parse", "main")).toBe(before);

    await w.repository.push(staged.commit, never);
    expect(remote.git("rev-parse", "main")).toBe(staged.commit);
    expect(remote.files()).toEqual({ "a.md": "one\n2\n", "run.sh": "#!/bin/sh\n", "new/ä b.md": "new" });
    expect(remote.git("log", "-1", "--format=%an %ae|%cn|%B|%P")).toBe(
      `w w@corral.invalid|w|Say why\n\nAt length.\n|${before}`,
    );
  });

  it.each<[string, Record<string, string | Buffer>]>([
    ["long", { "a.md": "line\n".repeat(60_000), "docs/b.md": "mine\n" }],
    ["binary", { "a.md": Buffer.from([1, 0, 2]), "docs/b.md": "mine\n" }],
    ["not UTF-8", { "a.md": Buffer.from([0x61, 0xff, 0x0a]), "docs/b.md": "mine\n" }],
  ])("has a question that gives every file with its digest if the diff cannot show all: %s", async (_, contents) => {
    const w = await open();
    await w.pull();
    for (const [path, content] of Object.entries(contents)) w.write(path, content);
    fs.rmSync(join(w.dir, "run.sh"));
    const staged = await w.stage(["a.md", "docs/b.md", "run.sh"], "Say why\n\nAt length.");
    const digests = Object.entries(contents).map(([path, content]) => {
      const digest = createHash("sha256").update(content).digest("hex");
      return `modified /notes/${path} (${Buffer.byteLength(content)} bytes, SHA-256 ${digest})`;
    });
    expect(staged.question.split("\n").slice(0, 8)).toEqual([
      `commit ${staged.commit}`,
      ...["message: Say why", "message: ", "message: At length."],
      "all changed files, because the diff below does not show everything:",
      ...[...digests, "deleted /notes/run.sh"],
    ]);
    expect(staged.question.length).toBeLessThan(400_000);
  });

  it("has a question with the commit, the whole message and the whole diff", async () => {
    const w = await open();
    await w.pull();
    w.write("a.md", "one\n2\n");
    const { commit, question, diff } = await w.stage(["a.md"], "Binary files differ");
    expect(question).toBe(`commit ${commit}\nmessage: Binary files differ\n${diff}`);
  });

  it("names the author that the project names", async () => {
    const w = await open({ repo: { author: { name: "Notes", email: "notes@example.org" } } });
    w.write("n", "n");
    const { commit } = await w.stage(["n"]);
    await w.repository.push(commit, never);
    expect(remote.git("log", "-1", "--format=%an %ae", "main")).toBe("Notes notes@example.org");
  });

  it("makes the first commit of a branch that does not exist yet", async () => {
    const w = await open({ repo: { branch: "drafts/one" } });
    w.write("a/b", "x");
    const { commit, diff } = await w.stage(["a/b"]);
    expect(diff).toContain("+x");
    await w.repository.push(commit, never);
    expect(remote.files("drafts/one")).toEqual({ "a/b": "x" });
    expect(remote.git("rev-list", "--count", "drafts/one")).toBe("1");
  });

  it("keeps a file executable that is so in the repository, and makes room where a file becomes a directory", async () => {
    remote.commitRaw([
      { mode: "100755", content: "old", path: "run.sh" },
      { mode: "100644", content: "file", path: "x" },
    ]);
    const w = await open();
    await w.pull();
    w.write("run.sh", "new");
    fs.rmSync(join(w.dir, "x"));
    w.write("x/y", "y");
    expect(await refusal(w.stage(["x"]))).toMatch(/^FILE_SYSTEM: .*directory/);
    const { commit, files } = await w.stage(["run.sh", "x/y"]);
    expect(files).toContainEqual({ path: "/notes/x", change: "deleted" });
    await w.repository.push(commit, never);
    expect(remote.git("ls-tree", "-r", "--format=%(objectmode) %(path)", "main")).toBe("100755 run.sh\n100644 x/y");
  });

  it("tells of all that makes room for a file, and takes nothing away that was not pulled", async () => {
    const w = await open();
    w.write("docs", "now a file");
    expect(await refusal(w.stage(["docs"]))).toMatch(/^GIT_NOT_PULLED: .*'\/notes\/docs\/b.md'/);
    fs.rmSync(join(w.dir, "docs"));
    await w.pull();
    fs.rmSync(join(w.dir, "docs"), { recursive: true });
    w.write("docs", "now a file");
    expect((await w.stage(["docs"])).files).toEqual([
      { path: "/notes/docs", change: "added" },
      { path: "/notes/docs/b.md", change: "deleted" },
    ]);
  });

  it("has nothing to do with files that are in the repository as they are, and says so", async () => {
    const w = await open();
    await w.pull();
    expect(await refusal(w.stage(["a.md"]))).toMatch(/^GIT_NOTHING_NEW: /);
    expect(await refusal(w.stage(["a.md", "no.md"]))).toMatch(/^NOT_FOUND: '\/notes\/no.md' exists neither/);
    expect(await refusal(w.stage(["docs"]))).toMatch(/^FILE_SYSTEM: .*directory/);
    expect(await refusal(w.stage(["/notes"]))).toMatch(/^GIT_PATH: /);
    expect(await refusal(w.stage(["a.md"], " \n"))).toMatch(/^GIT_MESSAGE: /);
    expect(ours(w)).toEqual([]);
  });

  it("does not let an old copy undo what others did since: such a file must be pulled first", async () => {
    const w = await open();
    w.write("a.md", "an old copy\n");
    expect(await refusal(w.stage(["a.md"]))).toMatch(/^GIT_NOT_PULLED: .*'\/notes\/a.md'/);
    await w.pull();
    w.write("docs/b.md", "mine\n");
    remote.commit({ "docs/b.md": "theirs\n" });
    await w.pull({ paths: ["a.md"] });
    expect(await refusal(w.stage(["docs/b.md"]))).toMatch(/^GIT_NOT_PULLED: /);
    expect((await w.pull()).conflicts).toEqual(["/notes/a.md", "/notes/docs/b.md"]);
    expect((await w.stage(["docs/b.md"])).diff).toContain("-theirs\n+mine");
  });

  it("is not pushed over what somebody else pushed meanwhile", async () => {
    const w = await open();
    await w.pull();
    w.write("a.md", "mine\n");
    const { commit } = await w.stage(["a.md"]);
    const theirs = remote.commit({ "a.md": "theirs\n" });
    expect(await refusal(w.repository.push(commit, never))).toMatch(/^GIT_REJECTED: .*git_pull/);
    expect(remote.git("rev-parse", "main")).toBe(theirs);
  });

  it("reads no more than the sandbox lets the worker read", async () => {
    const w = await open({ mount: { suffixes: [".md"] } });
    w.write("key.pem", "secret");
    expect(await refusal(w.stage(["key.pem"]))).toMatch(/^SUFFIX_NOT_ALLOWED: /);
    // Not deleted from the repository either, since whether it is there is not the worker's to know.
    expect(await refusal(w.stage(["run.sh"]))).toMatch(/^SUFFIX_NOT_ALLOWED: /);
  });

  it("is bounded in commits and bytes of one tree of runs", async () => {
    const w = await open();
    w.write("n", "n");
    for (let n = 0; n < 20; n++) await w.stage(["n"], `number ${n}`);
    expect(await refusal(w.stage(["n"], "one more"))).toMatch(/^GIT_TOO_MANY: /);
    w.state.staged.clear();
    w.state.stagedBytes = 256 * 1024 * 1024;
    expect(await refusal(w.stage(["n"], "one more"))).toMatch(/^GIT_TOO_LARGE: /);
  });
});

describe("what was staged and not pushed", () => {
  it("is dropped when the project is closed, and by the next to open it where a process died", async () => {
    const w = await open();
    w.write("n", "n");
    await w.stage(["n"]);
    expect(ours(w)).toEqual(["refs/corral/me/1"]);
    const beside = await open({
      stateDir: w.stateDir,
      repositories: { owner: "other", isLive: (name) => name === "me" },
    });
    expect(ours(beside)).toEqual(["refs/corral/me/1"]);
    const after = await open({ stateDir: w.stateDir, repositories: { owner: "next", isLive: () => false } });
    expect(ours(after)).toEqual([]);
    after.write("n", "n");
    await after.stage(["n"]);
    await after.repositories[Symbol.asyncDispose]();
    expect(ours(w)).toEqual([]);
  });

  it("is dropped when its tree of runs ends", async () => {
    const w = await open();
    w.write("n", "n");
    const tree = {};
    w.repositories.stateOf(tree).staged.set("x", await w.stage(["n"]));
    await w.repositories.endTree(tree);
    expect(ours(w)).toEqual([]);
  });
});

describe("many at once", () => {
  it("take turns at one mirror, and none is lost", async () => {
    const w = await open();
    const names = Array.from({ length: 8 }, (_, n) => `n${n}`);
    for (const name of names) w.write(name, name);
    await Promise.all([w.pull(), w.pull(), ...names.map((name) => w.stage([name]))]);
    expect(ours(w)).toHaveLength(8);
  });

  it("use one mirror from several processes' worth of openings", async () => {
    const first = await open();
    const others = await Promise.all(
      ["b", "c", "d"].map((owner) => open({ stateDir: first.stateDir, repositories: { owner, isLive: () => true } })),
    );
    await Promise.all(others.map((w) => w.pull()));
    expect(others.map((w) => w.read("docs/b.md"))).toEqual(["b\n", "b\n", "b\n"]);
  });
});
