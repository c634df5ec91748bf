import { execFileSync, spawn } from "node:child_process";
import { chmod, cp, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { PROGRAM } from "../../cli/program.ts";
import { giveGate } from "../../tiers/give-gate.ts";

export interface Step {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A repository with `ci.yaml` on its branch `main`, branches of strangers, and the folder of a CI job. */
export interface BranchJob extends AsyncDisposable {
  /** The bare repository that everybody pushes to. */
  readonly origin: string;
  /** The folder of the job. After {@link checkOut} it has the base. */
  readonly dir: string;
  /** A stranger's commit on top of `main`: contents by path, `link:TARGET` for a symbolic link, null for a file that goes. */
  branch(files: Readonly<Record<string, string | null>>): Promise<string>;
  /** What the checkout of a CI system does with the base. */
  checkOut(): Promise<void>;
  /** A step of a job: a script as the runner starts it, with `corral` in its path. */
  step(script: string, env?: Readonly<Record<string, string>>): Promise<Step>;
}

/** The lock file of a project without packages: fetching them needs no network. */
const NO_PACKAGES = {
  "package.json": JSON.stringify({ name: "p", version: "1.0.0", type: "module" }),
  "package-lock.json": JSON.stringify({
    name: "p",
    version: "1.0.0",
    lockfileVersion: 3,
    requires: true,
    packages: { "": { name: "p", version: "1.0.0" } },
  }),
  "p.test.js": 'import { test } from "node:test";\ntest("passes", () => {});\n',
};

const JOBS = {
  test: {
    uses: "npm",
    run: "mkdir -p reports; node --test --test-reporter=spec --test-reporter-destination=stdout --test-reporter=junit --test-reporter-destination=reports/junit.xml",
    reports: { junit: "reports/*.xml", coverage: "reports/*.json" },
  },
};

/** `files`: of the base, beside or in the place of those of a small project; null for one that goes. `folder`: copied before these. */
export async function branchJob({
  files = {},
  folder = null,
}: {
  readonly files?: Readonly<Record<string, string | null>>;
  readonly folder?: string | null;
} = {}): Promise<BranchJob> {
  const root = await mkdtemp(join(tmpdir(), "corral-ci-"));
  const [origin, dir, home, bin] = ["origin.git", "job", "home", "bin"].map((name) => join(root, name)) as [
    string,
    string,
    string,
    string,
  ];
  const stateDir = join(root, "state");
  const env = { ...process.env, HOME: home, NO_COLOR: "1", CORRAL_STATE_DIR: stateDir, ...AUTHOR };
  const git = (cwd: string, ...args: string[]): string =>
    execFileSync("git", args, { cwd, env, stdio: "pipe" }).toString().trim();
  await Promise.all([giveGate(stateDir), mkdir(dir), mkdir(home), mkdir(bin)]);
  await writeFile(join(bin, "corral"), `#!/bin/sh\nexec "${process.execPath}" "${PROGRAM}" "$@"\n`);
  await chmod(join(bin, "corral"), 0o755);

  git(root, "init", "--quiet", "--bare", "--initial-branch=main", origin);
  // As GitHub and GitLab do: a commit of a pull request can be fetched by its id.
  git(origin, "config", "uploadpack.allowAnySHA1InWant", "true");
  const author = join(root, "author");
  await mkdir(author);
  await writeAll(author, { "ci.yaml": JSON.stringify({ version: 1, jobs: JOBS }) });
  if (folder === null) await writeAll(author, NO_PACKAGES);
  else await cp(folder, author, { recursive: true });
  await writeAll(author, files);
  git(author, "init", "--quiet", "--initial-branch=main");
  const push = (branch: string): string => {
    git(author, "add", "--all", "--force");
    git(author, "commit", "--quiet", "--allow-empty", "--message", branch);
    git(author, "push", "--quiet", "--force", origin, `HEAD:${branch}`);
    return git(author, "rev-parse", "HEAD");
  };
  push("refs/heads/main");

  return {
    origin,
    dir,
    async branch(files) {
      git(author, "checkout", "--quiet", "--force", "-B", "stranger", "main");
      await writeAll(author, files);
      // As a stranger's: nothing of the configuration here may count for it.
      return push("refs/pull/7/head");
    },
    async checkOut() {
      await rm(dir, { recursive: true, force: true });
      git(root, "clone", "--quiet", "--branch=main", origin, dir);
    },
    step: async (script, more = {}) =>
      await outcomeOf(script, dir, { ...env, PATH: `${bin}${delimiter}${process.env.PATH}`, ...more }),
    async [Symbol.asyncDispose]() {
      await rm(root, { recursive: true, force: true });
    },
  };
}

const AUTHOR = {
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_AUTHOR_NAME: "A Stranger",
  GIT_AUTHOR_EMAIL: "stranger@example.org",
  GIT_COMMITTER_NAME: "A Stranger",
  GIT_COMMITTER_EMAIL: "stranger@example.org",
};

async function writeAll(dir: string, files: Readonly<Record<string, string | null>>): Promise<void> {
  for (const [path, content] of Object.entries(files)) {
    const target = join(dir, path);
    await rm(target, { recursive: true, force: true });
    if (content === null) continue;
    await mkdir(dirname(target), { recursive: true });
    if (content.startsWith("link:")) await symlink(content.slice("link:".length), target);
    else await writeFile(target, content);
  }
}

async function outcomeOf(script: string, cwd: string, env: NodeJS.ProcessEnv): Promise<Step> {
  const { promise, resolve, reject } = Promise.withResolvers<Step>();
  const child = spawn("bash", ["-e", "-c", script], { cwd, env, stdio: ["ignore", "pipe", "pipe"] });
  const text = { stdout: "", stderr: "" };
  for (const stream of ["stdout", "stderr"] as const) {
    child[stream].setEncoding("utf8").on("data", (chunk: string) => {
      text[stream] += chunk;
    });
  }
  child.once("error", reject).once("close", (status) => resolve({ status, ...text }));
  return await promise;
}
