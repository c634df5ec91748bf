import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CheckedAccess } from "../files/checked-access.ts";
import { contentOf } from "../files/host/content.ts";
import { openRoots, type Roots } from "../files/host/descriptor.ts";
import { openFoundFile } from "../files/host/look.ts";
import { walk } from "../files/host/walk.ts";
import { unfit, withRefusals } from "../files/model/refusals.ts";
import { readAll } from "../files/read/read-text.ts";
import { sha256 } from "../platform/sha256.ts";
import { NotFoundError } from "../sandbox/errors.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { VirtualPath } from "../sandbox/virtual-path.ts";
import { printableLine, visibleName } from "../text/visible.ts";
import {
  findGit,
  type GitEnd,
  type GitProgram,
  MAX_FILE_BYTES,
  MAX_STAGED_COMMITS,
  MAX_STAGED_FILES,
  MAX_TREE_STAGED_BYTES,
  runGit,
} from "./git-program.ts";
import type {
  CommitDiff,
  CommitHead,
  FileChange,
  Repository,
  StagedCommit,
  StagedFile,
  TreeRepositories,
} from "./repository.ts";
import {
  blobId,
  foldersOf,
  GitRefusal,
  type GitTreeEntry,
  parseTree,
  placeOfEntry,
  repositoryAt,
  type WantedPath,
  wantedIn,
} from "./tree-archive.ts";

/**
 * Reads a worker's files as bytes, with the checks of every other file operation. No link is followed, so that a worker cannot
 * choose another file for the repository.
 */
export class FileBytes implements Disposable {
  readonly #access: CheckedAccess;
  readonly #roots: Roots;

  constructor(sandbox: Sandbox) {
    this.#access = new CheckedAccess(sandbox);
    this.#roots = openRoots(sandbox.mounts);
  }

  /** Null if it does not exist. Throws `SandboxError` if it may not be read, or is not a regular file. */
  async read(path: VirtualPath, maxBytes: number, signal: AbortSignal): Promise<Buffer | null> {
    signal.throwIfAborted();
    const place = this.#access.toRead(path);
    try {
      return await withRefusals("read", path, async () => {
        const root = this.#roots.get("read", place.mount);
        using found = walk({ operation: "read", root, parts: place.parts, links: "refuse", asked: path });
        using file = openFoundFile("read", place, found);
        const source = contentOf(file);
        this.#access.checks.read?.(found.path, source.size);
        if (source.size > maxBytes) throw unfit("read", path, `it is larger than ${maxBytes} bytes.`);
        return await readAll(source);
      });
    } catch (error) {
      if (error instanceof NotFoundError) return null;
      throw error;
    }
  }

  [Symbol.dispose](): void {
    this.#roots[Symbol.dispose]();
  }
}

export interface StageFilesRequest {
  readonly files: readonly string[];
  readonly message: string;
  /** The author of the commit, if the repository's declaration names none. */
  readonly author: CommitHead["author"];
}

const NEW_FILE = "100644";

