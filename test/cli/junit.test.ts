import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject, sh } from "./cli-project.ts";

let project: CliProject;

beforeAll(async () => {
  project = await cliProject({
    yaml: { version: 1, policy: "untrusted" },
    workers: { w: { command: sh('test "$(jq -r .n)" != 2') } },
    files: { "items.jsonl": '{"key":"a","n":1}\n{"key":"b","n":2}\n' },
  });
});
afterAll(() => project[Symbol.asyncDispose]());

const map = async (...more: string[]) =>
  await project.corral(["map", "w", "--manifest", "items.jsonl", "--input", '{"n":"{n}"}', ...more]);

describe("corral map --junit", () => {
  it("writes the report that corral fleet report --junit prints", async () => {
    expect((await map("--junit", "junit.xml")).status).toBe(1);
    const written = await readFile(join(project.dir, "junit.xml"), "utf8");
    expect(written).toContain('tests="2" failures="1" errors="0"');
    const printed = await project.corral(["fleet", "report", "latest", "--junit"]);
    expect(printed.stdout).toBe(written);
    expect((await project.corral(["fleet", "report", "latest", "--junit", "--html"])).status).toBe(2);
  });

  it("runs nothing if the file cannot be written", async () => {
    const before = await project.corral(["fleet", "ls", "--json"]);
    const { status, stderr } = await map("--junit", "no/such/junit.xml");
    expect(status).toBe(2);
    expect(stderr).toMatch(/^corral: --junit no\/such\/junit\.xml: ENOENT/);
    expect((await project.corral(["fleet", "ls", "--json"])).stdout).toBe(before.stdout);
  });

  it("leaves no report of an earlier fleet if nothing was run", async () => {
    await writeFile(join(project.dir, "old.xml"), "<testsuites/>");
    expect((await map("--junit", "old.xml", "--key", "{nothing}")).status).not.toBe(0);
    expect(await readFile(join(project.dir, "old.xml"), "utf8")).toBe("");
  });
});
