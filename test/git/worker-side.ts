import fs from "node:fs";
import os from "node:os";
import { dirname, join } from "node:path";
import { type GitRepo, parseGitUrl } from "../../src/declarations/git/repo.ts";
import { type GuardedFiles, guarded } from "../../src/files/guarded.ts";
import { openHostFiles } from "../../src/files/host/host-files.ts";
import { type Pulled, type PullRequest, pull } from "../../src/git/pull.ts";
import {
  Repositories,
  type RepositoriesOptions,
  type Repository,
  type StagedCommit,
  type TreeRepositories,
} from "../../src/git/repository.ts";
import { FileBytes, stage } from "../../src/git/stage.ts";
import type { Mount } from "../../src/sandbox/mount.ts";
import { at, mount, project } from "../sandbox/sandboxes.ts";
import type { Remote } from "./remote.ts";

/** A worker with the directory `/notes`, which mirrors the repository `notes`. No engine is needed. */
export interface WorkerSide extends AsyncDisposable {
  /** The host directory of `/notes`. */
  readonly dir: string;
  /** Where Corral keeps its mirrors. */
  readonly stateDir: string;
  readonly repositories: Repositories;
  readonly repository: Repository;
  readonly state: TreeRepositories;
  readonly asked: string[][];
  readonly agreedTo: string[];
  pull(request?: Partial<PullRequest>): Promise<Pulled>;
  stage(files: readonly string[], message?: string): Promise<StagedCommit>;
  write(path: string, content: string | Buffer): void;
  read(path: string): string | null;
}

export interface WorkerSideOptions {
  readonly mount?: Partial<Mount>;
  readonly mode?: "ro" | "rw";
  readonly repo?: Partial<GitRepo>;
  readonly repositories?: Partial<RepositoriesOptions>;
  readonly stateDir?: string;
  readonly agree?: (paths: readonly string[]) => Promise<void>;
}

export const never = new AbortController().signal;
const AGREED = { approval: { write: "pre_approved", delete: "pre_approved" } } as const;

export function repoAt(url: string, more: Partial<GitRepo> = {}): GitRepo {
  const parsed = parseGitUrl(url);
  if (!parsed.ok) throw new Error(parsed.fault);
  const { protocol } = parsed;
  return {
    name: "notes",
    url: parsed.url,
    protocol,
    branch: "main",
    at: at("/notes"),
    credentials: null,
    author: null,
    ...more,
  };
}

export async function workerSide(remote: Pick<Remote, "path">, options: WorkerSideOptions = {}): Promise<WorkerSide> {
  const base = fs.realpathSync(fs.mkdtempSync(join(os.tmpdir(), "corral-git-")));
  const dir = join(base, "notes");
  fs.mkdirSync(dir);
  const stateDir = options.stateDir ?? join(base, "state");
  const sandbox = project([mount("/notes", options.mode ?? "rw", { ...AGREED, ...options.mount, host: dir })]);
  const backend = openHostFiles(sandbox.mounts);
  const files: GuardedFiles = guarded(backend, sandbox);
  const bytes = new FileBytes(sandbox);
  const repositories = new Repositories({
    dir: stateDir,
    repos: new Map([["notes", repoAt(remote.path, options.repo)]]),
    owner: "me",
    isLive: () => false,
    env: {},
    ...options.repositories,
  });
  const repository = await repositories.open("notes");
  const state = repositories.stateOf({});
  const asked: string[][] = [];
  const agreedTo: string[] = [];
  const agree = async (paths: readonly string[]): Promise<void> => {
    asked.push([...paths]);
    await options.agree?.(paths);
  };
  const author = { name: "w", email: "w@corral.invalid" };
  return {
    dir,
    stateDir,
    repositories,
    repository,
    state,
    asked,
    agreedTo,
    pull: (request = {}) =>
      pull(
        repository,
        { overwrite: false, ...request },
        {
          files,
          bytes,
          seen: state.seenOf("notes"),
          show: () => {},
          agree,
          agreedTo: async (path) => void agreedTo.push(path),
        },
        never,
      ),
    stage: (names, message = "why") => stage(repository, { files: names, message, author }, bytes, state, never),
    write(path, content) {
      fs.mkdirSync(dirname(join(dir, path)), { recursive: true });
      fs.writeFileSync(join(dir, path), content);
    },
    read: (path) => (fs.existsSync(join(dir, path)) ? fs.readFileSync(join(dir, path), "utf8") : null),
    async [Symbol.asyncDispose]() {
      await repositories[Symbol.asyncDispose]();
      bytes[Symbol.dispose]();
      backend[Symbol.dispose]();
      fs.rmSync(base, { recursive: true, force: true });
    },
  };
}

/** The code and text of what an operation is refused with. */
export async function refusal(operation: Promise<unknown>): Promise<string> {
  return await operation.then(
    () => "it was done",
    (error: Error & { code?: string }) => `${error.code}: ${error.message}`,
  );
}
