import { execFileSync } from "node:child_process";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type BranchJob, branchJob, type Step } from "../attacks/ci/branch-job.ts";

const ROOT = join(import.meta.dirname, "../..");
const EXECUTOR = join(ROOT, "templates/gitlab/executor.bash");

let job: BranchJob;

beforeAll(async () => {
  job = await branchJob();
  const page = await readFile(join(ROOT, "docs/ci.md"), "utf8");
  const block = (file: string) =>
    [...page.matchAll(/^```yaml\n([\s\S]*?)^```$/gm)].find(([, text = ""]) => text.includes(`# ${file}\n`))?.[1] ?? "";
  await mkdir(join(job.dir, "project/workers"), { recursive: true });
  for (const file of ["corral.yaml", "workers/job.worker"])
    await writeFile(join(job.dir, "project", file), block(file));
});
afterAll(async () => await job[Symbol.asyncDispose]());

it("the custom executor runs the stages of a job in one session, and tells the runner whose failure it was", async () => {
  // The runner gives each variable of the job, the stranger's too, with this prefix.
  const head = await job.branch({ "p.test.js": "x", ".gitattributes": "* filter=evil\n", "script.sh": "exit 0\n" });
  const marker = join(job.dir, "smudged");
  execFileSync("git", ["config", "--global", "filter.evil.smudge", `touch ${marker}; cat`], {
    env: { ...process.env, HOME: join(job.dir, "../home") },
  });
  const env = {
    BUILD_FAILURE_EXIT_CODE: "101",
    SYSTEM_FAILURE_EXIT_CODE: "102",
    BUILD_EXIT_CODE_FILE: join(job.dir, "code"),
    CORRAL_PROJECT: join(job.dir, "project"),
    CUSTOM_ENV_CI_JOB_ID: "4711",
    CUSTOM_ENV_CI_COMMIT_SHA: head,
    CUSTOM_ENV_CI_REPOSITORY_URL: `file://${job.origin}`,
    CUSTOM_ENV_CI_PROJECT_DIR: "/work/builds/group/project",
  };
  const executor = async (words: string, more: Readonly<Record<string, string>> = {}): Promise<Step> =>
    await job.step(`'${EXECUTOR}' ${words}`, { ...env, ...more });
  const stage = async (name: string, script: string): Promise<Step> => {
    await writeFile(join(job.dir, "stage.sh"), script);
    return await executor(`run '${join(job.dir, "stage.sh")}' ${name}`);
  };

  const { builds_dir, driver } = JSON.parse((await executor("config")).stdout);
  expect([builds_dir, driver.name]).toEqual(["/work/builds", "Corral"]);
  for (const image of ["../evil", "node:22"])
    expect(await executor("prepare", { CUSTOM_ENV_CI_JOB_IMAGE: image })).toMatchObject({ status: 101 });
  expect(await executor("prepare", { CUSTOM_ENV_CI_JOB_IMAGE: "unknown" })).toMatchObject({ status: 102 });
  expect(await executor("prepare", { CUSTOM_ENV_CI_JOB_ID: "1; touch /tmp/x" })).toMatchObject({ status: 102 });

  expect(await executor("prepare")).toMatchObject({ status: 0 });
  try {
    // What the runner generates would clone, with the token of the job.
    expect(await stage("get_sources", "exit 9")).toMatchObject({ status: 0 });
    expect(await stage("restore_cache", "exit 9")).toMatchObject({ status: 0 });
    const looks = `#!/usr/bin/env bash
set -eo pipefail
cd /work/builds/group/project
cat p.test.js; ls -A; id -u; env | grep -c CUSTOM_ENV || true
{ echo > /dev/tcp/127.0.0.1/1; } 2> /dev/null && echo a network
echo "::forged" > /work/kept
exit 7`;
    const failed = await stage("step_script", looks);
    expect(failed, failed.stderr).toMatchObject({ status: 101 });
    expect(failed.stdout).toMatch(/^x\.gitattributes\nci.yaml\n[\s\S]*\nscript\.sh\n65532\n0\n$/);
    expect(await readFile(join(job.dir, "code"), "utf8")).toBe("7\n");
    expect(await stage("after_script", "cat /work/kept")).toMatchObject({ status: 0, stdout: "::forged\n" });
    expect(await stage("upload_artifacts_on_success", "true")).toMatchObject({ status: 101 });
    await expect(readFile(marker)).rejects.toThrow("ENOENT");
  } finally {
    expect(await executor("cleanup")).toMatchObject({ status: 0 });
  }
  expect(JSON.parse((await job.step("corral session ls --json")).stdout)).toEqual([]);
  expect(await stage("step_script", "true")).toMatchObject({ status: 102 });
  await rm(join(job.dir, "code"));
});
