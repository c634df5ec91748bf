import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { ApprovalRequest, Approver, Decision } from "../../src/approval/approver.ts";
import { bareRemote, type Remote } from "../git/remote.ts";
import { sh, type WorkerSpec, writable } from "../run/project-fixture.ts";
import { openSessionIn, type SessionFixture } from "../run/session/session-fixture.ts";

const APPROVED: Decision = { outcome: "approved", scope: "once", reason: "why not" };
const DENIED: Decision = { outcome: "denied", scope: "once", reason: "not today" };

let remote: Remote;
let opened: SessionFixture | null = null;

beforeEach(() => {
  remote = bareRemote({ "a.md": "one\n", "docs/b.md": "b\n" });
});
afterEach(async () => {
  await opened?.[Symbol.asyncDispose]();
  opened = null;
  remote.remove();
});

interface Asking {
  readonly decision?: Decision;
  readonly approvalMode?: "approve_all";
  readonly worker?: WorkerSpec;
  readonly workers?: Readonly<Record<string, WorkerSpec>>;
}

async function open({ decision = APPROVED, worker = {}, workers = {}, approvalMode }: Asking = {}) {
  const asked: ApprovalRequest[] = [];
  const person: Approver = {
    async decide(request) {
      asked.push(request);
      return decision;
    },
  };
  const w = {
    command: ["true"],
    sandbox: { zones: [writable("work")] },
    git: ["notes"],
    shell_rules: { default: "pre_approved" },
    ...worker,
  };
  const repos = { notes: { url: remote.path, at: "/work/notes" }, other: { url: remote.path, at: "/work/other" } };
  const s = await openSessionIn(
    { workers: { w, ...workers }, zones: { work: "rw" }, yaml: { git: { repos } } },
    { person, ...(approvalMode === undefined ? {} : { approvalMode }) },
  );
  opened = s;
  return { ...s, asked };
}

async function commitOf(s: SessionFixture, message = "say why"): Promise<string> {
  const staged = await s.tool("git_stage", { repo: "notes", files: ["a.md"], message });
  if (!staged.ok) throw new Error(staged.message);
  return String(staged.data.commit);
}

describe("a worker with a repository", () => {
  it("pulls, works, stages, and pushes once somebody has agreed to what it changes", async () => {
    const s = await open();
    const pulled = await s.tool("git_pull", { repo: "notes" });
    expect(pulled).toMatchObject({
      ok: true,
      text: `notes is at ${remote.git("rev-parse", "main")}. In /work/notes: 2 created, 0 replaced, 0 unchanged.\nCreated:\n  /work/notes/a.md\n  /work/notes/docs/b.md`,
    });
    // The cell sees the same files, and has neither git's own directory nor anything else of Corral's.
    expect((await s.exec("ls -A /work/notes; cat /work/notes/a.md; echo two >> /work/notes/a.md")).stdout).toBe(
      "a.md\ndocs\none\n",
    );
    const staged = await s.tool("git_stage", { repo: "notes", files: ["a.md"], message: "say why" });
    expect(staged).toMatchObject({
      ok: true,
      data: { files: [{ path: "/work/notes/a.md", change: "modified" }], diff: expect.stringContaining("+two") },
    });
    expect(s.asked).toEqual([]);
    const commit = String(staged.ok && staged.data.commit);
    expect(await s.tool("git_push", { commit })).toMatchObject({
      ok: true,
      text: `Pushed ${commit} (1 files) to main of notes.`,
    });
    expect(s.asked).toMatchObject([
      {
        worker: "w",
        operations: ["push"],
        paths: ["/work/notes/a.md"],
        through: ["w"],
        why: expect.stringMatching(/^push [0-9a-f]{12} to the branch main of notes \(.*\): say why$/),
        diff: expect.stringMatching(new RegExp(`^commit ${commit}\nmessage: say why\n[^]*\\+two\n`)),
      },
    ]);
    expect(remote.files()["a.md"]).toBe("one\ntwo\n");
    // The next change is built on that one, without another pull.
    await s.exec("echo three >> /work/notes/a.md");
    expect(await s.tool("git_push", { commit: await commitOf(s) })).toMatchObject({ ok: true });
    expect(remote.git("rev-list", "--count", "main")).toBe("3");
  });

  it("pushes nothing where nobody agrees, and the commit can be pushed or discarded still", async () => {
    const s = await open({ decision: DENIED });
    await s.tool("git_pull", { repo: "notes" });
    await s.exec("echo two >> /work/notes/a.md");
    const commit = await commitOf(s);
    expect(await s.tool("git_push", { commit })).toMatchObject({
      ok: false,
      code: "APPROVAL_DENIED",
      message: `To push ${commit} needs approval, and it was denied: not today.`,
    });
    expect(remote.files()["a.md"]).toBe("one\n");
    expect(await s.tool("git_discard", { commit })).toMatchObject({ ok: true });
    for (const name of ["git_push", "git_discard"])
      expect(await s.tool(name, { commit })).toMatchObject({ ok: false, code: "GIT_NOT_STAGED" });
  });

  it("is not pushed for by approve_all, which covers what the project declares and no more", async () => {
    const s = await open({ approvalMode: "approve_all" });
    await s.tool("git_pull", { repo: "notes" });
    await s.exec("echo two >> /work/notes/a.md");
    expect(await s.tool("git_push", { commit: await commitOf(s) })).toMatchObject({
      ok: false,
      code: "APPROVAL_DENIED",
    });
    expect(remote.files()["a.md"]).toBe("one\n");
  });

  it("is asked about once for all that a pull writes where writing asks", async () => {
    const zones = [{ name: "work", mode: "rw" }];
    const s = await open({ worker: { sandbox: { zones } } });
    expect(await s.tool("git_pull", { repo: "notes" })).toMatchObject({ ok: true });
    expect(s.asked).toMatchObject([
      {
        operations: ["write"],
        paths: ["/work/notes/a.md", "/work/notes/docs/b.md"],
        why: "pull from the branch main of notes",
      },
    ]);
  });

  it("may use only what it names itself, and is told what that is", async () => {
    const s = await open();
    for (const repo of ["other", "elsewhere", "../notes"])
      expect(await s.tool("git_pull", { repo })).toMatchObject({
        ok: false,
        code: "GIT_NOT_ALLOWED",
        message: "This worker may not use that repository. Repositories that it may use: notes.",
      });
    await s[Symbol.asyncDispose]();
    const none = await open({ worker: { git: [] } });
    expect(await none.tool("git_pull", { repo: "notes" })).toMatchObject({
      code: "GIT_NOT_ALLOWED",
      message: "This worker may not use that repository. Repositories that it may use: none.",
    });
  });

  it.each([
    ["git_pull", { repo: "notes", paths: [] }],
    ["git_stage", { repo: "notes", files: [], message: "x" }],
    ["git_stage", { repo: "notes", files: ["a"] }],
    ["git_push", { commit: "main" }],
    ["git_push", { commit: "--force" }],
    ["git_discard", { commit: `${"a".repeat(39)}^` }],
  ])("%s of %j is no input", async (name, input) => {
    const s = opened ?? (await open());
    expect(await s.tool(name, input)).toMatchObject({ ok: false, code: "BAD_INPUT" });
  });
});

