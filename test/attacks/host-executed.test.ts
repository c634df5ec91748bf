import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { chmod, chown, lstat, mkdir, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { ApprovalRequest, Approver } from "../../src/approval/approver.ts";
import type { RunResult } from "../../src/index.ts";
import { Changesets } from "../../src/operations/changesets.ts";
import {
  type OpenFixtureOptions,
  openProject,
  type ProjectFixture,
  type ProjectSpec,
  sh,
  WORKER_UID,
} from "../run/project-fixture.ts";
import { openSessionIn, type SessionFixture } from "../run/session/session-fixture.ts";
import { isAgain } from "../tiers/again.ts";

/*
 * A work tree of git is handed to a worker whose changes need no consent. Whatever it leaves there, the next program of the host
 * that looks at the directory runs nothing of it, unless a person has agreed to exactly that.
 */

const FSMONITOR = "[core]\n\tfsmonitor = touch PWNED\n";
const ATTACK = sh(`
cd /repo
printf '[core]\\n\\tfsmonitor = touch PWNED\\n' >> .git/config
printf '#!/bin/sh\\ntouch PWNED2\\n' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit
mkdir -p .vscode .github/workflows sub inner
echo '{}' > .vscode/tasks.json
echo 'on: push' > .github/workflows/ci.yml
ln -s ../a.txt sub/.envrc
mkdir sub/kept && cp -r .git sub/kept/git && mv sub/kept/git inner/.git
printf 'gitdir: ../inner/.git\\n' > sub/.git
mkdir bare && cp .git/HEAD .git/config bare && mkdir bare/objects bare/refs
echo changed > a.txt
echo new > b.txt
`);
/** What of that a person has to agree to, whatever else was agreed to. */
const APART = [
  "/repo/.git/config",
  "/repo/.git/hooks/pre-commit",
  "/repo/.vscode/tasks.json",
  "/repo/.github/workflows/ci.yml",
  "/repo/sub/.envrc",
  "/repo/sub/.git",
  "/repo/inner/.git/config",
  "/repo/bare/HEAD",
];
const FREE = ["/repo/a.txt", "/repo/b.txt", "/repo/inner/.git/HEAD", "/repo/bare/config"];

interface Terms {
  readonly isDirect?: boolean;
  readonly zone?: object;
  readonly image?: string;
  readonly yaml?: Readonly<Record<string, unknown>>;
  readonly policy?: string;
  readonly files?: Record<string, string>;
}

const spec = (
  command: readonly string[],
  { isDirect, zone, image = "corral/base", yaml, policy, files = {} }: Terms = {},
): ProjectSpec => ({
  workers: {
    w: {
      image,
      command,
      sandbox: {
        zones: [{ name: "repo", mode: "rw", approval: "pre_approved", ...(isDirect ? {} : { stage: true }), ...zone }],
      },
      shell_rules: { default: "pre_approved" },
    },
  },
  zones: { repo: "rw" },
  files: { "repo/a.txt": "a\n", ...files },
  ...(yaml === undefined ? {} : { yaml }),
  ...(policy === undefined ? {} : { policy }),
});

/** With a work tree of git, of the worker's user. */
async function initialised<F extends { readonly dir: string }>(project: F): Promise<F> {
  const repo = join(project.dir, "repo");
  execFileSync("git", ["init", "-q", repo], { env: { PATH: process.env.PATH, HOME: project.dir } });
  for (const name of [".", ...(await readdir(repo, { recursive: true }))])
    await chown(join(repo, name), WORKER_UID, WORKER_UID);
  return project;
}

async function opened(terms: Terms = {}, options: OpenFixtureOptions = {}): Promise<ProjectFixture> {
  return await initialised(await openProject(spec(ATTACK, terms), options));
}

/** What the host does with the directory: `git status` there, in each that could be a repository. */
function looks(dir: string): void {
  const env = { PATH: process.env.PATH, HOME: dir };
  for (const at of ["repo", "repo/inner", "repo/sub", "repo/bare"]) {
    if (!existsSync(join(dir, at))) continue;
    try {
      execFileSync("git", ["-c", "safe.directory=*", "-C", join(dir, at), "status"], { env, stdio: "ignore" });
    } catch {
      // What is no repository has no status.
    }
  }
}

async function expectNothingRan({ dir }: { readonly dir: string }): Promise<void> {
  looks(dir);
  const names = await readdir(join(dir, "repo"), { recursive: true });
  expect(names.filter((name) => name.includes("PWNED"))).toEqual([]);
}

const outcomes = ({ changes }: RunResult): Record<string, string> =>
  Object.fromEntries(changes.map(({ path, outcome }) => [path, outcome]));
const all = (paths: readonly string[], outcome: string) => Object.fromEntries(paths.map((path) => [path, outcome]));

function person(answer: (request: ApprovalRequest) => boolean): Approver & { readonly asked: ApprovalRequest[] } {
  const asked: ApprovalRequest[] = [];
  return {
    asked,
    async decide(request) {
      asked.push(request);
      return { outcome: answer(request) ? "approved" : "denied", scope: "session", reason: "the test says so" };
    },
  };
}

// What is staged, and what tools write, the host judges: only mounts are another driver's.
describe.skipIf(isAgain())("what a worker leaves in a staged work tree", () => {
  const rule = { approval: { rules: [{ decide: "approve", operation: ["write", "delete"], paths: ["/repo/**"] }] } };
  it.each([
    ["nobody is there", {}, {}],
    ["the mode is approve_all", {}, { approvalMode: "approve_all" }],
    ["a rule approves everything", { yaml: rule }, {}],
    ["views are copies", {}, { overlays: false }],
    [
      "the mode is approve_all and views are copies",
      { zone: { approval: "ask" } },
      { approvalMode: "approve_all", overlays: false },
    ],
  ] as const)("waits for a person, and the host runs nothing of it: %s", async (_, terms, options) => {
    await using project = await opened(terms, options as OpenFixtureOptions);
    const result = await project.run("w");
    expect(outcomes(result)).toMatchObject({ ...all(APART, "held"), ...all(FREE, "applied") });
    expect(result).toMatchObject({ status: "denied", error: { code: "CHANGES_HELD" } });
    await expectNothingRan(project);
  });

  it("is asked about first and apart, with the reasons, and a yes for the session covers nothing further", async () => {
    const asked = person(({ hostExecuted }) => hostExecuted === undefined);
    await using project = await opened({ zone: { approval: "ask" } }, { person: asked });
    const result = await project.run("w");
    const [first, second] = asked.asked;
    expect(first?.hostExecuted).toEqual(expect.arrayContaining(APART.map((path) => expect.objectContaining({ path }))));
    expect(first?.paths.toSorted()).toEqual(first?.hostExecuted?.map(({ path }) => path).toSorted());
    expect(first?.diff).toMatch(/^git on this machine would run /);
    expect(second).not.toHaveProperty("hostExecuted");
    expect(outcomes(result)).toMatchObject({ ...all(APART, "denied"), ...all(FREE, "applied") });
    await expectNothingRan(project);
  });

  it("is applied if a person has agreed to it, or the policy says so", async () => {
    const policies = { "policies/mine.yaml": POLICY };
    const yaml = { policies: "./policies" };
    await using lax = await opened({ yaml, policy: "mine", files: policies });
    expect(outcomes(await lax.run("w"))).toMatchObject(all([...APART, ...FREE], "applied"));
    await using agreed = await opened({}, { person: person(() => true) });
    expect(outcomes(await agreed.run("w"))).toMatchObject(all([...APART, ...FREE], "applied"));
  });

  it("is in no general yes to a changeset that waited, and applied if its path is named", async () => {
    await using project = await opened();
    const { run } = await project.run("w");
    await using changesets = await Changesets.open(project.stateDir, {});
    const seen = await changesets.foresee(run);
    expect(seen.parts.map(({ hostExecuted }) => hostExecuted === null)).toEqual(seen.parts.map(() => false));
    const general = await changesets.apply(run, { approval: "agreed" });
    expect(general.changes.every(({ outcome }) => outcome === "held")).toBe(true);
    await expectNothingRan(project);
    const one = await changesets.apply(run, { approval: "agreed", hostExecuted: ["/repo/.vscode/tasks.json"] });
    const applied = one.changes.filter(({ outcome }) => outcome === "applied").map(({ path }) => path);
    expect(applied).toEqual(["/repo/.vscode/tasks.json"]);
    await expectNothingRan(project);
  });

  it("is shown as commits where some were made, in the question and in what waits", async () => {
    const COMMITS = `cd /repo; export HOME=/tmp GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@x
git symbolic-ref HEAD refs/heads/main && git add -A && git commit -qm first && git rm -q a.txt && git commit -qm "$(printf 'hid\\033[2Kden')"`;
    const diffs: string[] = [];
    const nobody: Approver = {
      async decide({ diff = "" }) {
        diffs.push(diff);
        return { outcome: "timed_out", scope: "once", reason: "nobody answered" };
      },
    };
    const terms = { zone: { approval: "ask" }, image: "corral/node" };
    await using project = await initialised(await openProject(spec(sh(COMMITS), terms), { person: nobody }));
    const { run } = await project.run("w");
    const commits = [
      "the worker used git in /repo/.git: subjects, names and dates of commits are its own word",
      expect.stringMatching(/^commit [0-9a-f]{7} "hid\\u\{1b\}\[2Kden" by "a <a@x>" on branch main, 1 file changed$/),
      expect.stringMatching(/^commit [0-9a-f]{7} "first" by "a <a@x>" on branch main, 1 file changed$/),
    ];
    expect(diffs.map((diff) => diff.split("\n").slice(0, 3))).toEqual([commits]);
    await using changesets = await Changesets.open(project.stateDir, {});
    const [shown, seen] = [await changesets.show(run), await changesets.foresee(run)];
    expect(shown.commits.slice(0, 3)).toEqual(commits);
    expect(seen.commits).toEqual(shown.commits);
    expect(shown.changes.filter(({ path }) => path.includes("/.git/objects/")).length).toBeGreaterThan(4);
  });

  it("deletions wait as well, with the directory that held it", async () => {
    const files = { "repo/.npmrc": "ignore-scripts=true\n", "repo/old/.vscode/a": "{}" };
    await using project = await openProject(spec(sh("cd /repo && rm -rf .npmrc old a.txt"), { files }));
    expect(outcomes(await project.run("w"))).toMatchObject({
      ...all(["/repo/.npmrc", "/repo/old/.vscode/a", "/repo/old/.vscode", "/repo/old"], "held"),
      "/repo/a.txt": "applied",
    });
  });
});

const POLICY = `
name: mine
description: A work tree of my own
extends: default
hardening:
  host_executed: { value: allow, why: the worker maintains the hooks of this work tree }
`;

/** The owner's own files in a work tree; what they are, before and after. */
const REPO_FILES = { "repo/.vscode/settings.json": "{}", "repo/deep/.envrc": "true\n", "repo/.mcp.json": "{}" };

async function kept(dir: string): Promise<Record<string, string>> {
  const names = [".git/config", ".git/hooks/post-checkout", ".vscode/settings.json", "deep/.envrc", ".mcp.json"];
  const read = async (name: string) => [name, await readFile(join(dir, "repo", name), "utf8")] as const;
  return Object.fromEntries(await Promise.all(names.map(read)));
}

async function withHook(project: ProjectFixture): Promise<ProjectFixture> {
  await initialised(project);
  const hook = join(project.dir, "repo/.git/hooks/post-checkout");
  await writeFile(hook, "#!/bin/sh\n");
  await chmod(hook, 0o755);
  await chown(hook, WORKER_UID, WORKER_UID);
  return project;
}

describe("a writable direct mount", () => {
  const IN_GIT = `
cd /repo; export HOME=/tmp GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@x
git add -A && git commit -qm first && git checkout -q -b topic && echo b > b.txt && git add b.txt && git commit -qm second && git gc -q || exit 9
git log --format=%s topic
won() { echo "won: $*"; }
git config user.name evil 2>/dev/null && won config
(echo x > .git/hooks/pre-commit) 2>/dev/null && won hook
(echo x >> .git/hooks/post-checkout) 2>/dev/null && won append
(echo x > .vscode/tasks.json) 2>/dev/null && won vscode
for it in .git .git/hooks .git/config .vscode deep .mcp.json; do mv $it moved 2>/dev/null && won mv $it; done
for it in .git/config deep/.envrc .mcp.json; do rm -f $it 2>/dev/null; done
for it in .git/config .git/hooks/post-checkout .vscode/settings.json .mcp.json; do ln $it linked 2>/dev/null && won ln $it; done
ln -s nowhere l && { mv -T l .git/config 2>/dev/null; ln -sfn nowhere .vscode 2>/dev/null; }
exit 0
`;
  it("shows what the host executes read-only, wherever it lies, and git works there", async () => {
    const terms = { isDirect: true, image: "corral/node", files: REPO_FILES };
    await using project = await withHook(await openProject(spec(sh(IN_GIT), terms)));
    const before = await kept(project.dir);
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "succeeded", stdout: "second\nfirst\n" });
    expect(await kept(project.dir)).toEqual(before);
    expect(Object.keys(result.changes)).toEqual([]);
    await expectNothingRan(project);
  });

  it("is refused if what the host executes cannot be held", async () => {
    await using linked = await openProject(spec(["true"], { isDirect: true }));
    await symlink("../a.txt", join(linked.dir, "repo/.envrc"));
    const refused = await linked.run("w");
    expect(refused).toMatchObject({
      status: "refused",
      error: { message: expect.stringMatching(/is a link.*stage: true/) },
    });
    const files = Object.fromEntries(Array.from({ length: 251 }, (_, index) => [`repo/${index}/.npmrc`, ""]));
    await using many = await openProject(spec(["true"], { isDirect: true, files }));
    expect(await many.run("w")).toMatchObject({
      status: "refused",
      error: { message: expect.stringContaining("more than 250") },
    });
  });

  it("of a policy that allows it is as it was", async () => {
    const terms = {
      isDirect: true,
      yaml: { policies: "./policies" },
      policy: "mine",
      files: { "policies/mine.yaml": POLICY },
    };
    await using project = await initialised(await openProject(spec(sh("echo '# mine' >> /repo/.git/config"), terms)));
    expect(await project.run("w")).toMatchObject({ status: "succeeded" });
    expect(await readFile(join(project.dir, "repo/.git/config"), "utf8")).toMatch(/# mine\n$/);
  });
});

