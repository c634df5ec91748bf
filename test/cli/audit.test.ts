import { readFile, writeFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openTrail } from "../../src/run/recorded/run-history.ts";
import { projectPaths } from "../../src/state/state-dir.ts";
import { type CliProject, cliProject, sh } from "./cli-project.ts";

let project: CliProject;
let trail: string;
let run: string;

beforeAll(async () => {
  project = await cliProject({
    yaml: {
      version: 1,
      policy: "untrusted",
      sandbox: { mode: "direct", zones: { docs: { path: "docs", mode: "ro" } } },
    },
    workers: {
      reader: { command: sh("cat /docs/a.txt"), sandbox: { zones: [{ name: "docs" }] } },
      greedy: { command: sh("true"), sandbox: { zones: [{ name: "docs", mode: "rw" }] } },
    },
    folders: ["docs"],
    files: { "docs/a.txt": "a document" },
  });
  trail = projectPaths(project.stateDir, project.dir).trail.trail;
  expect((await project.corral(["audit"])).stderr).toBe("Nothing is recorded.\n");
  expect(await project.corral(["audit", "--verify"])).toMatchObject({ status: 0, stderr: "Nothing is recorded.\n" });
  const ran = await project.corral(["run", "reader", "--json"]);
  run = JSON.parse(ran.stdout).run;
  await project.corral(["run", "greedy"]);
  await using hostile = await openTrail(project.stateDir, project.dir);
  await hostile.append({
    type: "approval",
    run: "aaaaaaaaaaaa",
    root: "bbbbbbbbbbbb",
    worker: "w",
    operations: ["exec"],
    paths: [],
    command: "echo \u001b[2J\nTIME  RUN \u202e",
    outcome: "denied",
    scope: "once",
    reason: "a \u009b31mreason",
    waitedMs: 0,
  });
});

afterAll(async () => {
  await project[Symbol.asyncDispose]();
});

describe("corral audit", () => {
  it("shows what happened as a table, newest last", async () => {
    const { status, stdout, stderr } = await project.corral(["audit"]);
    const lines = stdout.trimEnd().split("\n");
    expect(lines[0]).toMatch(/^TIME +RUN +WORKER +WHAT +OUTCOME$/);
    expect(lines.slice(1).map((line) => line.split(/ {2,}/).slice(2).join(" | "))).toEqual([
      "reader | run | requested",
      "reader | run | started with /docs ro",
      "reader | run | succeeded",
      "greedy | run | requested",
      "greedy | run | refused: WRITE_NOT_AVAILABLE",
      expect.stringContaining("w | exec echo "),
    ]);
    expect(lines[1]).toContain(run);
    expect(stderr).toBe("");
    expect(status).toBe(0);
  });

  it("tells a trail without a record from one in which none matches", async () => {
    const none = await project.corral(["audit", "--run", "000000000000"]);
    expect(none).toMatchObject({ status: 0, stdout: "", stderr: "No record matches.\n" });
    const empty = await project.corral(["audit", "--project", "elsewhere"]);
    expect(empty).toMatchObject({ status: 0, stdout: "", stderr: "Nothing is recorded.\n" });
  });

  it("lets nothing of a worker's draw on the terminal or add a line", async () => {
    const { stdout } = await project.corral(["audit", "--type", "approval"]);
    expect(stdout.trimEnd().split("\n")).toHaveLength(2);
    expect(stdout).toContain("exec echo \\u{1b}[2J TIME  RUN \\u{202e}");
    expect(stdout).toContain("denied (once): a \\u{9b}31mreason");
    // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what must not be there.
    expect(stdout).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/);
  });

  it("prints the records themselves as JSON, one a line", async () => {
    const { stdout } = await project.corral(["audit", "--json"]);
    expect(stdout).toBe(await readFile(trail, "utf8"));
  });

  it.each([
    ["of a run", () => ["--run", run], ["run_requested", "run_started", "run_ended"]],
    [
      "of a run, by a prefix of its id",
      () => ["--run", run.slice(0, 6)],
      ["run_requested", "run_started", "run_ended"],
    ],
    ["of the newest run", () => ["--run", "latest"], ["run_requested", "refused"]],
    ["of a tree of runs, by its root", () => ["--run", "bbbbbbbbbbbb"], ["approval"]],
    ["of a type", () => ["--type", "refused"], ["refused"]],
    ["the newest", () => ["--limit", "2"], ["refused", "approval"]],
    ["since a time that is past", () => ["--since", "2020-01-31", "--limit", "1"], ["approval"]],
    ["since a time that is to come", () => ["--since", "2999-01-31T00:00Z"], []],
  ])("shows only those %s", async (_, options, types) => {
    const { stdout } = await project.corral(["audit", "--json", ...options()]);
    const lines = stdout.split("\n").filter((line) => line !== "");
    expect(lines.map((line) => JSON.parse(line).type)).toEqual(types);
  });

  it.each([
    [["--type", "aproval"], "did you mean `approval`?"],
    [["--since", "yesterday"], "--since takes a date"],
    [["--limit", "0"], "--limit takes a number"],
    [["--run", "nobody"], "there is no run nobody in the trail"],
    [["--run", ""], 'there is no run "" in the trail'],
  ])("refuses %j as wrong usage", async (options, told) => {
    const { status, stderr } = await project.corral(["audit", ...options]);
    expect(stderr).toContain(told);
    expect(status).toBe(2);
  });

  it("needs no Engine and no project that can be read", async () => {
    const yaml = `${project.dir}/corral.yaml`;
    const before = await readFile(yaml, "utf8");
    await writeFile(yaml, "version: x");
    const { status, stdout } = await project.corral(["audit", "--limit", "1"], {
      env: { DOCKER_HOST: "unix:///nowhere/engine.sock" },
    });
    await writeFile(yaml, before);
    expect(stdout.trimEnd().split("\n")).toHaveLength(2);
    expect(status).toBe(0);
  });
});

describe("corral audit --verify", () => {
  it("ends with 0 where the trail is whole", async () => {
    const { status, stdout } = await project.corral(["audit", "--verify"]);
    expect(stdout).toMatch(/^whole: 6 records, \d{4}-.*Z to \d{4}-.*Z\n$/);
    expect(status).toBe(0);
  });

  it("ends with 1 where it is not, and says where and what, as text and as JSON", async () => {
    const before = await readFile(trail, "utf8");
    await writeFile(trail, before.replace("greedy", "greedi"));
    const [text, json, shown] = await Promise.all(
      [["--verify"], ["--verify", "--json"], []].map((options) => project.corral(["audit", ...options])),
    );
    await writeFile(trail, before);
    expect(text).toMatchObject({ status: 1 });
    expect(text?.stdout).toMatch(/^BROKEN: 5 records, .*\n {2}✗ line 4: record 4 was changed\n$/);
    expect(json).toMatchObject({ status: 1 });
    expect(JSON.parse(json?.stdout ?? "")).toMatchObject({ ok: false, problems: [{ line: 4 }] });
    expect(shown?.stderr).toContain("1 line is not a sealed record; corral audit --verify says what is wrong");
  });
});