/** Makes a commit of a worker's files on top of the branch. Nothing leaves the machine, so no approval is needed yet. */
export async function stage(
  repository: Repository,
  request: StageFilesRequest,
  bytes: FileBytes,
  state: TreeRepositories,
  signal: AbortSignal,
): Promise<StagedCommit> {
  const { repo } = repository;
  refuseTooMuch(request, state);
  const wanted = wholeFiles(request.files.map((raw) => wantedIn(repo, raw)));
  const parent = await repository.tip(signal);
  const { entries } = await repository.entriesAt(parent, signal);
  const seen = state.seenOf(repo.name);

  const changes: FileChange[] = [];
  const files: StagedFile[] = [];
  const digests: string[] = [];
  const ids = new Map<string, string | null>();
  for (const { entry, path } of wanted) {
    const content = await bytes.read(path, MAX_FILE_BYTES, signal);
    const there = entries.get(entry);
    if (content === null && there === undefined)
      throw new GitRefusal("NOT_FOUND", `'${path}' exists neither here nor in the repository ${repo.name}.`);
    const id = content === null ? null : blobId(content);
    if (id === there?.id) continue;
    if (there !== undefined && seen.get(entry) !== there.id) throw notPulled(path, repo.name);
    state.stagedBytes += content?.length ?? 0;
    if (state.stagedBytes > MAX_TREE_STAGED_BYTES)
      throw new GitRefusal(
        "GIT_TOO_LARGE",
        `A run and the runs it calls can stage at most ${MAX_TREE_STAGED_BYTES} bytes together.`,
      );
    changes.push({ path: entry, mode: modeOf(there?.mode), content });
    const change = content === null ? "deleted" : there === undefined ? "added" : "modified";
    files.push({ path, change });
    digests.push(digestLine({ path, change }, content));
    ids.set(entry, id);
  }
  for (const { path: entry, id } of displacedBy(changes, entries)) {
    const place = placeOfEntry(repo.at, entry);
    if (!place.ok)
      throw new GitRefusal(
        "GIT_PATH",
        `The repository ${repo.name} has '${printableLine(entry)}' in the place of one of these files, which ${place.fault}.`,
      );
    const { path } = place;
    if (seen.get(entry) !== id) throw notPulled(path, repo.name);
    changes.push({ path: entry, mode: NEW_FILE, content: null });
    files.push({ path, change: "deleted" });
    digests.push(digestLine({ path, change: "deleted" }, null));
    ids.set(entry, null);
  }
  if (changes.length === 0) throw nothingNew(repo.name);
  const head = { message: `${request.message.trim()}\n`, author: repo.author ?? request.author };
  const made = await repository.commit(parent, changes, head, signal);
  if (made === null) throw nothingNew(repo.name);
  const diff = await repository.diffOf(parent, made.commit, signal);
  const message = request.message.trim();
  const question = shownCommit({ commit: made.commit, message, digests, diff });
  const staged: StagedCommit = { repository, ...made, message, files, diff: diff.text, question, ids };
  state.staged.set(made.commit, staged);
  return staged;
}

function refuseTooMuch({ files, message }: StageFilesRequest, state: TreeRepositories): void {
  if (files.length > MAX_STAGED_FILES)
    throw new GitRefusal("GIT_TOO_LARGE", `At most ${MAX_STAGED_FILES} files can be staged at once.`);
  if (state.staged.size >= MAX_STAGED_COMMITS)
    throw new GitRefusal(
      "GIT_TOO_MANY",
      `There are ${MAX_STAGED_COMMITS} staged commits already. Push or discard one of them first.`,
    );
  if (message.trim() === "") throw new GitRefusal("GIT_MESSAGE", "A commit needs a message that says what it changes.");
  if (message.includes("\0")) throw new GitRefusal("GIT_MESSAGE", "A message cannot hold a NUL character.");
}

/** Each file once. The repository itself is not a file. */
function wholeFiles(wanted: readonly WantedPath[]): readonly WantedPath[] {
  if (wanted.some(({ entry }) => entry === ""))
    throw new GitRefusal("GIT_PATH", "Name each file for the commit: directories cannot be staged.");
  return [...new Map(wanted.map((one) => [one.entry, one])).values()];
}

/** Entries that the new files replace: a file where a directory is needed, and everything below a path that becomes a file. */
function displacedBy(changes: readonly FileChange[], entries: ReadonlyMap<string, GitTreeEntry>): GitTreeEntry[] {
  const named = new Set(changes.map(({ path }) => path));
  const added = new Set(changes.filter(({ content }) => content !== null).map(({ path }) => path));
  const folders = new Set([...added].flatMap(foldersOf));
  return [...entries.values()].filter(
    ({ path }) => !named.has(path) && (folders.has(path) || foldersOf(path).some((folder) => added.has(folder))),
  );
}

/** An existing file keeps its executable bit. A link or a submodule becomes a file. */
function modeOf(mode: string | undefined): string {
  return mode?.startsWith("100") ? mode : NEW_FILE;
}

