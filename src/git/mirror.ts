import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, readdir, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import type { GitRepo } from "../declarations/git/repo.ts";
import { hasCode } from "../platform/errno.ts";
import { writeAtomically } from "../platform/write-file.ts";
import { type Env, Redactor, readSecret, SecretUnavailable } from "../secrets/read-secret.ts";
import { present } from "../text/present.ts";
import { printableLine } from "../text/visible.ts";
import { type GitCommand, type GitEnd, type GitProgram, runGit } from "./git-program.ts";
import { GitRefusal } from "./tree-archive.ts";

/** What one git process needs to access a remote. A secret is only in its environment. */
interface Access extends Required<Pick<GitCommand, "settings" | "env">> {
  /** Removes the secret from git's output, in every form in which git may repeat it. */
  readonly redact: (text: string) => string;
}

/** Git runs this with the shell. Name and secret come from the environment, so that no other process sees them. */
const HELPER =
  '!f() { test "$1" = get && printf \'username=%s\\npassword=%s\\n\' "$CORRAL_GIT_USER" "$CORRAL_GIT_SECRET"; }; f';
/** Hosts that accept a token ignore the user name, but require one. */
const DEFAULT_USER = "git";

/** Reads the secret for each use, so that Corral does not keep it. `env`: Corral's own environment. */
async function accessTo(repo: GitRepo, env: Env, signal: AbortSignal): Promise<Access> {
  if (repo.protocol === "ssh") {
    const socket = env.SSH_AUTH_SOCK;
    return { settings: [], env: present({ SSH_AUTH_SOCK: socket }), redact: (text) => text };
  }
  if (repo.credentials === null) return { settings: [], env: {}, redact: (text) => text };
  const secret = await secretOf(repo, env, signal);
  const { origin, username } = new URL(repo.url);
  const user = username === "" ? DEFAULT_USER : decodeURIComponent(username);
  // HTTP repeats both words together, in base64.
  const redactor = new Redactor([secret, `${user}:${secret}`]);
  return {
    settings: [`credential.${origin}.helper=${HELPER}`],
    env: { CORRAL_GIT_USER: user, CORRAL_GIT_SECRET: secret },
    redact: (text) => redactor.text(text),
  };
}

async function secretOf({ name, credentials }: GitRepo, env: Env, signal: AbortSignal): Promise<string> {
  try {
    if (credentials === null) throw new SecretUnavailable("none are declared");
    return await readSecret(credentials, env, signal);
  } catch (error) {
    if (!(error instanceof SecretUnavailable)) throw error;
    const what = `The credentials of the repository ${name} are not available.`;
    throw new GitRefusal("GIT_CREDENTIALS", what, error.message);
  }
}

export interface MirrorOptions {
  readonly program: GitProgram;
  /** The directory of the mirror; created if it is missing. */
  readonly gitDir: string;
  /** Names this process among those that use the mirror: letters, digits, `_` and `-`. */
  readonly owner: string;
  readonly isLive: (owner: string) => boolean;
  /** Corral's own environment, which has the secrets. */
  readonly env: Readonly<Record<string, string | undefined>>;
}

type GitOptions = Partial<Pick<GitCommand, "input" | "maxOutputBytes" | "env">>;

const LOCAL_TIMEOUT_MS = 2 * 60_000;
const REMOTE_TIMEOUT_MS = 10 * 60_000;
const DEFAULT_OUTPUT_BYTES = 1024 * 1024;
/** Longer than any git process of Corral runs. */
const STALE_LOCK_MS = 60 * 60_000;
const MAX_DETAIL_CHARS = 2000;

/** Corral writes the whole configuration. HEAD names no branch: git would read attributes from it, which can hide parts of a diff. */
const CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tfilemode = true\n";
const HEAD = "ref: refs/heads/none\n";

/** Corral's own bare copy of a repository. No worker reaches it, and it never has a work tree. */
export class Mirror {
  readonly repo: GitRepo;
  readonly #options: MirrorOptions;

  private constructor(repo: GitRepo, options: MirrorOptions) {
    this.repo = repo;
    this.#options = options;
  }

  /** Creates the mirror if it is missing, and removes what dead processes left in it. */
  static async open(repo: GitRepo, options: MirrorOptions, signal: AbortSignal): Promise<Mirror> {
    const mirror = new Mirror(repo, options);
    const { gitDir } = options;
    if (!existsSync(gitDir)) await mirror.#make(signal);
    await writeAtomically(join(gitDir, "config"), CONFIG);
    await writeAtomically(join(gitDir, "HEAD"), HEAD);
    await removeStaleLocks(gitDir, repo.branch);
    await mirror.#removeLeftovers(signal);
    // Otherwise objects that were staged and never pushed would stay forever.
    await mirror.local(["gc", "--auto", "--quiet"], {}, signal);
    return mirror;
  }

  /** The ref that holds the remote branch as of the last fetch. */
  get trackingRef(): string {
    return `refs/remotes/origin/${this.repo.branch}`;
  }

  /** A ref that belongs to this process. */
  ownRef(name: string): string {
    return `refs/corral/${this.#options.owner}/${name}`;
  }

