import { execFile } from "node:child_process";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject, sh } from "./cli-project.ts";
import { PROGRAM } from "./program.ts";

let project: CliProject;

beforeAll(async () => {
  const workers = { patient: { command: sh("echo begun; sleep 60") } };
  project = await cliProject({ yaml: { version: 1 }, workers });
});
afterAll(async () => {
  await project[Symbol.asyncDispose]();
});

/** The command line with its standard output on a device that is full. */
async function intoFullDisk(args: readonly string[]): Promise<{ status: unknown; stderr: string }> {
  const line = ["-c", 'exec "$0" "$@" > /dev/full', process.execPath, PROGRAM, ...args];
  const env = { ...process.env, CORRAL_STATE_DIR: project.stateDir };
  return await new Promise((resolve) => {
    execFile("sh", line, { cwd: project.dir, env }, (error, _, stderr) =>
      resolve({ status: error?.code ?? 0, stderr }),
    );
  });
}

describe("output that cannot be written", () => {
  it("ends the run, with one line that says why, and leaves nothing behind", async () => {
    const { status, stderr } = await intoFullDisk(["run", "patient"]);
    expect(stderr).toMatch(/^corral: output cannot be written: .*no space left on device.*\n/);
    expect(stderr).not.toContain("    at ");
    expect(status).toBe(125);
    expect(await project.cells()).toEqual([]);
  });

  it("is no success of what only prints", async () => {
    const { status, stderr } = await intoFullDisk(["check", "--json"]);
    expect(stderr.split("\n")).toHaveLength(2);
    expect(status).toBe(125);
  });
});
