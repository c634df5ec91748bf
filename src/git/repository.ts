import { isUtf8 } from "node:buffer";
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import PQueue from "p-queue";
import type { GitRepo } from "../declarations/git/repo.ts";
import type { VirtualPath } from "../sandbox/virtual-path.ts";
import { findGit, type GitEnd, LOCAL_RECEIVE_PACK } from "./git-program.ts";
import { Mirror, type MirrorOptions } from "./mirror.ts";
import { GitRefusal, type GitTreeEntry, parseTree, type TreeEntries } from "./tree-archive.ts";

/** A commit that was made and not pushed. */
export interface StagedCommit {
  readonly repository: Repository;
  readonly commit: string;
  readonly ref: string;
  readonly message: string;
  readonly files: readonly StagedFile[];
  readonly diff: string;
  /** What the question about its push shows: all that is agreed to, as text or as digests. */
  readonly question: string;
  /** The id of each of its files afterwards. Null for a deleted file. */
  readonly ids: ReadonlyMap<string, string | null>;
}

export interface StagedFile {
  readonly path: VirtualPath;
  readonly change: "added" | "modified" | "deleted";
}

/** What one tree of runs knows of repositories. Trees share nothing. */
export class TreeRepositories {
  readonly staged = new Map<string, StagedCommit>();
  /** All bytes ever staged, including discarded commits: their objects stay in the mirror for hours. */
  stagedBytes = 0;
  readonly #seen = new Map<string, Map<string, string | null>>();

  /** The version of each file of one repository (null: none) that the tree has seen. */
  seenOf(repository: string): Map<string, string | null> {
    const seen = this.#seen.get(repository) ?? new Map<string, string | null>();
    this.#seen.set(repository, seen);
    return seen;
  }
}

/** One changed file of a commit. `content` is null for a deletion. */
export interface FileChange {
  readonly path: string;
  readonly mode: string;
  readonly content: Uint8Array | null;
}

export interface CommitDiff {
  readonly text: string;
  /** False if it is cut, or if some of the new content is not in it as it is, because it is no text. */
  readonly isWhole: boolean;
}

export interface CommitHead {
  readonly message: string;
  readonly author: { readonly name: string; readonly email: string };
}

const MAX_WAITING = 100;
const MAX_TREE_BYTES = 64 * 1024 * 1024;
const MAX_HISTORY_BYTES = 16 * 1024 * 1024;
const MAX_HISTORY_COMMITS = 2000;
/** The most paths that are passed to `git log`. For more, the whole history is read. */
const MAX_NAMED_PATHS = 500;
const MAX_DIFF_BYTES = 256 * 1024;
/** The most bytes of files that are read from the mirror at once. */
const BATCH_BYTES = 32 * 1024 * 1024;

/** One repository. In this process, its operations run one at a time. */
export class Repository {
  readonly #mirror: Mirror;
  readonly #queue = new PQueue({ concurrency: 1 });
  /** Undefined until the first fetch in this process. Null if the branch does not exist yet. */
  #tip: string | null | undefined;
  #counter = 0;

  constructor(mirror: Mirror) {
    this.#mirror = mirror;
  }

  get repo(): GitRepo {
    return this.#mirror.repo;
  }

  /** Fetches the branch and returns its last commit. Null if the remote has no such branch. */
  async fetch(signal: AbortSignal): Promise<string | null> {
    return await this.#inTurn(() => this.#fetchNow(signal), signal);
  }

  /** The branch's last commit as of the last fetch in this process, which is made if there was none. */
  async tip(signal: AbortSignal): Promise<string | null> {
    return await this.#inTurn(async () => (this.#tip === undefined ? await this.#fetchNow(signal) : this.#tip), signal);
  }

