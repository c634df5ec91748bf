import type { ApprovalRequest } from "../../approval/approver.ts";
import type { GuardedFiles } from "../../files/guarded.ts";
import { MAX_LISTED } from "../../git/git-program.ts";
import { type Puller, pull } from "../../git/pull.ts";
import type { Repositories, Repository, StagedCommit, TreeRepositories } from "../../git/repository.ts";
import { FileBytes, stage } from "../../git/stage.ts";
import { GitRefusal } from "../../git/tree-archive.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { CoveredWrite, GitHands, GitStagedCommit } from "../../tools/hands.ts";
import { ShownWrites } from "../../tools/shown-effects.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import type { Declared, Destinations, Records } from "../model/environment.ts";
import { identityOf, type Job } from "../model/job.ts";

export interface SessionGitParts {
  readonly job: Job;
  readonly env: Declared & Destinations & Records;
  /** What is granted now, with views in place of the mounts that have one. */
  readonly sandbox: () => Sandbox;
  readonly files: () => GuardedFiles;
  /** Notes the approval of what was shown, for the content of that digest only. */
  readonly agreedTo: (shown: CoveredWrite) => Promise<void>;
  /** Asks, and rejects with `ToolRefusal` without consent. */
  readonly ask: (
    what: Pick<ApprovalRequest, "operations" | "paths" | "why" | "diff" | "through" | "hostExecuted">,
    said: string,
    signal: AbortSignal,
  ) => Promise<void>;
}

/** The repositories that one run may use: those that its worker names, as far as every worker above it names them too. */
export class SessionGit implements GitHands {
  readonly #parts: SessionGitParts;

  constructor(parts: SessionGitParts) {
    this.#parts = parts;
  }

  async pull({ repo, paths, overwrite }: Parameters<GitHands["pull"]>[0], signal: AbortSignal) {
    return await this.#told(async (git) => {
      const repository = await this.#repository(git, repo);
      const { branch, at } = repository.repo;
      const why = `pull from the branch ${branch} of ${repo}`;
      const covered = new Map<string, CoveredWrite>();
      let shown = new ShownWrites();
      const agree: Puller["agree"] = async (all, hostExecuted, stopped) => {
        const apart = hostExecuted.length === 0 ? {} : { hostExecuted };
        const { diff } = shown;
        for (const path of all) {
          const one = shown.coveredAt(path);
          if (one !== null) covered.set(path, one);
        }
        shown = new ShownWrites();
        const what = { operations: ["write"], paths: all, why, diff, ...apart } as const;
        await this.#parts.ask(what, `write ${all.length} files`, stopped);
      };
      const agreedTo: Puller["agreedTo"] = async (path) => {
        const one = covered.get(path);
        if (one !== undefined) await this.#parts.agreedTo(one);
      };
      using bytes = new FileBytes(this.#parts.sandbox());
      const seen = this.#state(git).seenOf(repo);
      const show: Puller["show"] = (change) => shown.add(change);
      const puller = { files: this.#parts.files(), bytes, seen, show, agree, agreedTo };
      const pulled = await pull(repository, { paths, overwrite }, puller, signal);
      return { repo, branch, at, ...pulled };
    });
  }

  async stage({ repo, files, message }: Parameters<GitHands["stage"]>[0], signal: AbortSignal) {
    return await this.#told(async (git) => {
      const repository = await this.#repository(git, repo);
      const { name } = this.#parts.job.worker;
      const author = { name, email: `${name}@corral.invalid` };
      using bytes = new FileBytes(this.#parts.sandbox());
      const staged = await stage(repository, { files, message, author }, bytes, this.#state(git), signal);
      return { ...shownOf(staged), diff: staged.diff };
    });
  }

