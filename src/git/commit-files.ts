import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { printableLine } from "../text/visible.ts";
import { findGit, type GitEnd, type GitProgram, runGit } from "./git-program.ts";
import { GitRefusal, parseTree, repositoryAt } from "./tree-archive.ts";

const TIMEOUT_MS = 60_000;

/** Single files of commits, read from the objects alone: no work tree, hook, filter or attribute counts. Disposing removes its own folder. */
export class CommitFiles implements AsyncDisposable {
  readonly #program: GitProgram;
  readonly #repository: string;
  readonly #signal: AbortSignal;

  private constructor(program: GitProgram, repository: string, signal: AbortSignal) {
    this.#program = program;
    this.#repository = repository;
    this.#signal = signal;
  }

  /** Of the repository in or above `cwd`. @throws GitRefusal */
  static async open(cwd: string, signal: AbortSignal): Promise<CommitFiles> {
    const path = await findGit();
    if (path === null) throw new GitRefusal("GIT_MISSING", "git is not installed");
    const repository = await repositoryAt(cwd);
    return new CommitFiles({ path, home: await mkdtemp(join(tmpdir(), "corral-git-")) }, repository, signal);
  }

  /** The id of a commit. A branch may move: what is done with a commit is done with its id. @throws GitRefusal NOT_FOUND */
  async idOf(revision: string): Promise<string> {
    // What begins with a dash would be an option of git.
    const end = revision.startsWith("-")
      ? null
      : await this.#git(["rev-parse", "--verify", "--quiet", `${revision}^{commit}`], 1024);
    const id = end?.status === 0 ? end.stdout.toString("utf8").trim() : "";
    if (/^[0-9a-f]{40,64}$/.test(id)) return id;
    const shown = printableLine(revision, 200);
    throw new GitRefusal("NOT_FOUND", `the repository ${this.#repository} has no commit ${shown}: fetch it first`);
  }

  /** A file of a commit; null: there is none. @throws GitRefusal for what is no regular file, or is larger */
  async read(commit: string, path: string, maxBytes: number): Promise<Buffer | null> {
    const list = await this.#git(["ls-tree", "-l", "-z", "--full-tree", commit, "--", path], 64 * 1024);
    if (list.status !== 0) throw this.#failure(list, path);
    const entry = parseTree(list.stdout).entries.get(path);
    if (entry === undefined) return null;
    if (!entry.mode.startsWith("100"))
      throw new GitRefusal("GIT_PATH", `${printableLine(path)} of commit ${commit.slice(0, 12)} is not a regular file`);
    if (entry.size > maxBytes)
      throw new GitRefusal("GIT_TOO_LARGE", `${printableLine(path)} of commit ${commit.slice(0, 12)} is too large`);
    const end = await this.#git(["cat-file", "blob", entry.id], maxBytes + 1);
    if (end.status !== 0) throw this.#failure(end, path);
    return end.stdout;
  }

  async #git(args: readonly string[], maxOutputBytes: number): Promise<GitEnd> {
    const command = { gitDir: this.#repository, args, maxOutputBytes, signal: this.#signal, timeoutMs: TIMEOUT_MS };
    // A clone without all objects would fetch what is missing.
    return await runGit(this.#program, { ...command, env: { GIT_NO_LAZY_FETCH: "1" }, protocol: "file" });
  }

  #failure({ stderr, timedOut }: GitEnd, path: string): GitRefusal {
    const why = timedOut ? "git did not end in time" : printableLine(stderr.trim().split("\n").at(-1) ?? "");
    return new GitRefusal("GIT_FAILED", `${printableLine(path)} cannot be read: ${why}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.#program.home, { recursive: true, force: true });
  }
}
