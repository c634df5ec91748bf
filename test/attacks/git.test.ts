import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Approver } from "../../src/approval/approver.ts";
import { bareRemote, type Remote } from "../git/remote.ts";
import { never, refusal, workerSide } from "../git/worker-side.ts";
import { writable } from "../run/project-fixture.ts";
import { openSessionIn, type SessionFixture } from "../run/session/session-fixture.ts";

const AGREEABLE: Approver = { decide: async () => ({ outcome: "approved", scope: "once", reason: "yes" }) };

let remote: Remote;
let opened: SessionFixture | null = null;
/** A directory in which a program that should never have run leaves its mark. */
let canary: string;

beforeEach(async () => {
  remote = bareRemote({ "a.md": "one\n", "docs/b.md": "b\n" });
  canary = await mkdtemp(join(tmpdir(), "corral-canary-"));
});
afterEach(async () => {
  await opened?.[Symbol.asyncDispose]();
  opened = null;
  remote.remove();
  await rm(canary, { recursive: true, force: true });
});

async function open(): Promise<SessionFixture> {
  const w = {
    command: ["true"],
    sandbox: { zones: [writable("work")] },
    git: ["notes"],
    shell_rules: { default: "pre_approved" },
  };
  const repos = { notes: { url: remote.path, at: "/work" } };
  opened = await openSessionIn(
    { workers: { w }, zones: { work: "rw" }, yaml: { git: { repos } } },
    { person: AGREEABLE },
  );
  return opened;
}

/** Everything in a folder by which git can be made to run something, or to look elsewhere. */
const planted = (mark: string): string => `
  mark() { echo "touch ${mark}/$1"; }
  cd /work
  mkdir -p .git/hooks .git/info .git/objects/info .git/refs docs/.git
  printf 'ref: refs/heads/main\\n' > .git/HEAD
  for hook in pre-commit post-checkout reference-transaction pre-push post-index-change fsmonitor-watchman update pre-auto-gc post-commit pre-receive; do
    printf '#!/bin/sh\\n%s\\n' "$(mark hook-$hook)" > .git/hooks/$hook; chmod 755 .git/hooks/$hook
  done
  cat > evil.config <<END
[core]
  hooksPath = /work/.git/hooks
  fsmonitor = "$(mark fsmonitor); false"
  sshCommand = "$(mark ssh)"
  pager = "$(mark pager)"
  editor = "$(mark editor)"
  askPass = "$(mark askpass)"
  attributesFile = /work/.gitattributes
[filter "evil"]
  clean = "$(mark clean); cat"
  smudge = "$(mark smudge); cat"
  process = "$(mark process)"
[diff]
  external = "$(mark external)"
[diff "evil"]
  textconv = "$(mark textconv)"
  command = "$(mark command)"
[credential]
  helper = "!$(mark credential)"
[includeIf "gitdir:/"]
  path = /work/evil.config
[alias]
  fetch = "!$(mark alias)"
[gpg]
  program = "$(mark gpg)"
[commit]
  gpgSign = true
[url "ext::sh -c touch% ${mark}/insteadOf "]
  insteadOf = /
END
  cp evil.config .git/config; cp evil.config .gitconfig; cp evil.config docs/.git/config
  printf '* filter=evil diff=evil merge=evil\\n' > .gitattributes
  cp .gitattributes .git/info/attributes
  printf '[submodule "x"]\\n\\tpath = x\\n\\turl = ext::sh -c touch%% ${mark}/submodule\\n\\tupdate = !touch ${mark}/update\\n' > .gitmodules
  printf '/etc\\n' > .git/objects/info/alternates
  printf 'gitdir: /work/.git\\n' > docs/gitfile; printf '%s\\n' /work/.git > .git/commondir
  printf '#!/bin/sh\\n%s\\n' "$(mark git)" > git; cp git ssh; chmod 755 git ssh`;

