import { execFile } from "node:child_process";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { STARTED_TOOLS } from "../../src/mcp/connection/started-tools.ts";
import { TOOLS } from "../../src/tools/toolbox.ts";
import { PROGRAM } from "../cli/program.ts";
import { bareRemote, type Remote } from "../git/remote.ts";
import { AT_LENGTH } from "../tiers/at-length.ts";
import { HANDY, HANDY_PROJECT, type McpProject, mcpProject } from "./mcp-project.ts";

const INSPECTOR = join(import.meta.dirname, "../../node_modules/.bin/mcp-inspector");

let remote: Remote;
let mcp: McpProject;

beforeAll(async () => {
  remote = bareRemote({ "a.md": "one\n" });
  mcp = await mcpProject({
    ...HANDY_PROJECT,
    yaml: { ...HANDY_PROJECT.yaml, git: { repos: { notes: { url: remote.path, at: "/out/notes" } } } },
    workers: { ...HANDY_PROJECT.workers, w: { ...HANDY, git: ["notes"] } },
  });
});
afterAll(async () => {
  await mcp?.[Symbol.asyncDispose]();
  remote?.remove();
});

/** The inspector's command line, with a server of its own. */
async function inspect(...args: readonly string[]): Promise<{ status: number; stdout: string; stderr: string }> {
  const { dir, stateDir } = mcp.project;
  const server = [process.execPath, PROGRAM, "mcp", "--project", dir, "--worker", "w"];
  const env = { ...process.env, PATH: `${join(process.execPath, "..")}:${process.env.PATH}`, HOME: stateDir };
  return await new Promise((resolve) => {
    const all = ["--cli", "-e", `CORRAL_STATE_DIR=${stateDir}`, ...server, ...args];
    execFile(INSPECTOR, all, { env, timeout: 120_000 }, (error, stdout, stderr) => {
      resolve({ status: typeof error?.code === "number" ? error.code : error === null ? 0 : 1, stdout, stderr });
    });
  });
}

/** A use of every tool, in an order in which all succeed, but for those that need an answer of another one. */
const ALL: readonly (readonly [string, ...string[]])[] = [
  ["list_files", "path=/"],
  ["read_file", "path=/docs/a.txt"],
  ["file_info", "path=/docs/a.txt"],
  ["write_file", "path=/out/x", "content=text"],
  ["append_file", "path=/out/x", "content=more"],
  ["edit_file", "path=/out/x", 'edits=[{"old":"text","new":"words"}]'],
  ["copy_file", "from=/out/x", "to=/out/y"],
  ["move_file", "from=/out/y", "to=/out/z"],
  ["delete_file", "path=/out/z"],
  ["exec", "command=cat /out/x"],
  ["call_worker", "worker=kid", 'input={"a":1}'],
  ["commit_changes"],
  ["git_pull", "repo=notes"],
  ["git_stage", "repo=notes", 'files=["a.md"]', "message=why"],
  ["git_push", `commit=${"0".repeat(40)}`],
  ["git_discard", `commit=${"0".repeat(40)}`],
  ["exec_start", "command=sleep 60"],
  ["exec_output", `id=${"0".repeat(11)}f`],
  ["exec_signal", `id=${"0".repeat(11)}f`],
];

/** Its worker is not `dynamic`, so it can ask for nothing. */
const OFFERED = [...TOOLS.keys(), ...STARTED_TOOLS.keys()].filter((name) => name !== "request_access");
/** Each use is a process of the inspector and one of the server; these show each form of an input, and a refusal. */
const FEW = ["write_file", "edit_file", "call_worker", "git_stage"];
const USES = AT_LENGTH ? ALL : ALL.filter(([name]) => FEW.includes(name));

describe("the official inspector", () => {
  it("lists every tool, and finds nothing wrong with their schemas", async () => {
    const { status, stdout, stderr } = await inspect("--method", "tools/list", "--strict");
    expect(status, stderr).toBe(0);
    const { tools } = JSON.parse(stdout) as { tools: { name: string }[] };
    expect(tools.map(({ name }) => name)).toEqual(OFFERED);
  });

  it("calls tools", async () => {
    expect(ALL.map(([name]) => name).sort()).toEqual(OFFERED.toSorted());
    for (const [name, ...input] of USES) {
      const args = input.flatMap((pair) => ["--tool-arg", pair]);
      const { stdout } = await inspect("--method", "tools/call", "--tool-name", name, ...args);
      const answer = JSON.parse(stdout) as { isError?: boolean; structuredContent: { code?: string } };
      // There is no such commit, and for staging nothing has changed: clear refusals.
      const refused = ["git_stage", "git_push", "git_discard", "exec_output", "exec_signal"].includes(name);
      expect(answer.isError ?? false, stdout).toBe(refused);
      if (refused) expect(answer.structuredContent.code).toMatch(/^[A-Z_]+$/);
    }
    expect(await mcp.cells()).toEqual([]);
  }, 180_000);

  it("lists and reads resources", async () => {
    const listed = await inspect("--method", "resources/list");
    expect(listed.stdout).toContain("corral:///docs/a.txt");
    const read = await inspect("--method", "resources/read", "--uri", "corral:///docs/a.txt");
    expect(read.stdout).toContain("a document");
    const templates = await inspect("--method", "resources/templates/list");
    expect(templates.stdout).toContain("corral:///{+path}");
  });
});
