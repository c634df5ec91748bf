import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { GitRepo } from "../declarations/git/repo.ts";
import { findGit } from "./git-program.ts";
import { Mirror, type MirrorOptions } from "./mirror.ts";
import { Repository, TreeRepositories } from "./repository.ts";
import { GitRefusal } from "./tree-archive.ts";

export interface RepositoriesOptions extends Pick<MirrorOptions, "owner" | "isLive" | "env"> {
  /** The directory for the mirrors of one project: Corral's own, which no worker can reach. */
  readonly dir: string;
  readonly repos: ReadonlyMap<string, GitRepo>;
  /** Called after a commit was pushed. */
  readonly onPushed?: (pushed: PushRecord) => Promise<void>;
}

/** A push, for the audit trail. */
export interface PushRecord {
  readonly run: string;
  readonly root: string;
  readonly worker: string;
  readonly repo: string;
  readonly branch: string;
  readonly commit: string;
  /** Virtual paths. */
  readonly files: readonly string[];
}

/** The repositories of a project. The mirror of each is made at its first use. */
export class Repositories implements AsyncDisposable {
  readonly #options: RepositoriesOptions;
  readonly #opened = new Map<string, Promise<Repository>>();
  readonly #states = new WeakMap<object, TreeRepositories>();
  readonly #over = new AbortController();

  constructor(options: RepositoriesOptions) {
    this.#options = options;
  }

  get names(): readonly string[] {
    return [...this.#options.repos.keys()];
  }

  /** By its declared name. */
  async open(name: string): Promise<Repository> {
    const opening = this.#opened.get(name) ?? this.#openNow(name);
    this.#opened.set(name, opening);
    try {
      return await opening;
    } catch (error) {
      // The next call tries again: the disk may have been full.
      this.#opened.delete(name);
      throw error;
    }
  }

  /** The state of one tree of runs. `tree` is any object that all of its runs share. */
  stateOf(tree: object): TreeRepositories {
    const state = this.#states.get(tree) ?? new TreeRepositories();
    this.#states.set(tree, state);
    return state;
  }

  /** Drops the commits that a tree, which has ended, did not push. */
  async endTree(tree: object): Promise<void> {
    const staged = [...(this.#states.get(tree)?.staged.values() ?? [])];
    this.#states.delete(tree);
    for (const { repository, ref } of staged) await leftToOthers(repository.drop([ref], this.#over.signal));
  }

  async pushed(record: PushRecord): Promise<void> {
    await this.#options.onPushed?.(record);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#over.signal.aborted) return;
    const opened = await Promise.allSettled(this.#opened.values());
    for (const one of opened) if (one.status === "fulfilled") await leftToOthers(one.value.dropOwn(this.#over.signal));
    this.#over.abort(new Error("the project was closed"));
  }

  async #openNow(name: string): Promise<Repository> {
    const { repos, dir, owner, isLive, env } = this.#options;
    const repo = repos.get(name);
    if (repo === undefined) throw new RangeError(`the project has no repository ${name}`);
    const path = await findGit();
    if (path === null) throw new GitRefusal("GIT_MISSING", "Repositories cannot be used: git is not installed.");
    const home = join(dir, "home");
    await mkdir(home, { recursive: true, mode: 0o700 });
    const program = { path, home };
    const options = { program, gitDir: join(dir, `${name}.git`), owner, isLive, env };
    return new Repository(await Mirror.open(repo, options, this.#over.signal));
  }
}

/** A ref that cannot be removed now is removed when the mirror is opened the next time. */
async function leftToOthers(removing: Promise<void>): Promise<void> {
  try {
    await removing;
  } catch (error) {
    if (!(error instanceof GitRefusal)) throw error;
  }
}