  /** All entries of a commit; none for null. */
  async entriesAt(commit: string | null, signal: AbortSignal): Promise<TreeEntries> {
    if (commit === null) return { entries: new Map(), unreadable: [] };
    const args = ["ls-tree", "-r", "-l", "-z", "--full-tree", commit];
    return parseTree(await this.#mirror.output(args, { maxOutputBytes: MAX_TREE_BYTES }, signal));
  }

  /** The contents of files, read in batches. */
  async *contents(
    files: readonly GitTreeEntry[],
    signal: AbortSignal,
  ): AsyncGenerator<readonly [GitTreeEntry, Buffer]> {
    for (const batch of batchesOf(files)) {
      const input = batch.map(({ id }) => `${id}\n`).join("");
      const maxOutputBytes = batch.reduce((sum, { size }) => sum + size + 100, 0);
      const output = await this.#mirror.output(["cat-file", "--batch"], { input, maxOutputBytes }, signal);
      let at = 0;
      for (const file of batch) {
        const headEnd = output.indexOf(10, at);
        const head = output.subarray(at, headEnd).toString("latin1");
        if (head !== `${file.id} blob ${file.size}`) throw new Error(`git answered ${head} for ${file.id}`);
        yield [file, output.subarray(headEnd + 1, headEnd + 1 + file.size)];
        at = headEnd + 1 + file.size + 1;
      }
    }
  }

  /** For each path, the ids of the contents that it had in the last commits: a local file with one of them can be replaced safely. */
  async historyOf(
    paths: readonly string[],
    commit: string,
    signal: AbortSignal,
  ): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
    const args = ["log", "--format=", "--raw", "-z", "-m", "--full-history", "--no-renames", "--no-abbrev"];
    const named = paths.length <= MAX_NAMED_PATHS ? paths : [];
    const all = [...args, "--root", `--max-count=${MAX_HISTORY_COMMITS}`, "--end-of-options", commit, "--", ...named];
    const end = await this.#mirror.local(all, { maxOutputBytes: MAX_HISTORY_BYTES }, signal);
    if (end.status !== 0 && !end.cut) throw this.#mirror.failure(end, "could not be read");
    const history = new Map<string, Set<string>>(paths.map((path) => [path, new Set()]));
    const fields = end.stdout.toString("utf8").split("\0");
    for (let at = 0; at + 1 < fields.length; ) {
      const ids = /^\n*:\d+ \d+ ([0-9a-f]+) ([0-9a-f]+) [A-Z]\d*$/.exec(fields[at] ?? "");
      if (ids === null) {
        at += 1;
        continue;
      }
      const seen = history.get(fields[at + 1] ?? "");
      for (const id of ids.slice(1)) seen?.add(id);
      at += 2;
    }
    return history;
  }