describe("a worker that plants git's own files in its directory", () => {
  it("runs nothing on the host by pulling, staging, pushing and discarding there", async () => {
    const s = await open();
    await s.tool("git_pull", { repo: "notes" });
    expect((await s.exec(planted(canary))).status).toBe("succeeded");
    await s.exec("echo two >> a.md; echo new > new.md", { cwd: "/work" });
    remote.commit({ "docs/b.md": "theirs\n" });
    expect(await s.tool("git_pull", { repo: "notes" })).toMatchObject({
      ok: true,
      data: { replaced: ["/work/docs/b.md"] },
    });
    const files = ["a.md", "new.md", ".gitattributes", ".gitmodules", ".gitconfig", "git", "docs/gitfile"];
    const staged = await s.tool("git_stage", { repo: "notes", files, message: "all of it" });
    expect(staged).toMatchObject({ ok: true, data: { diff: expect.stringContaining("+two") } });
    const commit = String(staged.ok && staged.data.commit);
    expect(await s.tool("git_push", { commit })).toMatchObject({ ok: true });
    // What it planted came to the repository as files like any other, and does nothing at the next pull either.
    await s.exec("rm -r .gitattributes a.md", { cwd: "/work" });
    expect(await s.tool("git_pull", { repo: "notes" })).toMatchObject({ ok: true });
    const again = await s.tool("git_stage", { repo: "notes", files: ["evil.config"], message: "and this" });
    await s.tool("git_discard", { commit: String(again.ok && again.data.commit) });
    expect(await readdir(canary)).toEqual([]);
    expect(remote.files()["a.md"]).toBe("one\ntwo\n");
  });

  it("can stage none of git's own files, under none of their names", async () => {
    const s = await open();
    await s.exec(
      "mkdir -p .git/hooks docs/.git '.GIT' 'git~1' '.git ' && for f in .git/config .git/hooks/x docs/.git/config .GIT/config 'git~1/config' '.git /config'; do echo x > \"$f\"; done",
      { cwd: "/work" },
    );
    for (const file of [
      ".git/config",
      "/work/.git/hooks/x",
      "docs/.git/config",
      ".GIT/config",
      "git~1/config",
      ".git /config",
      "x/../.git/config",
    ])
      expect(await s.tool("git_stage", { repo: "notes", files: [file], message: "m" })).toMatchObject({
        ok: false,
        code: "GIT_PATH",
      });
  });

  it("can stage nothing that a link of its points at", async () => {
    const s = await open();
    await s.exec(
      "ln -s /etc/passwd abs; ln -s ../../../../../etc/passwd out; ln -s docs in; mkdir docs; echo x > docs/x; ln -s docs/x file; mkfifo fifo",
      {
        cwd: "/work",
      },
    );
    for (const file of ["abs", "out", "file", "in/x", "fifo"])
      expect(await s.tool("git_stage", { repo: "notes", files: [file], message: "m" })).toMatchObject({
        ok: false,
        code: "FILE_SYSTEM",
      });
  });

  it("leads no pull out of its directory by a link", async () => {
    const s = await open();
    await writeFile(join(canary, "b.md"), "outside");
    await s.exec(`ln -s ${canary} docs; ln -s ${canary}/b.md a.md`, { cwd: "/work" });
    await s.tool("git_pull", { repo: "notes", overwrite: true });
    expect(await readdir(canary)).toEqual(["b.md"]);
    expect(readFileSync(join(canary, "b.md"), "utf8")).toBe("outside");
  });
});

