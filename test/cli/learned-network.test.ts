import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { type LearnRequest, refuseLearning } from "../../src/cli/run/run.ts";
import type { Terminal } from "../../src/cli/terminal/terminal.ts";
import { loadProject } from "../../src/declarations/project.ts";
import { projectFolder } from "../declarations/project-folder.ts";

const CI = readFileSync(new URL("../../policies/ci.yaml", import.meta.url), "utf8");
const tty = { stdin: { isTTY: true }, stderr: { isTTY: true } } as unknown as Terminal;

/** Why `--learn-network` is refused; empty if it is not. */
async function refusal(
  { yaml = {}, sandbox = {}, policy }: { yaml?: object; sandbox?: object; policy?: string } = {},
  options: LearnRequest = {},
  terminal = tty,
): Promise<string> {
  const worker = { command: ["ls"], sandbox, ...(policy === undefined ? {} : { policy }) };
  const dir = await projectFolder({
    "corral.yaml": JSON.stringify({ version: 1, ...yaml }),
    "workers/w.worker": `---\n${JSON.stringify(worker)}\n---\n`,
    "policies/shut.yaml": CI.replace("name: ci", "name: shut"),
  });
  const project = await loadProject(dir);
  const found = project.workers.get("w");
  if (found === undefined) throw new Error("no worker");
  return await refuseLearning(found, project, options, terminal).then(
    () => "",
    (error: Error) => error.message,
  );
}

describe("--learn-network", () => {
  it("is for a user at a terminal, who is asked", async () => {
    expect(await refusal()).toBe("");
    for (const less of [{ stdin: {} }, { stderr: {} }])
      expect(await refusal({}, {}, { ...tty, ...less } as Terminal)).toContain("there is no terminal");
    expect(await refusal({}, { approve: "approve_all" })).toContain("the approval mode is approve_all");
    expect(await refusal({ yaml: { approval: { mode: "auto_deny" } } })).toContain("the approval mode is auto_deny");
    expect(await refusal({ yaml: { approval: { mode: "auto_deny" } } }, { approve: "interactive" })).toBe("");
  });

  it("is refused under untrusted and ci, and if nothing may be reached", async () => {
    const policies = { policies: "./policies" };
    for (const policy of ["untrusted", "ci", "batch"]) {
      expect(await refusal({}, { policy }), policy).toContain(`refused under the policy ${policy}`);
      expect(await refusal({ yaml: { policy } }), policy).toContain(`refused under the policy ${policy}`);
      expect(await refusal({ policy }), policy).toContain(`refused under the policy ${policy}`);
    }
    expect(await refusal({ yaml: policies }, { policy: "shut" })).toContain("refused under the policy shut");
  });

  it("has nothing to ask for a worker with all of the network", async () => {
    expect(await refusal({ sandbox: { network: true } })).toContain("has nothing to ask");
  });
});
