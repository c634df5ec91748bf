import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { printableLine } from "../../text/visible.ts";
import { UsageError } from "../terminal/arguments.ts";
import type { Terminal } from "../terminal/terminal.ts";

/** A commit by its id, or the newest of a branch. */
type Wanted = { readonly id: string } | { readonly branch: string };

interface WantedCommits {
  readonly base: Wanted;
  readonly head: Wanted;
}

/** The runner keeps the event in a file. */
const MAX_EVENT_BYTES = 8 * 1024 * 1024;
const MAX_FETCH_MS = 600_000;

/**
 * The commits of the job that GitHub (Forgejo and Gitea too) or GitLab starts this command for; both are fetched from `origin`.
 * The base of a pull request is the newest commit of its target, whatever else the event says: it decides what runs.
 *
 * @throws UsageError for an event that does not have both
 */
export async function eventCommits({ cwd, env }: Pick<Terminal, "cwd" | "env">, signal: AbortSignal) {
  const { base, head } = env.GITLAB_CI === "true" ? ofGitlab(env) : ofGithub(env, await eventIn(env));
  const git = async (...args: string[]): Promise<string> => {
    const how = { cwd, env: { ...env, GIT_TERMINAL_PROMPT: "0" }, signal, timeout: MAX_FETCH_MS };
    return (await promisify(execFile)("git", ["-c", "core.hooksPath=/dev/null", ...args], how)).stdout.trim();
  };
  try {
    return { base: await fetched(base, git), head: await fetched(head, git) };
  } catch (error) {
    if (signal.aborted) throw error;
    const { stderr = "", message } = error as Error & { readonly stderr?: string };
    const why = printableLine(stderr.trim().split("\n").at(-1) || message, 400);
    throw new UsageError(`the commits of this event cannot be fetched from origin: ${why}`, { cause: error });
  }
}

async function fetched(wanted: Wanted, git: (...args: string[]) => Promise<string>): Promise<string> {
  // Of a clone with its whole history, this would cut some off.
  const depth = (await git("rev-parse", "--is-shallow-repository")) === "true" ? ["--depth=1"] : [];
  const fetch = ["fetch", "--quiet", "--no-tags", "--no-recurse-submodules", ...depth, "origin"];
  if ("branch" in wanted) {
    // A place for each branch: jobs for others may use the same clone.
    const ref = `refs/corral/base/${wanted.branch}`;
    await git(...fetch, `+refs/heads/${wanted.branch}:${ref}`);
    return await git("rev-parse", "--verify", `${ref}^{commit}`);
  }
  const { id } = wanted;
  const isHere = await git("cat-file", "-e", `${id}^{commit}`).then(
    () => true,
    () => false,
  );
  if (!isHere) await git(...fetch, id);
  return id;
}

type Env = Terminal["env"];

async function eventIn({ GITHUB_EVENT_PATH: path }: Env): Promise<unknown> {
  if (!path)
    throw new UsageError(
      "--event is for a job of GitHub, Forgejo or GitLab, and their variables are not here; name --base and --head",
    );
  const text = await readFile(path);
  if (text.length > MAX_EVENT_BYTES) throw new UsageError("the event in $GITHUB_EVENT_PATH is too large");
  return JSON.parse(text.toString("utf8"));
}

function ofGithub(env: Env, event: unknown): WantedCommits {
  const { GITHUB_EVENT_NAME: name = "", GITHUB_SHA, GITHUB_REF, GITHUB_REF_PROTECTED } = env;
  const at = (...path: string[]): unknown =>
    path.reduce<unknown>((value, key) => (value as Record<string, unknown> | null | undefined)?.[key], event);
  switch (name) {
    case "pull_request":
    case "pull_request_target":
      return {
        base: branch(at("pull_request", "base", "ref"), "the target of the pull request"),
        head: commit(at("pull_request", "head", "sha"), "the head of the pull request"),
      };
    case "merge_group":
      return {
        base: commit(at("merge_group", "base_sha"), "the base of the merge group"),
        head: commit(at("merge_group", "head_sha"), "the head of the merge group"),
      };
    case "push":
    case "schedule":
    case "workflow_dispatch": {
      const head = commit(GITHUB_SHA, "what was pushed");
      const main = branch(at("repository", "default_branch"), "the default branch");
      const isAccepted = GITHUB_REF_PROTECTED === "true" || GITHUB_REF === `refs/heads/${main.branch}`;
      return { base: isAccepted ? head : main, head };
    }
    default:
      throw new UsageError(
        `the event ${printableLine(name, 80)} has no base and head for --event; name --base and --head`,
      );
  }
}

function ofGitlab(env: Env): WantedCommits {
  const head = commit(env.CI_MERGE_REQUEST_SOURCE_BRANCH_SHA || env.CI_COMMIT_SHA, "what is tested");
  if (env.CI_PIPELINE_SOURCE === "merge_request_event") {
    // There, `origin` and the target are the stranger's.
    if (env.CI_MERGE_REQUEST_PROJECT_ID !== env.CI_PROJECT_ID)
      throw new UsageError("this pipeline runs in the fork, which has no base; run it in the project of the target");
    return { base: branch(env.CI_MERGE_REQUEST_TARGET_BRANCH_NAME, "the target of the merge request"), head };
  }
  const main = branch(env.CI_DEFAULT_BRANCH, "the default branch");
  const isAccepted = env.CI_COMMIT_REF_PROTECTED === "true" || env.CI_COMMIT_BRANCH === main.branch;
  return { base: isAccepted ? head : main, head };
}

/** What an event says is the stranger's in part: it becomes a word of git. */
function commit(raw: unknown, what: string): { readonly id: string } {
  if (typeof raw === "string" && /^([0-9a-f]{40}|[0-9a-f]{64})$/.test(raw)) return { id: raw };
  throw new UsageError(`${what} is no commit in this event; name --base and --head`);
}

function branch(raw: unknown, what: string): { readonly branch: string } {
  const isPlain = typeof raw === "string" && /^[^\p{C}\s~^:?*[\\]{1,250}$/u.test(raw);
  if (isPlain && !raw.includes("..") && !raw.startsWith("-")) return { branch: raw };
  throw new UsageError(`${what} is no branch in this event; name --base and --head`);
}