  /** The path of a new index file that belongs to this process. */
  indexPath(): string {
    return join(this.#options.gitDir, `corral-index.${this.#options.owner}.${randomBytes(6).toString("hex")}`);
  }

  /** Runs git on the mirror only: nothing leaves the machine. */
  async local(args: readonly string[], asked: GitOptions, signal: AbortSignal): Promise<GitEnd> {
    return await this.#run({ args, ...asked, signal, timeoutMs: LOCAL_TIMEOUT_MS });
  }

  /** The output of git on the mirror. Throws if git fails, or the output is too long. */
  async output(args: readonly string[], asked: GitOptions, signal: AbortSignal): Promise<Buffer> {
    const end = await this.local(args, asked, signal);
    if (end.status === 0) return end.stdout;
    throw this.failure(end, "could not be processed");
  }

  /** Runs git against the remote, with its credentials. */
  async remote(args: readonly string[], signal: AbortSignal): Promise<GitEnd> {
    const { settings, env, redact } = await accessTo(this.repo, this.#options.env, signal);
    const end = await this.#run({ args, settings, env, signal, timeoutMs: REMOTE_TIMEOUT_MS });
    return { ...end, stdout: Buffer.from(redact(end.stdout.toString("utf8"))), stderr: redact(end.stderr) };
  }

  /** A refusal for a failed git: the message is for workers; the detail, with git's own output, is for people. */
  failure({ status, stderr, cut, timedOut }: GitEnd, what: string): GitRefusal {
    const { name } = this.repo;
    const detail = `git (repository ${name}, ${timedOut ? "timed out" : `status ${status}`}): ${printableLine(stderr.trim().replace(/\s+/g, " ").slice(-MAX_DETAIL_CHARS), MAX_DETAIL_CHARS)}`;
    if (cut) return new GitRefusal("GIT_TOO_LARGE", `The repository ${name} is too large for this operation.`, detail);
    if (timedOut) return new GitRefusal("GIT_TIMED_OUT", `The repository ${name} did not answer in time.`, detail);
    return new GitRefusal("GIT_FAILED", `The repository ${name} ${what}.`, detail);
  }

  /** Removes refs. It is no error if one does not exist. */
  async removeRefs(refs: readonly string[], signal: AbortSignal): Promise<void> {
    if (refs.length === 0) return;
    const input = refs.map((ref) => `delete ${ref}\n`).join("");
    await this.output(["update-ref", "--no-deref", "--stdin"], { input }, signal);
  }

  /** The refs of staged commits: of this process, or of all. */
  async stagedRefs(whose: "own" | "all", signal: AbortSignal): Promise<string[]> {
    const prefix = whose === "own" ? this.ownRef("") : "refs/corral/";
    const args = ["for-each-ref", "--format=%(refname)", prefix];
    const listed = await this.output(args, { maxOutputBytes: 16 * 1024 * 1024 }, signal);
    return listed
      .toString("utf8")
      .split("\n")
      .filter((ref) => /^refs\/corral\/[\w-]+\/[\w./-]+$/.test(ref));
  }

  async #run(
    command: GitOptions & Pick<GitCommand, "args" | "signal" | "timeoutMs" | "settings">,
    gitDir = this.#options.gitDir,
  ): Promise<GitEnd> {
    const { protocol } = this.repo;
    return await runGit(this.#options.program, { maxOutputBytes: DEFAULT_OUTPUT_BYTES, ...command, gitDir, protocol });
  }

  /** Created under another name and renamed, so that two processes that create it at once share one complete mirror. */
  async #make(signal: AbortSignal): Promise<void> {
    const { gitDir } = this.#options;
    const draft = `${gitDir}.${randomBytes(6).toString("hex")}`;
    await mkdir(draft, { recursive: true, mode: 0o700 });
    try {
      const args = ["init", "--bare", "--quiet", "--template=", "--initial-branch=none"];
      const end = await this.#run({ args, signal, timeoutMs: LOCAL_TIMEOUT_MS }, draft);
      if (end.status !== 0) throw this.failure(end, "could not be set up");
      await rename(draft, gitDir).catch((error: unknown) => {
        if (!hasCode(error, "ENOTEMPTY", "EEXIST")) throw error;
      });
    } finally {
      await rm(draft, { recursive: true, force: true });
    }
  }

  async #removeLeftovers(signal: AbortSignal): Promise<void> {
    const { gitDir, owner, isLive } = this.#options;
    const isDead = (other: string): boolean => other !== owner && !isLive(other);
    const refs = await this.stagedRefs("all", signal);
    await this.removeRefs(
      refs.filter((ref) => isDead(ref.split("/")[2] ?? "")),
      signal,
    );
    for (const name of await readdir(gitDir)) {
      const other = /^corral-index\.([\w-]+)\./.exec(name)?.[1];
      if (other !== undefined && isDead(other)) await rm(join(gitDir, name), { force: true });
    }
  }
}

/** A crash of the machine leaves git's locks, and every other git would fail because of them. */
async function removeStaleLocks(gitDir: string, branch: string): Promise<void> {
  for (const name of [`refs/remotes/origin/${branch}`, "packed-refs", "shallow"]) {
    const path = join(gitDir, `${name}.lock`);
    const found = await stat(path).catch(() => null);
    if (found !== null && Date.now() - found.mtimeMs > STALE_LOCK_MS) await rm(path, { force: true });
  }
}
