import { isUtf8 } from "node:buffer";
import { createHash } from "node:crypto";
import { chmod, lstat, mkdir, mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import type { GitRepo } from "../declarations/git/repo.ts";
import { below, joinVirtual, parseVirtualPath, type VirtualPath } from "../sandbox/virtual-path.ts";
import { printableLine } from "../text/visible.ts";
import { findGit, type GitCommand, type GitEnd, type GitProgram, runGit } from "./git-program.ts";

/** A refused operation on a repository. The message is for workers: it holds virtual paths only, and no address. */
export class GitRefusal extends Error {
  override readonly name = "GitRefusal";
  readonly code: string;
  /** Git's own output, for people. It may hold host paths, but no secret. */
  readonly detail: string | null;

  constructor(code: string, message: string, detail: string | null = null) {
    super(message);
    this.code = code;
    this.detail = detail;
  }
}

export type EntryPath =
  | { readonly ok: true; readonly path: VirtualPath }
  /** `fault` follows the path in a sentence. */
  | { readonly ok: false; readonly fault: string };

/**
 * The virtual path of a path in a repository. Repositories can contain hostile names, which leave the directory or which
 * another git takes for its `.git` (CVE-2014-9390, CVE-2019-1352).
 */
export function placeOfEntry(at: VirtualPath, path: string): EntryPath {
  const fault = faultOfEntry(path);
  if (fault !== null) return { ok: false, fault };
  const parsed = parseVirtualPath(`${at}/${path}`);
  if (!parsed.ok) return { ok: false, fault: `is not possible here: ${parsed.reason}` };
  return parsed.path === joinVirtual(at, path) ? parsed : { ok: false, fault: "is not a plain path" };
}

/** Why git itself would not check an entry out; null if it would. The fault follows the path in a sentence. */
function faultOfEntry(path: string): string | null {
  const parts = path.split("/");
  if (parts.some((part) => part === "" || part === "." || part === "..")) return "is not a plain path";
  return parts.some(isGitsOwn) ? "is inside of git's own directory" : null;
}

/** Characters that HFS+ ignores when it compares names. */
const IGNORED_BY_HFS = /[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]/gu;
/** `.git` in any case, its NTFS short name, and with the suffixes that NTFS ignores. */
const GIT_NAME = /^(\.git|git~\d+)[ .]*(:.*)?$/iu;

function isGitsOwn(part: string): boolean {
  const folded = part.replace(IGNORED_BY_HFS, "");
  return GIT_NAME.test(folded) || GIT_NAME.test(folded.normalize("NFKC"));
}

/** A file or directory of a repository: its path there, and its virtual path. */
export interface WantedPath {
  /** From the root of the repository; empty for the whole repository. */
  readonly entry: string;
  readonly path: VirtualPath;
}

/** Parses a worker's path: from the root of the repository, or absolute and below its directory. */
export function wantedIn({ at, name }: GitRepo, raw: string): WantedPath {
  const plain = raw.startsWith("/") ? belowPlace(at, raw) : raw.replace(/^(\.\/+)+/, "").replace(/\/+$/, "");
  if (plain === "" || plain === ".") return { entry: "", path: at };
  const place: EntryPath = plain === null ? { ok: false, fault: `is not below ${at}` } : placeOfEntry(at, plain);
  if (!place.ok || plain === null)
    throw new GitRefusal(
      "GIT_PATH",
      `'${printableLine(raw)}' cannot be a path of the repository ${name}: it ${place.ok ? "is empty" : place.fault}. ` +
        `Name files from the root of the repository, as in 'notes/a.md', or by their full path below ${at}.`,
    );
  return { entry: plain, path: place.path };
}

function belowPlace(at: VirtualPath, raw: string): string | null {
  const parsed = parseVirtualPath(raw);
  return parsed.ok ? below(at, parsed.path) : null;
}

/** The files of one commit in a tar archive, which disposing removes. */
export interface TreeArchive extends AsyncDisposable {
  /** Of the archive, on the host. */
  readonly path: string;
  /** Its id. */
  readonly commit: string;
}

const MAX_ENTRIES = 200_000;
const MAX_BYTES = 2 * 1024 ** 3;
/** Of the list of the entries. */
const MAX_LIST_BYTES = 32 * 1024 ** 2;
const TIMEOUT_MS = 5 * 60_000;

/**
 * A `.gitattributes` of a stranger's commit can name filters, which are programs of the host, leave files out, or have others
 * rewritten. Here git unsets each such attribute before it looks at the commit.
 */
const ATTRIBUTES = "* !export-ignore !export-subst !filter !ident !text !crlf !eol !working-tree-encoding\n";

/**
 * Writes the files of a commit of the repository in or above `cwd` into an archive, as they are in the commit. Git reads the objects
 * alone: no configuration, no hook and no attribute of the repository or of the user counts. Submodules are empty directories.
 *
 * @throws GitRefusal
 */
export async function archiveOf(
  revision: string,
  { cwd, signal }: { readonly cwd: string; readonly signal: AbortSignal },
): Promise<TreeArchive> {
  const path = await findGit();
  if (path === null) throw new GitRefusal("GIT_MISSING", "git is not installed");
  const place = await mkdtemp(join(tmpdir(), "corral-tree-"));
  const remove = async (): Promise<void> => await rm(place, { recursive: true, force: true });
  try {
    const archive = new Archive({ path, home: place }, signal);
    const commit = await archive.write(revision, await repositoryAt(cwd), join(place, "tree.tar"));
    return { path: join(place, "tree.tar"), commit, [Symbol.asyncDispose]: remove };
  } catch (error) {
    await remove();
    throw error;
  }
}

class Archive {
  readonly #program: GitProgram;
  readonly #signal: AbortSignal;

  constructor(program: GitProgram, signal: AbortSignal) {
    this.#program = program;
    this.#signal = signal;
  }

  /** Answers with the id of the commit. */
  async write(revision: string, repository: string, file: string): Promise<string> {
    const { commit, format, objects } = await this.#placeOf(revision, repository);
    const gitDir = join(this.#program.home, "git");
    await makeEmptyRepository(gitDir, format);
    const env = { GIT_OBJECT_DIRECTORY: objects };
    const list = async (...how: string[]): Promise<GitEnd> =>
      await this.#git(gitDir, ["ls-tree", "-r", "-z", "--full-tree", ...how, commit], env, MAX_LIST_BYTES);
    // Sizes take git much longer than names, and a small pack can name a tree of any number of files.
    refuseTooMany(await list("--name-only"), revision);
    refuseUnfit(await list("-l"), revision);
    const args = ["archive", "--format=tar", `--output=${file}`, commit];
    const end = await this.#git(gitDir, args, env);
    if (end.status !== 0) throw failure(end, revision);
    // In the cell another user reads it.
    await chmod(file, 0o444);
    return commit;
  }

  /** The id of the commit, and where its objects are: one start of git, which takes longer than what it does. */
  async #placeOf(revision: string, repository: string) {
    const where = ["--show-object-format", "--path-format=absolute", "--git-path", "objects"];
    // What begins with a dash would be an option of git.
    const asked = revision.startsWith("-") ? [] : ["--verify", "--quiet", `${revision}^{commit}`];
    const { status, stdout } = await this.#git(repository, ["rev-parse", ...where, ...asked]);
    const [, format = "", objects = "", commit] =
      /^(\w+)\n(.*)\n([0-9a-f]{40,64})\n$/s.exec(status === 0 ? stdout.toString("utf8") : "") ?? [];
    if (commit !== undefined) return { commit, format, objects };
    throw new GitRefusal(
      "NOT_FOUND",
      `the repository ${repository} has no commit ${printableLine(revision)}: fetch it first`,
    );
  }

  async #git(
    gitDir: string,
    args: readonly string[],
    env: GitCommand["env"] = {},
    maxOutputBytes = 64 * 1024,
  ): Promise<GitEnd> {
    const settings = ["tar.umask=0022"];
    const signal = this.#signal;
    const command = { gitDir, args, env, settings, signal, maxOutputBytes, timeoutMs: TIMEOUT_MS };
    return await runGit(this.#program, { ...command, protocol: "file" });
  }
}

function refuseTooMany({ status, stdout, stderr, cut, timedOut }: GitEnd, revision: string): void {
  let count = 0;
  for (let at = stdout.indexOf(0); at >= 0; at = stdout.indexOf(0, at + 1)) count += 1;
  if (cut || count > MAX_ENTRIES) throw tooLarge(revision);
  if (status !== 0) throw failure({ stderr, timedOut }, revision);
}

/** Nothing is written before the size of all files is known, and before git would check each of them out. */
function refuseUnfit(list: GitEnd, revision: string): void {
  if (list.status !== 0) throw list.cut ? tooLarge(revision) : failure(list, revision);
  const { entries, unreadable } = parseTree(list.stdout);
  if ([...entries.values()].reduce((sum, { size }) => sum + size, 0) > MAX_BYTES) throw tooLarge(revision);
  for (const path of [...entries.keys(), ...unreadable]) {
    const fault = faultOfEntry(path);
    if (fault !== null)
      throw new GitRefusal(
        "GIT_PATH",
        `${printableLine(revision)} has a file '${printableLine(path)}', which ${fault}`,
      );
  }
}

function tooLarge(revision: string): GitRefusal {
  const most = `at most ${MAX_ENTRIES} files and ${MAX_BYTES / 1024 ** 3} GiB can be attached`;
  return new GitRefusal("GIT_TOO_LARGE", `the files of ${printableLine(revision)} are too many or too large: ${most}`);
}

function failure({ stderr, timedOut }: Pick<GitEnd, "stderr" | "timedOut">, revision: string): GitRefusal {
  const why = timedOut ? "git did not end in time" : printableLine(stderr.trim().split("\n").at(-1) ?? "");
  const hint = "a repository that was fetched with --filter has not all files";
  return new GitRefusal("GIT_FAILED", `the files of ${printableLine(revision)} cannot be read: ${why} (${hint})`);
}

/** Only the objects of another one are read through it. */
async function makeEmptyRepository(gitDir: string, objectFormat: string): Promise<void> {
  await mkdir(join(gitDir, "info"), { recursive: true });
  for (const folder of ["objects", "refs"]) await mkdir(join(gitDir, folder));
  const sha256 = objectFormat === "sha256";
  const core = `[core]\n\trepositoryformatversion = ${sha256 ? 1 : 0}\n\tbare = true\n`;
  await writeFile(join(gitDir, "config"), core + (sha256 ? "[extensions]\n\tobjectformat = sha256\n" : ""));
  await writeFile(join(gitDir, "HEAD"), "ref: refs/heads/none\n");
  await writeFile(join(gitDir, "info", "attributes"), ATTRIBUTES);
}

/** The `.git` of the nearest folder that has one, upwards, or the nearest bare repository. */
export async function repositoryAt(cwd: string): Promise<string> {
  for (let dir = resolve(cwd); ; dir = dirname(dir)) {
    if (await exists(join(dir, ".git"))) return join(dir, ".git");
    if ((await exists(join(dir, "HEAD"))) && (await isFolder(join(dir, "objects")))) return dir;
    if (dir === dirname(dir)) throw new GitRefusal("NOT_FOUND", `there is no git repository in ${cwd} or its parents`);
  }
}

async function exists(path: string): Promise<boolean> {
  return (await lstat(path).catch(() => null)) !== null;
}

async function isFolder(path: string): Promise<boolean> {
  return await stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );
}

