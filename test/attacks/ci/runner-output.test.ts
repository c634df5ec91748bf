import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject, sh } from "../../cli/cli-project.ts";
import { strictXml } from "../../fleet/report/strict-xml.ts";
import { carriedOut } from "./carried-out.ts";

/* What a worker prints, in a step of GitHub Actions: commands to its runner, and texts in the summary of the step. */

let project: CliProject;
let dir: string;

const COMMANDS = [
  "::error file=src/a.js,line=1::forged",
  "::warning::forged",
  "::add-mask::e",
  "::set-env name=PATH::/evil",
  "::set-output name=ok::true",
  "::save-state name=x::y",
  "   ::add-matcher::/etc/passwd",
  "::stop-commands::mine",
  "::mine::",
  "::group::x",
  "text ##[add-mask]e",
  "##[add-path]/evil",
  "\\r::error::forged",
  "\\377\\001\\033[2J]]><testcase/>",
  "<h1>forged</h1> ![x](https://evil.example/x.png)",
];

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "corral-runner-"));
  const script = COMMANDS.map((line) => `printf '%b\\n' '${line}'; printf '%b\\n' '${line}' >&2`).join("; ");
  project = await cliProject({
    yaml: { version: 1, policy: "untrusted" },
    workers: { w: { command: sh(`env | grep -c GITHUB; ${script}; exit 3`) } },
    files: { "items.jsonl": `${JSON.stringify({ key: "::error::forged ##[add-mask]e" })}\n` },
  });
});
afterAll(async () => {
  await project[Symbol.asyncDispose]();
  await rm(dir, { recursive: true, force: true });
});

describe("what a worker prints in a step of GitHub Actions", () => {
  it("is no command to the runner, and no markup in the summary", async () => {
    const env = { GITHUB_ACTIONS: "true", GITHUB_STEP_SUMMARY: join(dir, "run.md"), GITHUB_ENV: join(dir, "env") };
    const ran = await project.built(["run", "w"], { env });
    expect(ran.status).toBe(3);
    // Its own output is not changed: a program may read it.
    expect(ran.stdout).toMatch(/^0\n::error file=src\/a\.js,line=1::forged\n/);
    expect(carriedOut(ran)).toEqual([]);
    const token = /^::stop-commands::(\w+)\n/.exec(ran.stderr)?.[1] ?? "";
    expect((ran.stdout + ran.stderr).split(token)).toHaveLength(2);
    // The runner would carry these out without Corral's line.
    expect(carriedOut({ ...ran, stderr: ran.stderr.replace(/^.*\n/, "") }).length).toBeGreaterThan(5);

    const summary = await readFile(join(dir, "run.md"), "utf8");
    expect(summary).toContain("<td>failed, exit status 3");
    expect(summary).toContain("&lt;h1&gt;forged&lt;/h1&gt;");
    expect(summary).not.toContain("<h1>");
    expect(summary.trim()).not.toMatch(/\n[ \t]*\n/);
  });

  it("is none of either as an item of a fleet", async () => {
    const env = { GITHUB_ACTIONS: "true", GITHUB_STEP_SUMMARY: join(dir, "map.md") };
    const ran = await project.built(["map", "w", "--manifest", "items.jsonl", "--json", "--junit", "junit.xml"], {
      env,
    });
    expect(ran.status).toBe(1);
    expect(carriedOut(ran)).toEqual([]);
    // Bytes that are no UTF-8, controls and the end of a section are in what it printed.
    const report = strictXml(await readFile(join(project.dir, "junit.xml"), "utf8"));
    expect(report.attributes).toMatchObject({ tests: "1", failures: "1", errors: "0" });
    const [item] = report.children[0]?.children ?? [];
    expect(item).toMatchObject({ name: "testcase", attributes: { name: "::error::forged ##[add-mask]e" } });
    expect(item?.children.map(({ name }) => name)).toEqual(["failure", "system-err"]);
    expect(item?.children[1]?.text).toContain("]]><testcase/>");
    const summary = await readFile(join(dir, "map.md"), "utf8");
    expect(summary).toContain("<td>done: 1 of 1 item");
    expect(summary).toContain("<code>::error::forged ##[add-mask]e</code>");
    expect(summary.trim()).not.toMatch(/\n[ \t]*\n/);
  });
});