describe("a repository that somebody else made hostile", () => {
  it("writes nothing but plain files below its directory, whatever its names and modes are", async () => {
    const content = "evil";
    remote.commitRaw([
      { mode: "100644", content, path: "fine.md" },
      { mode: "100644", content, path: "-rf" },
      { mode: "100644", content, path: "--output=x" },
      ...["..", ".", ".git", ".GIT", "git~1", ".git ", ".g\u200cit"].map((folder) => ({
        mode: "100755",
        content,
        path: `${folder}/hooks/x`,
      })),
      { mode: "100644", content, path: "a/../../up" },
      { mode: "100644", content, path: "back\\slash" },
      { mode: "100644", content, path: "line\nbreak" },
      { mode: "100644", content, path: Buffer.from([0x66, 0xff]) },
      { mode: "120000", content: "/etc/passwd", path: "link" },
      { mode: "120000", content: "../../..", path: "up" },
    ]);
    await using w = await workerSide(remote);
    const { created, skipped } = await w.pull();
    expect(created.toSorted()).toEqual(["/notes/--output=x", "/notes/-rf", "/notes/fine.md"]);
    expect(skipped).toHaveLength(13);
    expect((await readdir(w.dir, { recursive: true })).toSorted()).toEqual(["--output=x", "-rf", "fine.md"]);
    expect((await readdir(join(w.dir, ".."))).toSorted()).toEqual(["notes", "state"]);
    // Git itself builds nothing on names such as these.
    w.write("fine.md", "changed");
    expect(await refusal(w.stage(["fine.md"]))).toMatch(/^GIT_FAILED: .*contains names/);
  });

  it("may have names like options, which are files like any other", async () => {
    remote.commitRaw([
      { mode: "100644", content: "x", path: "-rf" },
      { mode: "100644", content: "x", path: "--output=x" },
    ]);
    await using w = await workerSide(remote);
    expect((await w.pull({ paths: ["-rf", "--output=x"] })).created).toHaveLength(2);
    w.write("-rf", "changed");
    w.write("--output=x", "changed");
    const { commit, files } = await w.stage(["-rf", "--output=x"]);
    expect(files).toHaveLength(2);
    await w.repository.push(commit, never);
    expect(existsSync(join(w.stateDir, "x"))).toBe(false);
  });

  it("cannot hide what a commit changes from whoever is asked, by what it says of its files", async () => {
    remote.commit({ ".gitattributes": "* binary -diff\n", "a.md": "one\n" });
    await using w = await workerSide(remote);
    await w.pull();
    w.write("a.md", "two\n");
    const { diff } = await w.stage(["a.md"]);
    expect(diff).toContain("-one\n+two\n");
  });

  it("that is larger than what is worked on is refused, and not taken in part", async () => {
    const many = Array.from({ length: 10_001 }, (_, n) => ({ mode: "100644", content: "", path: `f${n}` }));
    const [first] = many;
    const id = first && remote.git("hash-object", "-w", "/dev/null");
    const lines = many.map(({ path }) => `100644 blob ${id}\t${path}`).join("\n");
    const tree = execFileSync("git", ["mktree"], { cwd: remote.path, input: `${lines}\n` })
      .toString()
      .trim();
    remote.git("update-ref", "refs/heads/main", remote.git("commit-tree", tree, "-m", "many"));
    await using w = await workerSide(remote);
    expect(await refusal(w.pull())).toMatch(/^GIT_TOO_LARGE: .*`paths`/);
    expect(await readdir(w.dir)).toEqual([]);
    expect((await w.pull({ paths: ["f1", "f2"] })).created).toHaveLength(2);
  });
});

describe("a repository on this machine", () => {
  it("runs none of its hooks, nor what its configuration names, when it is pushed to and fetched from", async () => {
    const hooks = join(remote.path, "hooks");
    await mkdir(hooks, { recursive: true });
    for (const name of [
      "pre-receive",
      "update",
      "post-receive",
      "post-update",
      "reference-transaction",
      "proc-receive",
      "push-to-checkout",
    ])
      await writeFile(join(hooks, name), `#!/bin/sh\ntouch ${canary}/${name}\n`, { mode: 0o755 });
    const said = {
      "core.hooksPath": hooks,
      "core.fsmonitor": `touch ${canary}/fsmonitor`,
      "core.alternateRefsCommand": `touch ${canary}/alternates;`,
      "uploadpack.packObjectsHook": `touch ${canary}/pack;`,
      "receive.procReceiveRefs": "refs/none",
    };
    for (const [key, value] of Object.entries(said)) remote.git("config", key, value);
    const other = bareRemote({ x: "x" });
    await writeFile(join(remote.path, "objects/info/alternates"), `${join(other.path, "objects")}\n`);
    await using w = await workerSide(remote);
    await w.pull();
    w.write("n", "n");
    const { commit } = await w.stage(["n"]);
    await w.repository.push(commit, never);
    expect(remote.files().n).toBe("n");
    expect(await readdir(canary)).toEqual([]);
    other.remove();
  });
});
