import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject } from "./cli-project.ts";

const ANSWERS = [
  {
    say: "I look.\nThen I write.",
    calls: [{ list_files: { path: "/in" } }, { write_file: { path: "/in/x", content: "" } }],
  },
  { say: "Two \u001b[31mfiles." },
];

let project: CliProject;

beforeAll(async () => {
  project = await cliProject({
    yaml: { version: 1, policy: "untrusted", sandbox: { mode: "direct", zones: { in: { path: "in", mode: "ro" } } } },
    workers: {
      a: {
        model: "script/s/a.yaml",
        tools: ["list_files", "write_file"],
        sandbox: { zones: [{ name: "in" }] },
        limits: { steps: 5 },
      },
      replayed: { model: "script/s/again.jsonl", tools: ["list_files"], sandbox: { zones: [{ name: "in" }] } },
      w: { command: ["true"] },
    },
    folders: ["in"],
    files: { "s/a.yaml": JSON.stringify(ANSWERS), "in/a.txt": "", "in/b.txt": "" },
  });
});

afterAll(async () => {
  await project[Symbol.asyncDispose]();
});

describe("corral run of an agent", () => {
  it("prints its answer alone, and with --stream tells what it says and does as it comes", async () => {
    const quiet = await project.corral(["run", "a"]);
    expect(quiet).toMatchObject({ status: 0, stdout: "Two \u001b[31mfiles.\n", stderr: "" });
    const { status, stdout, stderr } = await project.built(["run", "a", "--stream"]);
    expect({ status, stdout }).toEqual({ status: 0, stdout: quiet.stdout });
    expect(stderr.trimEnd().split("\n")).toEqual([
      "a │ I look.",
      "a │ Then I write.",
      'a │ → list_files {"path":"/in"}',
      'a │ → write_file {"path":"/in/x","content":""}',
      "a │ ✗ write_file was refused: PATH_NOT_WRITABLE",
      "a │ Two \\u{1b}[31mfiles.",
    ]);
  });

  it("keeps its transcript, to list, to read, and to play again", async () => {
    const { stdout } = await project.corral(["run", "a", "--json", "--record", "s/again.jsonl"]);
    const { run, agent } = JSON.parse(stdout);
    expect(agent).toMatchObject({ model: "script/s/a.yaml", steps: 2 });
    const listed = await project.corral(["transcripts", "ls", "--json"]);
    expect(JSON.parse(listed.stdout)[0]).toMatchObject({ run });
    const shown = await project.corral(["transcripts", "show", run]);
    expect(shown.stdout).toContain("[write_file: PATH_NOT_WRITABLE]");
    expect(shown.stdout).toContain("Two \\u{1b}[31mfiles.");
    const lines = await project.corral(["transcripts", "show", run, "--json"]);
    expect(lines.stdout).toBe(await readFile(join(project.dir, "s/again.jsonl"), "utf8"));
    const again = await project.corral(["run", "replayed", "--stream"]);
    expect(again).toMatchObject({ status: 0, stdout: "Two \u001b[31mfiles.\n" });
    expect(again.stderr).toContain("✗ write_file was refused: NO_SUCH_TOOL");
  });

  it("is continued from its transcript, and not from that of another worker", async () => {
    const { run } = JSON.parse((await project.corral(["run", "a", "--json"])).stdout);
    const again = await project.corral(["run", "a", "--continue", run, "--json"]);
    const result = JSON.parse(again.stdout);
    expect(result).toMatchObject({ status: "succeeded", agent: { continues: run } });
    expect((await project.corral(["transcripts", "show", result.run])).stdout).toContain(`\ncontinues run ${run}\n`);
    expect((await project.corral(["audit"])).stdout).toContain(`requested; continues run ${run}`);
    const refused = await project.corral(["run", "w", "--continue", run]);
    expect(refused).toMatchObject({ status: 2, stdout: "", stderr: expect.stringContaining("worker w is no agent") });
  });

  it("refuses to record what cannot be recorded before anything runs", async () => {
    await writeFile(join(project.dir, "there.jsonl"), "mine");
    for (const [args, told] of [
      [["run", "w", "--record", "x.jsonl"], "w is a command"],
      [["run", "a", "--record", "x.txt"], "ends in .jsonl"],
      [["run", "a", "--record", "there.jsonl"], "there.jsonl exists"],
      [["transcripts", "show", "../../seal"], "there is no transcript"],
    ] as const) {
      const { status, stderr } = await project.corral(args);
      expect({ status, stderr }).toEqual({ status: 2, stderr: expect.stringContaining(told) });
    }
    expect(await readFile(join(project.dir, "there.jsonl"), "utf8")).toBe("mine");
  });

  it("writes down each tool in the audit trail, and explain shows model, tools and budget beforehand", async () => {
    const { stdout } = await project.corral(["audit", "--json", "--type", "tool_used"]);
    const records = stdout
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(records.slice(0, 2)).toMatchObject([
      { worker: "a", tool: "list_files", on: { path: "/in" }, ok: true },
      { worker: "a", tool: "write_file", on: { path: "/in/x" }, ok: false, code: "PATH_NOT_WRITABLE" },
    ]);
    expect((await project.corral(["audit"])).stdout).toContain(
      "started on script/s/a.yaml with list_files, write_file",
    );
    const explained = await project.corral(["explain", "a"]);
    expect(explained.stdout).toMatch(
      /model +script\/s\/a.yaml[\s\S]*tools +list_files, write_file[\s\S]*5 steps, 1000000 tokens/,
    );
  });
});