  /** Makes a commit on top of `parent`, under a ref of this process. Null if it would change nothing. */
  async commit(
    parent: string | null,
    changes: readonly FileChange[],
    head: CommitHead,
    signal: AbortSignal,
  ): Promise<{ readonly commit: string; readonly ref: string } | null> {
    return await this.#inTurn(async () => {
      const tree = await this.#treeWith(parent, changes, signal);
      const before =
        parent === null ? null : await this.#line(["rev-parse", "--verify", `${parent}^{tree}`], {}, signal);
      if (tree === before) return null;
      const parents = parent === null ? [] : ["-p", parent];
      const { name, email } = head.author;
      const env = {
        GIT_AUTHOR_NAME: name,
        GIT_AUTHOR_EMAIL: email,
        GIT_COMMITTER_NAME: name,
        GIT_COMMITTER_EMAIL: email,
      };
      const commit = await this.#line(
        ["commit-tree", tree, ...parents, "-F", "-"],
        { input: head.message, env },
        signal,
      );
      this.#counter += 1;
      const ref = this.#mirror.ownRef(String(this.#counter));
      await this.#mirror.output(["update-ref", "--no-deref", ref, commit], {}, signal);
      return { commit, ref };
    }, signal);
  }

  /** The diff of a commit, for people. The repository's own attributes and filters cannot change how it is shown. */
  async diffOf(parent: string | null, commit: string, signal: AbortSignal): Promise<CommitDiff> {
    const shown = ["-r", "-p", "--no-commit-id", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames"];
    const between = parent === null ? ["--root", commit] : [parent, commit];
    const args = ["diff-tree", ...shown, ...between];
    const end = await this.#mirror.local(args, { maxOutputBytes: MAX_DIFF_BYTES }, signal);
    if (end.status !== 0 && !end.cut) throw this.#mirror.failure(end, "could not be compared");
    const text = new TextDecoder().decode(end.stdout);
    return {
      text: end.cut ? `${text}\n[the rest of the diff is not shown]\n` : text,
      // Lines of files begin with a blank, `+` or `-`.
      isWhole: !end.cut && isUtf8(end.stdout) && !/^Binary files /m.test(text),
    };
  }

  /** Pushes a commit to the branch. Refused if the branch has changed since. */
  async push(commit: string, signal: AbortSignal): Promise<void> {
    await this.#inTurn(async () => {
      const { url, branch, protocol, name } = this.repo;
      const local = protocol === "file" ? [`--receive-pack=${LOCAL_RECEIVE_PACK}`] : [];
      const options = ["--porcelain", "--quiet", "--no-verify", "--no-follow-tags", "--no-signed", ...local];
      const args = ["push", ...options, "--end-of-options", url, `${commit}:refs/heads/${branch}`];
      const end = await this.#mirror.remote(args, signal);
      if (end.status !== 0) {
        if (
          /\[(rejected|remote rejected)\] \((fetch first|non-fast-forward|failed to update ref|stale info)/.test(
            end.stdout.toString(),
          )
        )
          throw new GitRefusal(
            "GIT_REJECTED",
            `The repository ${name} changed after this commit was staged. Discard the commit with git_discard, pull with git_pull, and stage again.`,
          );
        throw this.#remoteFailure(end);
      }
      this.#tip = commit;
      await this.#mirror.output(["update-ref", "--no-deref", this.#mirror.trackingRef, commit], {}, signal);
    }, signal);
  }

  async drop(refs: readonly string[], signal: AbortSignal): Promise<void> {
    await this.#inTurn(() => this.#mirror.removeRefs(refs, signal), signal);
  }

  /** Removes all commits that this process staged and did not push. */
  async dropOwn(signal: AbortSignal): Promise<void> {
    await this.drop(await this.#mirror.stagedRefs("own", signal), signal);
  }

  async #fetchNow(signal: AbortSignal): Promise<string | null> {
    const { url, branch } = this.repo;
    const { trackingRef } = this.#mirror;
    const quiet = ["--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--no-auto-gc"];
    const args = ["fetch", ...quiet, "--end-of-options", url, `+refs/heads/${branch}:${trackingRef}`];
    const end = await this.#mirror.remote(args, signal);
    if (end.status === 0) {
      this.#tip = await this.#line(["rev-parse", "--verify", `${trackingRef}^{commit}`], {}, signal);
      return this.#tip;
    }
    if (!/couldn't find remote ref refs\/heads\//.test(end.stderr)) throw this.#remoteFailure(end);
    await this.#mirror.removeRefs([trackingRef], signal);
    this.#tip = null;
    return null;
  }

  /** Builds the tree in an index of its own. Deletions come first: a file may make room for a directory. */
  async #treeWith(parent: string | null, changes: readonly FileChange[], signal: AbortSignal): Promise<string> {
    const index = this.#mirror.indexPath();
    const env = { GIT_INDEX_FILE: index };
    try {
      const read = await this.#mirror.local(["read-tree", parent ?? "--empty"], { env }, signal);
      if (read.status !== 0) throw this.#mirror.failure(read, "contains names that git refuses");
      const gone = changes.filter(({ content }) => content === null);
      const lines = gone.map(({ path }) => `0 ${"0".repeat(40)}\t${path}\0`);
      for (const { path, mode, content } of changes) {
        if (content === null) continue;
        const id = await this.#line(["hash-object", "-w", "--stdin", "--no-filters"], { input: content }, signal);
        lines.push(`${mode} ${id}\t${path}\0`);
      }
      const end = await this.#mirror.local(
        ["update-index", "-z", "--index-info"],
        { input: lines.join(""), env },
        signal,
      );
      if (end.status !== 0) throw this.#mirror.failure(end, "cannot hold these files together");
      return await this.#line(["write-tree"], { env }, signal);
    } finally {
      await rm(index, { force: true });
      await rm(`${index}.lock`, { force: true });
    }
  }

  async #line(...[args, asked, signal]: Parameters<Mirror["output"]>): Promise<string> {
    return (await this.#mirror.output(args, asked, signal)).toString("utf8").trim();
  }

  #remoteFailure(end: GitEnd): GitRefusal {
    if (AUTHENTICATION.test(end.stderr)) {
      const { detail } = this.#mirror.failure(end, "");
      const text = `The repository ${this.repo.name} did not accept the project's credentials for it.`;
      return new GitRefusal("GIT_CREDENTIALS", text, detail);
    }
    return this.#mirror.failure(end, "could not be reached, or refused the request");
  }

  async #inTurn<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
    if (this.#queue.size >= MAX_WAITING)
      throw new GitRefusal(
        "GIT_BUSY",
        `Too many operations are waiting for the repository ${this.repo.name}. Try again later.`,
      );
    return await this.#queue.add(async () => {
      signal.throwIfAborted();
      return await work();
    });
  }
}

const AUTHENTICATION =
  /Authentication failed|could not read (Username|Password)|Permission denied \(|Host key verification failed|The requested URL returned error: 40[13]/;

function* batchesOf(files: readonly GitTreeEntry[]): Generator<readonly GitTreeEntry[]> {
  let batch: GitTreeEntry[] = [];
  let bytes = 0;
  for (const file of files) {
    if (batch.length > 0 && bytes + file.size > BATCH_BYTES) {
      yield batch;
      [batch, bytes] = [[], 0];
    }
    batch.push(file);
    bytes += file.size;
  }
  if (batch.length > 0) yield batch;
}

export interface RepositoriesOptions extends Pick<MirrorOptions, "owner" | "isLive" | "env"> {
  /** The directory for the mirrors of one project: Corral's own, which no worker can reach. */
  readonly dir: string;
  readonly repos: ReadonlyMap<string, GitRepo>;
  /** Called after a commit was pushed. */
  readonly onPushed?: (pushed: PushRecord) => Promise<void>;
}

/** A push, for the audit trail. */
interface PushRecord {
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