describe.skipIf(isAgain())("a file tool in a writable direct mount", () => {
  const files = { "repo/tree/.git/config": "", "repo/tree/a": "a", "repo/.mcp.json": "{}", "repo/plain/a": "a" };
  const open = async (options: OpenFixtureOptions): Promise<SessionFixture> =>
    await openSessionIn(spec(["true"], { isDirect: true, files }), options);
  const uses: readonly (readonly [string, object])[] = [
    ["write_file", { path: "/repo/.vscode/tasks.json", content: "{}" }],
    ["append_file", { path: "/repo/.git/hooks/pre-commit", content: "touch PWNED" }],
    ["edit_file", { path: "/repo/.mcp.json", edits: [{ old: "{}", new: "{ }" }] }],
    ["move_file", { from: "/repo/a.txt", to: "/repo/.envrc" }],
    ["move_file", { from: "/repo/tree", to: "/repo/other" }],
    ["copy_file", { from: "/repo/tree", to: "/repo/other" }],
    ["copy_file", { from: "/repo/a.txt", to: "/repo/sub/.NPMRC" }],
    ["delete_file", { path: "/repo/tree", recursive: true }],
    ["delete_file", { path: "/repo/.mcp.json" }],
  ];

  it("asks for it whatever the mount says, and is refused without a person", async () => {
    await using s = await open({ approvalMode: "approve_all" });
    for (const [tool, input] of uses)
      expect(await s.tool(tool, input), `${tool} ${JSON.stringify(input)}`).toMatchObject({
        ok: false,
        code: "APPROVAL_DENIED",
      });
    for (const [tool, input] of [
      ["write_file", { path: "/repo/b.txt", content: "b" }],
      ["move_file", { from: "/repo/plain", to: "/repo/moved" }],
      ["delete_file", { path: "/repo/moved", recursive: true }],
    ] as const)
      expect(await s.tool(tool, input)).toMatchObject({ ok: true });
    expect(existsSync(join(s.project.dir, "repo/.vscode"))).toBe(false);
    expect((await lstat(join(s.project.dir, "repo/tree/.git/config"))).isFile()).toBe(true);
  });

  it("asks each time, with the reason", async () => {
    const asked = person(() => true);
    await using s = await open({ person: asked });
    for (const content of ["1", "2"])
      expect(await s.tool("write_file", { path: "/repo/.vscode/tasks.json", content })).toMatchObject({ ok: true });
    const why = "an editor on this machine would run what this names";
    const hostExecuted = [{ path: "/repo/.vscode/tasks.json", why }];
    expect(asked.asked.map((one) => one.hostExecuted)).toEqual([hostExecuted, hostExecuted]);
  });
});

it.skipIf(isAgain())("a mount that is a repository's own directory is staged, whatever it says", async () => {
  await using project = await openProject({
    ...spec(sh(`printf '${FSMONITOR.replaceAll("\n", "\\n")}' >> /hooks/x; echo 1 > /hooks/y`)),
    workers: {
      w: {
        image: "corral/base",
        command: sh("echo 'touch PWNED' > /hooks/pre-commit"),
        sandbox: { zones: [{ name: "hooks", mode: "rw", approval: "pre_approved" }] },
      },
    },
    zones: {},
    files: { "repo/.git/hooks/kept": "" },
    sandbox: { zones: { hooks: { path: "./repo/.git/hooks", mode: "rw" } } },
  });
  await mkdir(join(project.dir, "repo/.git"), { recursive: true });
  await chown(join(project.dir, "repo/.git/hooks"), WORKER_UID, WORKER_UID);
  expect(outcomes(await project.run("w"))).toEqual({ "/hooks/pre-commit": "held" });
  expect(await readdir(join(project.dir, "repo/.git/hooks"))).toEqual(["kept"]);
});