describe("a worker that is called", () => {
  const tool = (name: string, input: string) =>
    `curl -s --unix-socket "$CORRAL_SOCKET" -H 'content-type: application/json' -d '${input}' http://corral/v1/tools/${name}`;
  const answersIn = (text: string) => text.split("\n").flatMap((line) => (line === "" ? [] : JSON.parse(line)));
  const kid = {
    command: sh(
      `${tool("git_pull", '{"repo":"notes"}')}; ${tool("git_pull", '{"repo":"other"}')}; echo x > /work/notes/kid; ${tool("git_stage", '{"repo":"notes","files":["kid"],"message":"m"}')}`,
    ),
    sandbox: { zones: [writable("work")] },
    git: ["notes", "other"],
  };

  it("may use no repository that its caller may not, and what it staged is its caller's to push", async () => {
    const s = await open({ worker: { calls: ["kid"] }, workers: { kid } });
    const called = await s.tool("call_worker", { worker: "kid" });
    if (!called.ok) throw new Error(called.message);
    const [pulled, refused, staged] = answersIn(called.text);
    expect(pulled).toMatchObject({ ok: true });
    expect(refused).toMatchObject({
      code: "GIT_NOT_ALLOWED",
      message: expect.stringContaining("may use: notes."),
    });
    expect(await s.tool("git_push", { commit: staged.data.commit })).toMatchObject({ ok: true });
    expect(remote.files().kid).toBe("x\n");
  });

  it("by itself stages for nobody else", async () => {
    const s = await open({ workers: { kid } });
    const result = await s.project.run("kid");
    const [, , staged] = answersIn(String(result.output));
    expect(staged.text).toMatch(/^Staged [0-9a-f]{40} /);
    expect(await s.tool("git_push", { commit: staged.data.commit })).toMatchObject({
      ok: false,
      code: "GIT_NOT_STAGED",
    });
  });
});

describe("trouble with a repository", () => {
  it("is told to a person with what git said, and to the worker without", async () => {
    const s = await open();
    await writeFile(join(remote.path, "HEAD"), "nothing of git's");
    const refused = await s.tool("git_pull", { repo: "notes" });
    expect(refused).toMatchObject({ ok: false, code: "GIT_FAILED" });
    for (const secret of [remote.path, s.project.stateDir, s.project.dir])
      expect(JSON.stringify(refused)).not.toContain(secret);
    const trouble = s.project.events.find((event) => event.type === "trouble");
    expect(trouble).toMatchObject({ detail: expect.stringContaining("git (repository notes") });
  });
});