/** One entry of a git tree. `path` is from the root of the repository. */
export interface GitTreeEntry {
  readonly path: string;
  readonly id: string;
  /** As git writes it: `100644`, `100755`, `120000` (a link), `160000` (another repository). */
  readonly mode: string;
  /** In bytes. */
  readonly size: number;
}

export interface TreeEntries {
  readonly entries: ReadonlyMap<string, GitTreeEntry>;
  /** Names that are not UTF-8, with replacement characters. */
  readonly unreadable: readonly string[];
}

/** Parses the output of `ls-tree -r -l -z`. */
export function parseTree(output: Buffer): TreeEntries {
  const entries = new Map<string, GitTreeEntry>();
  const unreadable: string[] = [];
  for (let start = 0; start < output.length; ) {
    const zero = output.indexOf(0, start);
    const end = zero < 0 ? output.length : zero;
    const line = output.subarray(start, end);
    start = end + 1;
    const tab = line.indexOf(9);
    const head = line.subarray(0, tab).toString("latin1");
    const [, mode, id, size] = /^(\d{6}) [a-z]+ ([0-9a-f]{40,64}) +(\d+|-)$/.exec(head) ?? [];
    if (mode === undefined || id === undefined) throw new Error(`git listed a tree in an unknown form: ${head}`);
    const name = line.subarray(tab + 1);
    const path = name.toString();
    if (isUtf8(name)) entries.set(path, { path, id, mode, size: size === "-" ? 0 : Number(size) });
    else unreadable.push(path);
  }
  return { entries, unreadable };
}

/** Why an entry cannot become a file; null if it can. */
export function whyNoFile({ mode }: GitTreeEntry): string | null {
  if (mode.startsWith("100")) return null;
  return mode === "120000" ? "is a symbolic link" : "is another repository";
}

/** Every directory above a path, from the root (the empty name) downwards. */
export function foldersOf(path: string): string[] {
  const parts = path.split("/").slice(0, -1);
  return ["", ...parts.map((_, index) => parts.slice(0, index + 1).join("/"))];
}

/** Git's object id of a file's content. */
export function blobId(content: Uint8Array): string {
  return createHash("sha1").update(`blob ${content.length}\0`).update(content).digest("hex");
}
