import { afterAll, beforeAll, expect, it } from "vitest";
import { canaryKey } from "../attacks/canary-key.ts";
import { type CliProject, cliProject, sh } from "./cli-project.ts";

const canary = canaryKey();
const env = { TOKEN_OF_TEST: canary.key };
const COMMAND = "cat /run/secrets/token";

let project: CliProject;
beforeAll(async () => {
  project = await cliProject({
    yaml: {
      version: 1,
      policy: "default",
      sandbox: { zones: {}, secrets: ["token"] },
      secrets: { token: { env: "TOKEN_OF_TEST" }, other: { env: "OTHER_OF_TEST" } },
    },
    workers: {
      w: { command: sh(`${COMMAND}; cat`), secrets: ["token"], calls: ["without"] },
      without: { command: sh("true") },
      greedy: { command: sh("true"), secrets: ["other"] },
    },
  });
});
afterAll(async () => {
  await project[Symbol.asyncDispose]();
});

it("explain names the secrets of a worker, who took them away, and what keeps them outside; no value", async () => {
  const { stdout } = await project.corral(["explain", "w"], { env });
  expect(stdout).toContain("secrets    token as /run/secrets/token\n");
  expect(stdout).toContain("secrets token → none by without");
  expect(stdout).toContain("`set` in `network` keeps it outside");
  const asJson = await project.corral(["explain", "w", "--json"], { env });
  expect(JSON.parse(asJson.stdout)).toMatchObject({
    tree: { sandbox: { secrets: ["token"] }, plan: { secrets: ["token"] } },
  });
  expect(canary.isIn(stdout + asJson.stdout)).toBe(false);
  const untrusted = await project.corral(["explain", "w", "--policy", "untrusted"], { env });
  expect(untrusted.stdout).toContain("The secret 'token' is not available inside of this worker: policy untrusted");
});

it("check reports a worker that asks for more than the project gives", async () => {
  const { stdout, status } = await project.corral(["check"], { env });
  expect(status).not.toBe(0);
  expect(stdout).toContain("The secret 'other' is not available inside of this worker: the project does not grant it");
});

it("run and shell print no value, on any stream", async () => {
  const run = await project.built(["run", "w"], { env });
  expect(run).toMatchObject({ status: 0, stdout: "[secret]" });
  const json = await project.built(["run", "w", "--json"], { env });
  expect(JSON.parse(json.stdout)).toMatchObject({ status: "succeeded", stdout: "[secret]" });
  const shell = await project.built(["shell", "w"], { env, stdin: `${COMMAND}; ${COMMAND} >&2\n` });
  expect([shell.stdout, shell.stderr]).toEqual(["[secret]", expect.stringContaining("[secret]")]);
  expect(canary.isIn(JSON.stringify([run, json, shell]))).toBe(false);
});