  async push(commit: string, signal: AbortSignal): Promise<GitStagedCommit> {
    return await this.#told(async (git) => {
      const staged = this.#staged(git, commit);
      const { repository, files, message, question } = staged;
      const { name, branch, url } = repository.repo;
      const paths = files.map(({ path }) => path);
      const why = `push ${commit.slice(0, 12)} to the branch ${branch} of ${name} (${url}): ${message}`;
      const what = { operations: ["push"], paths, why, diff: question, through: this.#parts.job.path } as const;
      await this.#parts.ask(what, `push ${commit}`, signal);
      // It may have been pushed or discarded while the question was open.
      const { staged: open } = this.#state(git);
      this.#staged(git, commit);
      open.delete(commit);
      try {
        await repository.push(commit, signal);
      } catch (error) {
        open.set(commit, staged);
        throw error;
      }
      await this.#pushed(git, staged);
      return shownOf(staged);
    });
  }

  async discard(commit: string, signal: AbortSignal): Promise<GitStagedCommit> {
    return await this.#told(async (git) => {
      const staged = this.#staged(git, commit);
      await staged.repository.drop([staged.ref], signal);
      this.#state(git).staged.delete(commit);
      return shownOf(staged);
    });
  }

  /** Records a push. A failure here does not undo the push. */
  async #pushed(git: Repositories, { repository, commit, ref, files, ids }: StagedCommit): Promise<void> {
    const { run, root, worker } = this.#parts.job;
    const { name: repo, branch } = repository.repo;
    const seen = this.#state(git).seenOf(repo);
    for (const [entry, id] of ids) seen.set(entry, id);
    const paths = files.map(({ path }) => path);
    try {
      await git.pushed({ run, root, worker: worker.name, repo, branch, commit, files: paths });
      await repository.drop([ref], this.#parts.job.signal);
    } catch (error) {
      this.#tell(
        `${commit} was pushed to ${repo}, but it could not be recorded: ${error instanceof Error ? error.message : error}`,
      );
    }
  }

  #state(git: Repositories): TreeRepositories {
    return git.stateOf(this.#parts.job.tree);
  }

  /** Only of this tree of runs, and only of a repository that this very worker may use. */
  #staged(git: Repositories, commit: string): StagedCommit {
    const staged = [...this.#state(git).staged.values()].filter(({ repository }) =>
      this.#allowed(git).includes(repository.repo.name),
    );
    const found = staged.find((one) => one.commit === commit);
    if (found !== undefined) return found;
    const known = staged.length === 0 ? "Nothing is staged." : `Staged: ${staged.map((one) => one.commit).join(", ")}.`;
    throw new GitRefusal("GIT_NOT_STAGED", `No such commit was staged in this run. ${known}`);
  }

  async #repository(git: Repositories, name: string): Promise<Repository> {
    const allowed = this.#allowed(git);
    if (allowed.includes(name)) return await git.open(name);
    const instead = allowed.length === 0 ? "none" : allowed.join(", ");
    throw new GitRefusal(
      "GIT_NOT_ALLOWED",
      `This worker may not use that repository. Repositories that it may use: ${instead}.`,
    );
  }

  /** A caller that the project does not declare has no repositories to pass on. */
  #allowed(git: Repositories): readonly string[] {
    const { job, env } = this.#parts;
    const callers = job.path.slice(0, -1).map((name) => env.project.workers.get(name)?.git ?? []);
    const own = job.worker.git ?? [];
    return own.filter((name) => git.names.includes(name) && callers.every((theirs) => theirs.includes(name)));
  }

  async #told<T>(work: (git: Repositories) => Promise<T>): Promise<T> {
    const { git } = this.#parts.env;
    if (git === undefined)
      throw new ToolRefusal("GIT_NOT_ALLOWED", "This worker may use no repository: its file names none under `git`.");
    try {
      return await work(git);
    } catch (error) {
      if (!(error instanceof GitRefusal)) throw error;
      if (error.detail !== null) this.#tell(error.detail);
      throw new ToolRefusal(error.code, error.message);
    }
  }

  #tell(detail: string): void {
    const { env, job } = this.#parts;
    env.emit({ type: "trouble", ...identityOf(job), detail });
  }
}

function shownOf({ commit, repository, message, files }: StagedCommit): GitStagedCommit {
  const { name: repo, branch } = repository.repo;
  return { commit, repo, branch, message, files: files.slice(0, MAX_LISTED), fileCount: files.length };
}
