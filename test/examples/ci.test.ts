import { execFileSync } from "node:child_process";
import { cp, mkdir, mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parse } from "yaml";
import { checkProject } from "../../src/operations/implied-project.ts";
import { type BranchJob, branchJob, type Step } from "../attacks/ci/branch-job.ts";
import { liveRegistry } from "../run/packages/live-registry.ts";

const EXAMPLE = join(import.meta.dirname, "../../examples/ci");
const TEMPLATE = join(import.meta.dirname, "../../templates/ci");
const live = await liveRegistry("npm", "is-number");
if (typeof live === "string") console.log(`The example of CI is not run: the registry of npm: ${live}.`);

const fileOf = async (name: string): Promise<string> =>
  await readFile(join(name.startsWith("project/") ? EXAMPLE : TEMPLATE, name), "utf8");

describe("the files of the example of CI", () => {
  it.each(["github.yml", "gitlab.yml"])("%s has at most 25 lines", async (name) => {
    expect((await fileOf(name)).trimEnd().split("\n").length).toBeLessThanOrEqual(25);
  });

  it("has a lock file that names the public registry alone, and a digest for each package", async () => {
    const { packages } = JSON.parse(await fileOf("project/package-lock.json"));
    const fetched = Object.entries<Record<string, string>>(packages).filter(([place]) => place !== "");
    expect(fetched.length).toBeGreaterThan(3);
    for (const [, { resolved, integrity }] of fetched) {
      expect(resolved).toMatch(/^https:\/\/registry\.npmjs\.org\//);
      expect(integrity).toMatch(/^sha512-/);
    }
  });
});

describe.skipIf(typeof live === "string")("the example of CI", () => {
  let job: BranchJob;
  /** What a CI system keeps from one job to the next. */
  let kept: string;

  beforeAll(async () => {
    kept = await mkdtemp(join(tmpdir(), "corral-ci-kept-"));
    job = await branchJob({
      project: join(EXAMPLE, "project"),
      address: typeof live === "string" ? null : live.address,
    });
  });
  afterAll(async () => {
    await job[Symbol.asyncDispose]();
    await rm(kept, { recursive: true, force: true });
  });

  /** The steps of `github.yml` for an event, as the runner would take them; answers with what each script did. */
  async function github(event: "push" | "pull_request_target", head: string): Promise<Record<string, Step>> {
    const [test] = Object.values<{ steps: GithubStep[]; env: object }>(parse(await fileOf("github.yml")).jobs);
    const done: Record<string, Step> = {};
    let failed = false;
    for (const { uses, run, if: condition, with: given } of test?.steps ?? []) {
      if (condition === undefined && failed) continue;
      if (condition === "github.event_name == 'push'" && (event !== "push" || failed)) continue;
      if (uses === "actions/checkout@v4") await job.checkOut();
      else if (uses === "actions/cache/restore@v4") await restore(String(given?.path));
      else if (uses === "actions/cache/save@v4")
        await cp(join(job.dir, String(given?.path)), kept, { recursive: true });
      else if (uses === "actions/upload-artifact@v4") await readdir(join(job.dir, String(given?.path)));
      else if (run === "npm install --global ./ci/corral.tgz && corral images build node") continue;
      else {
        const script = String(run)
          .replace(/\$\{\{ github.event_name == 'push' && '(.*)' \|\| '(.*)' \}\}/, event === "push" ? "$1" : "$2")
          .replace(/\$\{\{ matrix.shard \}\}/, "1/1");
        expect(script).not.toContain("${{");
        done[script] = await job.step(script, { HEAD: head, GITHUB_ACTIONS: "true" });
        failed ||= done[script].status !== 0;
      }
    }
    return done;
  }

  async function restore(path: string): Promise<void> {
    await cp(kept, join(job.dir, path), { recursive: true });
  }

  const statusesOf = (steps: Record<string, Step>): (number | null)[] =>
    Object.values(steps).map(({ status }) => status);
  const textOf = (steps: Record<string, Step>): string => JSON.stringify(steps, null, 1);
  const reportOf = async (name: string, dir = job.dir): Promise<string> =>
    await readFile(join(dir, "ci/reports", name), "utf8");

  it("is a project without mistakes", async () => {
    await job.checkOut();
    await mkdir(join(job.dir, "ci/lock"));
    for (const name of ["package.json", "package-lock.json"])
      await cp(join(EXAMPLE, "project", name), join(job.dir, "ci/lock", name));
    const report = await checkProject(join(job.dir, "ci"), { stateDir: join(kept, "state"), engineEnv: process.env });
    expect(report).toMatchObject({ ok: true });
  });

  it("tests a push and fills the cache, from which a pull request whose tests fail is tested, on GitHub", async () => {
    const main = execFileSync("git", ["rev-parse", "main"], { cwd: job.origin }).toString().trim();
    const pushed = await github("push", main);
    expect(statusesOf(pushed), textOf(pushed)).toEqual([0, 0, 0, 0]);
    expect(await reportOf("junit.xml")).toContain('<testcase name="wide characters count twice"');
    expect(JSON.parse(await reportOf("coverage.json"))).toMatchObject({ totals: { coveredLinePercent: 100 } });
    expect((await readdir(kept)).filter((name) => name.endsWith(".tar"))).toHaveLength(1);

    const test = await fileOf("project/test/columns.test.js");
    const head = await job.branch({ "test/columns.test.js": test.replace('["日本  a"', '["日本 a"') });
    const asked = await github("pull_request_target", head);
    expect(statusesOf(asked), textOf(asked)).toEqual([0, 0, 0, 1]);
    expect(textOf(asked)).toContain("The cache has ");
    expect(await reportOf("junit.xml")).toMatch(/<failure/);
    expect((await readdir(join(job.dir, "ci/packages"))).filter((name) => name.endsWith(".tar"))).toEqual([]);
  });

  it("tests a merge request on GitLab, whose lock file names no addresses", async () => {
    const { branch } = parse(await fileOf("gitlab.yml"));
    // As npm writes it with `omit-lockfile-registry-resolved`.
    const lock = (await fileOf("project/package-lock.json")).replaceAll(/^ +"resolved": .*\n/gm, "");
    expect(lock).not.toContain("https://registry");
    const head = await job.branch({ "src/more.js": "export const more = 1;\n", "package-lock.json": lock });
    const iid = "7";
    execFileSync("git", ["update-ref", `refs/merge-requests/${iid}/head`, head], { cwd: job.origin });
    await rm(job.dir, { recursive: true, force: true });
    await mkdir(job.dir);
    // The runner starts all lines in one shell.
    const lines = branch.script as string[];
    const { status, stdout, stderr } = await job.step(lines.join("\n"), {
      CI_MERGE_REQUEST_TARGET_BRANCH_NAME: "main",
      CI_MERGE_REQUEST_IID: iid,
      CI_REPOSITORY_URL: `file://${job.origin}`,
    });
    expect(status, stdout + stderr).toBe(0);
    expect(branch.variables.GIT_STRATEGY).toBe("none");
    expect(await readFile(join(job.dir, branch.artifacts.reports.junit), "utf8")).toContain("</testsuites>");
  });
});

interface GithubStep {
  readonly uses?: string;
  readonly run?: string;
  readonly if?: string;
  readonly with?: Readonly<Record<string, unknown>>;
}
