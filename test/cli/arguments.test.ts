import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject } from "./cli-project.ts";

let project: CliProject;

beforeAll(async () => {
  project = await cliProject({
    yaml: { version: 1 },
    workers: {
      echo: { command: ["printf", "<%s>"], arguments: true },
      closed: { command: ["echo"] },
      agent: { model: "script/s.yaml" },
    },
  });
});
afterAll(async () => {
  await project[Symbol.asyncDispose]();
});

describe("words after -- and a worker's name", () => {
  it("are appended to its command as they are, options and all, and are in the audit trail", async () => {
    const words = ["a b", "--json", "--", "$(id)", ""];
    const { status, stdout } = await project.corral(["run", "echo", "--", ...words]);
    expect([status, stdout]).toEqual([0, "<a b><--json><--><$(id)><>"]);
    const trail = await project.corral(["audit", "--json", "--type", "run_requested"]);
    expect(JSON.parse(trail.stdout)).toMatchObject({ worker: "echo", arguments: words });
  });

  it("are shown by explain", async () => {
    const { stdout } = await project.corral(["explain", "echo", "--json", "--", "one", "two"]);
    expect(JSON.parse(stdout).tree.plan.command).toEqual(["printf", "<%s>", "one", "two"]);
  });

  it("are refused by a worker that does not take them, and by an agent", async () => {
    expect(await project.corral(["run", "closed", "--", "x"])).toMatchObject({
      status: 2,
      stdout: "",
      stderr: expect.stringContaining("closed takes no arguments; `arguments: true` in its file"),
    });
    expect((await project.corral(["explain", "agent", "--", "x"])).stderr).toContain(
      "agent is an agent and takes no arg",
    );
  });

  it("are no command of their own if the value of an option is `--`", async () => {
    const { status, stderr } = await project.corral(["run", "closed", "--record", "--", "--json"]);
    expect([status, stderr]).toEqual([2, expect.stringContaining("closed is a command")]);
  });
});
