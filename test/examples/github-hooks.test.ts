import { execFileSync } from "node:child_process";
import { cp, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type BranchJob, branchJob, type Step } from "../attacks/ci/branch-job.ts";

const ROOT = join(import.meta.dirname, "../..");

let job: BranchJob;
let runner: string;

beforeAll(async () => {
  job = await branchJob();
  runner = join(job.dir, "runner");
  const page = await readFile(join(ROOT, "docs/ci.md"), "utf8");
  const block = (file: string): string =>
    [...page.matchAll(/^```yaml\n([\s\S]*?)^```$/gm)].find(([, text = ""]) =>
      text.includes(`# /etc/corral/runner/${file}\n`),
    )?.[1] ?? "";
  for (const folder of ["_work/r/r", "_work/_actions", "_work/_tool", "externals", "project/workers"])
    await mkdir(join(runner, folder), { recursive: true });
  for (const folder of ["_github_home", "_github_workflow"])
    await mkdir(join(runner, "_work/_temp", folder), { recursive: true });
  for (const file of ["corral.yaml", "workers/job.worker"])
    await writeFile(
      join(runner, "project", file),
      block(file).replaceAll("/srv/runner", runner).replace("corral/node", "corral/base"),
    );
  // The runner is never root.
  if (process.getuid?.() === 0) execFileSync("chown", ["-R", "65532:65532", join(runner, "_work")]);
  await cp(join(ROOT, "templates/github/container-hooks.js"), join(runner, "index.js"));
});
afterAll(async () => await job[Symbol.asyncDispose]());

/** As the documentation of the hooks has them; the paths are those of the runner. */
const mounts = (): object[] =>
  (
    [
      ["_work", "/__w", false],
      ["externals", "/__e", true],
      ["_work/_temp", "/__w/_temp", false],
      ["_work/_actions", "/__w/_actions", false],
      ["_work/_tool", "/__w/_tool", false],
      ["_work/_temp/_github_home", "/github/home", false],
      ["_work/_temp/_github_workflow", "/github/workflow", false],
    ] as const
  ).map(([source, targetVolumePath, readOnly]) => ({
    sourceVolumePath: join(runner, source),
    targetVolumePath,
    readOnly,
  }));
const container = (more: object = {}): object => ({
  image: "job",
  workingDirectory: "/__w/r/r",
  createOptions: null,
  environmentVariables: {},
  userMountVolumes: [],
  systemMountVolumes: mounts(),
  registry: null,
  portMappings: [],
  ...more,
});
const SCRIPT = {
  entryPoint: "bash",
  entryPointArgs: ["-e", "/__w/_temp/step.sh"],
  environmentVariables: { NODE_ENV: "it's development", "INPUT_A-B": "$HOME" },
  prependPath: ["/foo/bar", "/bar/foo"],
  workingDirectory: "/__w/r/r",
};

async function hook(command: string, args: unknown, state: unknown = {}): Promise<Step & { response: unknown }> {
  const responseFile = join(runner, "response.json");
  await writeFile(responseFile, "");
  await writeFile(join(runner, "input.json"), JSON.stringify({ command, responseFile, args, state }));
  const step = await job.step(`'${process.execPath}' '${runner}/index.js' < '${runner}/input.json'`, {
    CORRAL_PROJECT: join(runner, "project"),
  });
  const text = await readFile(responseFile, "utf8");
  return { ...step, response: text === "" ? null : JSON.parse(text) };
}

it("the container hooks run the steps of a job in one session, and refuse what only a worker may have", async () => {
  for (const [args, why] of [
    [{ services: [{ image: "redis" }] }, "would run on this machine"],
    [
      { container: container(), services: [{ contextName: "redis", image: "redis" }] },
      "services are those of the worker",
    ],
    [{ container: container({ image: "node:22" }) }, "must name a worker"],
    [{ container: container({ createOptions: "--privileged" }) }, "remove `options`"],
    [{ container: container({ userMountVolumes: mounts() }) }, "remove `volumes`"],
    [{ container: container({ portMappings: ["80:8080"] }) }, "remove `ports`"],
  ] as const)
    expect(await hook("prepare_job", args)).toMatchObject({
      status: 1,
      stderr: expect.stringContaining(why),
      response: null,
    });
  expect(await hook("run_script_step", SCRIPT)).toMatchObject({
    status: 1,
    stderr: "corral: this job has no session\n",
  });

  const prepared = await hook("prepare_job", { container: container(), services: [] });
  expect(prepared, prepared.stderr).toMatchObject({ status: 0, response: { isAlpine: false } });
  const { state } = prepared.response as { state: unknown };
  try {
    const temp = join(runner, "_work/_temp");
    await writeFile(
      join(temp, "step.sh"),
      `pwd; echo "$NODE_ENV $HOME $PATH"; env | grep '^INPUT_A-B='; id -u
echo kept > kept; echo X=1 >> /__w/_temp/env
touch /__w/_actions/x 2> /dev/null || echo no actions
{ echo > /dev/tcp/172.17.0.1/22; } 2> /dev/null && echo a network
ls /var/run/docker.sock 2> /dev/null && echo a socket
exit 7`,
    );
    const step = await hook("run_script_step", SCRIPT, state);
    expect(step.status, step.stderr).toBe(7);
    expect(step.stdout).toMatch(
      /^\/__w\/r\/r\nit's development \/github\/home \/foo\/bar:\/bar\/foo:\/\S+\nINPUT_A-B=\$HOME\n\d+\nno actions\n$/,
    );
    expect(await readFile(join(temp, "env"), "utf8")).toBe("X=1\n");
    const action = { ...container(), dockerfile: null, entryPoint: "cat", entryPointArgs: ["kept"] };
    expect(await hook("run_container_step", action, state)).toMatchObject({ status: 0, stdout: "kept\n" });
    expect(await hook("run_container_step", { ...action, dockerfile: "Dockerfile" }, state)).toMatchObject({
      status: 1,
    });
  } finally {
    expect(await hook("cleanup_job", undefined, state)).toMatchObject({ status: 0 });
  }
  expect(JSON.parse((await job.step(`corral session ls --json`)).stdout)).toEqual([]);
  expect(await readdir(join(runner, "_work/r/r"))).toEqual(["kept"]);
});
