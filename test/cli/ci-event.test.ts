import { execFileSync } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { eventCommits } from "../../src/cli/ci/event.ts";
import { UsageError } from "../../src/cli/terminal/arguments.ts";

let root: string;
let clone: string;
/** Ids of commits. `old` is what `main` was when the pull request was made. */
const ids = { old: "", main: "", head: "" };

const AUTHOR = ["-c", "user.name=a", "-c", "user.email=a@localhost"];
const git = (cwd: string, ...args: string[]) =>
  execFileSync("git", [...AUTHOR, ...args], { cwd, stdio: "pipe" })
    .toString()
    .trim();

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "corral-event-"));
  const [origin, author] = [join(root, "origin.git"), join(root, "author")];
  git(root, "init", "--quiet", "--bare", "--initial-branch=main", origin);
  // As GitHub and GitLab do.
  git(origin, "config", "uploadpack.allowAnySHA1InWant", "true");
  git(root, "init", "--quiet", "--initial-branch=main", author);
  const push = (ref: string) => {
    git(author, "commit", "--quiet", "--allow-empty", "--message", ref);
    git(author, "push", "--quiet", "--force", origin, `HEAD:${ref}`);
    return git(author, "rev-parse", "HEAD");
  };
  ids.old = push("refs/heads/main");
  ids.head = push("refs/pull/7/head");
  git(author, "reset", "--quiet", "--hard", ids.old);
  ids.main = push("refs/heads/main");
  clone = join(root, "clone");
  git(root, "clone", "--quiet", "--depth=1", `file://${origin}`, clone);
});
afterAll(async () => await rm(root, { recursive: true, force: true }));

type Texts = Readonly<Record<string, string>>;

async function commits(env: Texts, event: unknown = null) {
  const path = join(root, "event.json");
  await writeFile(path, JSON.stringify(event));
  const given = { PATH: process.env.PATH ?? "", GITHUB_EVENT_PATH: path, ...env };
  return await eventCommits({ cwd: clone, env: given }, AbortSignal.timeout(60_000));
}

/** The keys of GitHub's own events that count, and what a stranger chose beside them. */
const pull = () => ({
  action: "synchronize",
  pull_request: {
    base: { ref: "main", sha: ids.old },
    head: { ref: "main", sha: ids.head, label: "stranger:main" },
  },
  repository: { default_branch: "main" },
});
const gitlab = (more: Texts): Texts => ({
  GITLAB_CI: "true",
  CI_DEFAULT_BRANCH: "main",
  CI_PROJECT_ID: "1",
  CI_COMMIT_SHA: ids.head,
  ...more,
});
const merge = (more: Texts = {}) =>
  gitlab({
    CI_PIPELINE_SOURCE: "merge_request_event",
    CI_MERGE_REQUEST_PROJECT_ID: "1",
    CI_MERGE_REQUEST_TARGET_BRANCH_NAME: "main",
    ...more,
  });

describe("the commits of an event", () => {
  it.each(["pull_request", "pull_request_target"])(
    "are the newest of the target and the head, for %s",
    async (name) => {
      // For `pull_request` this is a merge, which has the files of the head.
      const env = { GITHUB_EVENT_NAME: name, GITHUB_SHA: ids.head, GITHUB_REF: "refs/pull/7/merge" };
      expect(await commits(env, pull())).toEqual({ base: ids.main, head: ids.head });
      expect(git(clone, "cat-file", "-t", ids.head)).toBe("commit");
    },
  );

  it("are one and the same for a push to the default branch or a protected one, and no other", async () => {
    const push = { GITHUB_EVENT_NAME: "push", GITHUB_SHA: ids.head };
    const event = { repository: { default_branch: "main" } };
    const at = async (ref: string, isProtected: boolean) =>
      await commits({ ...push, GITHUB_REF: `refs/heads/${ref}`, GITHUB_REF_PROTECTED: String(isProtected) }, event);
    expect(await at("main", false)).toEqual({ base: ids.head, head: ids.head });
    expect(await at("v1", true)).toEqual({ base: ids.head, head: ids.head });
    expect(await at("mine", false)).toEqual({ base: ids.main, head: ids.head });
    expect(await commits(gitlab({ CI_COMMIT_BRANCH: "mine" }))).toEqual({ base: ids.main, head: ids.head });
    const both = { base: ids.head, head: ids.head };
    expect(await commits(gitlab({ CI_COMMIT_BRANCH: "main" }))).toEqual(both);
    expect(await commits(gitlab({ CI_COMMIT_BRANCH: "v1", CI_COMMIT_REF_PROTECTED: "true" }))).toEqual(both);
  });

  it("are those of a merge request of GitLab, also where the commit of the pipeline is a merge", async () => {
    expect(await commits(merge())).toEqual({ base: ids.main, head: ids.head });
    const merged = merge({ CI_COMMIT_SHA: ids.main, CI_MERGE_REQUEST_SOURCE_BRANCH_SHA: ids.head });
    expect(await commits(merged)).toEqual({ base: ids.main, head: ids.head });
  });

  it("of a clone with all its history cut none of it off", async () => {
    git(clone, "fetch", "--quiet", "--unshallow");
    await commits(merge());
    expect(git(clone, "rev-parse", "--is-shallow-repository")).toBe("false");
  });

  it.each<[string, Texts, unknown, RegExp]>([
    ["another event", { GITHUB_EVENT_NAME: "issue_comment" }, {}, /issue_comment has no base and head/],
    ["no event", { GITHUB_EVENT_PATH: "" }, {}, /their variables are not here/],
    [
      "an option",
      { GITHUB_EVENT_NAME: "pull_request" },
      { pull_request: { base: { ref: "--upload-pack=x" } } },
      /target/,
    ],
    ["two refs", { GITHUB_EVENT_NAME: "pull_request" }, { pull_request: { base: { ref: "a:b" } } }, /target/],
    ["a push without a commit", { GITHUB_EVENT_NAME: "push", GITHUB_SHA: "main" }, {}, /what was pushed is no commit/],
    [
      "a pipeline of the fork",
      {
        GITLAB_CI: "true",
        CI_COMMIT_SHA: "a".repeat(40),
        CI_PIPELINE_SOURCE: "merge_request_event",
        CI_MERGE_REQUEST_PROJECT_ID: "1",
        CI_PROJECT_ID: "2",
      },
      {},
      /in the fork/,
    ],
    [
      "a commit that is gone",
      { GITLAB_CI: "true", CI_COMMIT_SHA: "a".repeat(40), CI_COMMIT_REF_PROTECTED: "true", CI_DEFAULT_BRANCH: "main" },
      {},
      /cannot be fetched from origin/,
    ],
  ])("are refused for %s", async (_, env, event, fault) => {
    const refused = await commits(env, event).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(UsageError);
    expect(String(refused)).toMatch(fault);
  });
});