/** The worker's file may be older than the repository's: staging it would undo the changes of others. */
function notPulled(path: string, name: string): GitRefusal {
  return new GitRefusal(
    "GIT_NOT_PULLED",
    `The repository ${name} has a version of '${path}' that was not pulled in this run. Pull it with git_pull first: a file that you changed is kept as it is and can then be staged.`,
  );
}

function nothingNew(name: string): GitRefusal {
  return new GitRefusal("GIT_NOTHING_NEW", `The repository ${name} already has all of these files with this content.`);
}

/** `content`: null for a deletion. */
function digestLine({ path, change }: StagedFile, content: Uint8Array | null): string {
  const digest = content === null ? "" : ` (${content.length} bytes, SHA-256 ${sha256(content)})`;
  return `${change} ${visibleName(path)}${digest}`;
}

interface MadeCommit {
  readonly commit: string;
  readonly message: string;
  /** A line for each changed file. */
  readonly digests: readonly string[];
  readonly diff: CommitDiff;
}

/** All of a commit: its message, and its diff. If the diff does not contain everything, the digests come first. */
function shownCommit({ commit, message, digests, diff }: MadeCommit): string {
  const head = [`commit ${commit}`, ...message.split("\n").map((line) => `message: ${line}`)];
  const list = diff.isWhole ? [] : ["all changed files, because the diff below does not show everything:", ...digests];
  return [...head, ...list, diff.text].join("\n");
}

const TIMEOUT_MS = 60_000;
const MAX_LIST_BYTES = 1024 * 1024;
/** Of all files that are read at once. */
const MAX_TOTAL_BYTES = 256 * 1024 * 1024;
/** What git writes before and after a file. */
const MAX_HEAD_BYTES = 100;

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
    return (await this.readAll(commit, [path], maxBytes)).get(path) ?? null;
  }

  /** The same of several, by path, each at most so large: to start git takes longer than to read a file. */
  async readAll(
    commit: string,
    paths: readonly string[],
    maxBytes: number,
  ): Promise<ReadonlyMap<string, Buffer | null>> {
    const found = new Map<string, Buffer | null>(paths.map((path) => [path, null]));
    if (found.size === 0) return found;
    const list = await this.#git(["ls-tree", "-l", "-z", "--full-tree", commit, "--", ...found.keys()], MAX_LIST_BYTES);
    if (list.status !== 0) throw this.#failure(list, paths.join(" "));
    const entries = [...parseTree(list.stdout).entries.values()].filter(({ path }) => found.has(path));
    const fault = (path: string, code: string, what: string) =>
      new GitRefusal(code, `${printableLine(path)} of commit ${commit.slice(0, 12)} is ${what}`);
    let total = 0;
    for (const { path, mode, size } of entries) {
      if (!mode.startsWith("100")) throw fault(path, "GIT_PATH", "not a regular file");
      total += size;
      if (size > maxBytes || total > MAX_TOTAL_BYTES) throw fault(path, "GIT_TOO_LARGE", "too large");
    }
    if (entries.length === 0) return found;
    const ids = entries.map(({ id }) => `${id}\n`).join("");
    const end = await this.#git(["cat-file", "--batch"], total + entries.length * MAX_HEAD_BYTES, ids);
    if (end.status !== 0) throw this.#failure(end, paths.join(" "));
    let at = 0;
    for (const { path, id, size } of entries) {
      const head = `${id} blob ${size}\n`;
      const from = at + head.length;
      if (end.stdout.toString("latin1", at, from) !== head) throw this.#failure(end, path);
      found.set(path, end.stdout.subarray(from, from + size));
      at = from + size + 1;
    }
    return found;
  }

  async #git(args: readonly string[], maxOutputBytes: number, input = ""): Promise<GitEnd> {
    const [gitDir, signal] = [this.#repository, this.#signal];
    const command = { gitDir, args, input, maxOutputBytes, signal, timeoutMs: TIMEOUT_MS };
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
