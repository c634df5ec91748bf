import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { type BranchJob, branchJob } from "../attacks/ci/branch-job.ts";
import { liveRegistry } from "../run/packages/live-registry.ts";
import { type Action, type GithubRun, readAction, runAction } from "./composite.ts";

const ROOT = join(import.meta.dirname, "../..");
const EXAMPLE = join(ROOT, "examples/ci/project");
const live = await liveRegistry("npm", "is-number");
if (typeof live === "string") console.log(`The example of CI is not run: the registry of npm: ${live}.`);

const fileOf = async (name: string): Promise<string> => await readFile(join(EXAMPLE, name), "utf8");

describe("the files of the example of CI", () => {
  it("has a lock file that names the public registry alone, and a digest for each package", async () => {
    const { packages } = JSON.parse(await fileOf("package-lock.json"));
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
  let action: Action;
  /** What a CI system keeps from one job to the next. */
  let kept: string;

  beforeAll(async () => {
    kept = await mkdtemp(join(tmpdir(), "corral-ci-kept-"));
    action = await readAction(join(ROOT, "action.yml"));
    const address = typeof live === "string" ? "" : live.address;
    const { jobs: written, ...rest } = parse(await fileOf("ci.yaml"));
    // The same on the image's Node alone: two versions of it are shown by the push.
    const { matrix: _, ...one } = written.test;
    const jobs = { addresses: [`${address}/32`], ...rest, jobs: { ...written, one } };
    job = await branchJob({ folder: EXAMPLE, files: { "ci.yaml": JSON.stringify(jobs) } });
  });
  afterAll(async () => {
    await job[Symbol.asyncDispose]();
    await rm(kept, { recursive: true, force: true });
  });

  const shaOf = (ref: string): string => execFileSync("git", ["rev-parse", ref], { cwd: job.origin }).toString().trim();

  /** The step of the workflow that `corral init ci --npm` writes. */
  async function github(name: "push" | "pull_request_target", head: string, of: string): Promise<GithubRun> {
    await job.checkOut();
    const sha = name === "push" ? head : shaOf("main");
    const repository = { default_branch: "main" };
    const pull = {
      number: 7,
      base: { ref: "main", sha },
      head: { ref: "main", sha: head, label: "stranger:main", repo: { fork: true } },
    };
    const payload = name === "push" ? { repository } : { action: "opened", number: 7, pull_request: pull, repository };
    const event = { name, payload, sha, ref: "refs/heads/main" };
    return await runAction(action, { job, kept, place: ROOT, event, given: { images: "node", job: of } });
  }

  const RESULTS = "ci-results";
  const reportOf = async (step: string): Promise<string> =>
    await readFile(join(job.dir, RESULTS, step, "reports/junit.xml"), "utf8");

  it("tests a push on two versions of Node and fills the cache, from which a pull request whose tests fail is tested, on GitHub", async () => {
    const pushed = await github("push", shaOf("main"), "test");
    expect(pushed.outputs, JSON.stringify(pushed, null, 1)).toEqual({ status: "0" });
    for (const step of ["test.22", "test.24"])
      expect(await reportOf(step)).toContain('<testcase name="wide characters count twice"');
    expect(pushed.others.map(([name]) => name)).toContain("actions/cache/save");
    const [entry = "none", ...more] = (await readdir(kept)).filter((name) => !name.startsWith("."));
    expect(more).toEqual([]);
    expect(await readdir(join(kept, entry))).toContain("packages.tar");

    const test = await fileOf("test/columns.test.js");
    const head = await job.branch({ "test/columns.test.js": test.replace('["日本  a"', '["日本 a"') });
    const asked = await github("pull_request_target", head, "one");
    expect(asked.outputs, JSON.stringify(asked, null, 1)).toEqual({ status: "1" });
    expect(asked.scripts["Run the jobs"]?.stderr).toContain("its packages are in the cache");
    expect(await reportOf("one")).toMatch(/<failure/);
    const names = asked.others.map(([name]) => name);
    expect(names).toContain("actions/upload-artifact");
    expect(names).not.toContain("actions/cache/save");
  });

  it("names Corral's packed file where there is no Corral, and takes no name for one", async () => {
    const event = { name: "push", payload: {}, sha: shaOf("main"), ref: "refs/heads/main" };
    await job.checkOut();
    const empty = join(job.dir, "empty");
    await mkdir(empty);
    const env = { PATH: "/usr/bin:/bin" };
    const none = await runAction(action, { job, kept, place: empty, event, given: {}, env });
    expect(none.scripts["Install Corral"]).toMatchObject({ status: 2, stderr: expect.stringContaining("npm pack") });
    const named = await runAction(action, { job, kept, place: empty, event, given: { package: "corral" }, env });
    expect(named.scripts["Install Corral"]).toMatchObject({ status: 1, stderr: expect.stringContaining("realpath") });
    expect(Object.keys(named.scripts)).toEqual(["Install Corral"]);
  });

  it("tests a merge request on GitLab, whose lock file names no addresses, without a checkout of it", async () => {
    // As npm writes it with `omit-lockfile-registry-resolved`.
    const lock = (await fileOf("package-lock.json")).replaceAll(/^ +"resolved": .*\n/gm, "");
    expect(lock).not.toContain("https://registry");
    const head = await job.branch({ "src/more.js": "export const more = 1;\n", "package-lock.json": lock });
    const [spec, component] = parseAllDocuments(
      await readFile(join(ROOT, "templates/gitlab/template.yml"), "utf8"),
    ).map((one) => one.toJS());
    const { corral } = component;
    expect(corral.variables).toEqual({ GIT_CHECKOUT: "false", CORRAL_JOBS: "$[[ inputs.job ]]" });
    expect(Object.keys(spec.spec.inputs)).toEqual(["job", "tags"]);
    await rm(job.dir, { recursive: true, force: true });
    execFileSync("git", ["clone", "--quiet", "--no-checkout", "--depth=1", `file://${job.origin}`, job.dir]);
    // The runner starts all lines in one shell.
    const { status, stdout, stderr } = await job.step(corral.script.join("\n"), {
      GITLAB_CI: "true",
      CORRAL_JOBS: "one",
      CI_PIPELINE_SOURCE: "merge_request_event",
      CI_PROJECT_ID: "1",
      CI_MERGE_REQUEST_PROJECT_ID: "1",
      CI_MERGE_REQUEST_IID: "7",
      CI_MERGE_REQUEST_TARGET_BRANCH_NAME: "main",
      CI_COMMIT_SHA: head,
    });
    expect(status, stdout + stderr).toBe(0);
    expect((await readdir(job.dir)).toSorted()).toEqual([".corral", ".git", RESULTS]);
    const { junit, codequality } = corral.artifacts.reports;
    expect(await readFile(join(job.dir, junit), "utf8")).toContain('name="wide characters count twice"');
    expect(JSON.parse(await readFile(join(job.dir, codequality), "utf8"))).toEqual([]);
  });
});
