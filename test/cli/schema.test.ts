import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { main } from "../../src/cli/program.ts";
import type { Terminal } from "../../src/cli/terminal/terminal.ts";
import { SCHEMA_KINDS } from "../../src/declarations/editor/kinds.ts";
import { editorSchema } from "../../src/declarations/editor/schemas.ts";

async function corral(cwd: string, ...args: string[]) {
  const text = { stdout: "", stderr: "" };
  const stream = (name: "stdout" | "stderr") => ({ write: (piece: string) => (text[name] += piece) });
  const terminal = { env: {}, cwd, stdout: stream("stdout"), stderr: stream("stderr") } as unknown as Terminal;
  return { status: await main(args, terminal), ...text };
}

it("corral schema prints a schema, lists the kinds, and writes all of them with the settings of editors", async () => {
  const dir = await mkdtemp(join(tmpdir(), "corral-schema-"));
  onTestFinished(() => rm(dir, { recursive: true }));
  expect((await corral(dir, "schema")).stdout.split("\n").map((line) => line.split(" ")[0])).toEqual([
    ...SCHEMA_KINDS,
    "",
  ]);
  for (const kind of SCHEMA_KINDS)
    expect(JSON.parse((await corral(dir, "schema", kind)).stdout)).toEqual(editorSchema(kind));
  const written = await corral(dir, "schema", "--write", "a/b");
  expect(JSON.parse(written.stdout)["yaml.schemas"]).toMatchObject({ "a/b/project.schema.json": "corral.yaml" });
  expect(JSON.parse(await readFile(join(dir, "a/b/worker.schema.json"), "utf8"))).toEqual(editorSchema("worker"));
  expect(await corral(dir, "schema", "wroker")).toMatchObject({ status: 2, stdout: "" });
  expect(await corral(dir, "schema", "worker", "--write", "x")).toMatchObject({ status: 2, stdout: "" });
});

it("corral workers ls lists the sound workers beside every mistake, with status 1", async () => {
  const at = await mkdtemp(join(tmpdir(), "corral-unsound-"));
  onTestFinished(() => rm(at, { recursive: true }));
  await mkdir(join(at, "workers"), { recursive: true });
  const files = {
    "corral.yaml": "version: 1\nsandbox: { paths: {} }\n",
    "workers/good.worker": "---\ncommand: [echo]\n---\nSays something.\n",
    "workers/wrong.worker": "---\ncomand: [echo]\n---\n",
    "workers/lost.worker": "---\ncommand: [echo]\ncalls: [nobody]\n---\n",
  };
  for (const [name, text] of Object.entries(files)) await writeFile(join(at, name), text);
  const shown = await corral("/", "-C", at, "workers", "ls");
  expect(shown.status).toBe(1);
  expect(shown.stdout).toMatch(/^WORKER .*\ngood {2}.*\n$/);
  expect(shown.stderr).toMatch(/lost\.worker:3:.*nobody[\s\S]*wrong\.worker:/);
  const json = await corral("/", "-C", at, "workers", "ls", "--json");
  const { workers, problems } = JSON.parse(json.stdout);
  expect([json.status, workers.map(({ name }: { name: string }) => name)]).toEqual([1, ["good"]]);
  expect(problems.length).toBeGreaterThanOrEqual(2);
  await writeFile(join(at, "corral.yaml"), "version: 1\npolicies: none\n");
  expect((await corral("/", "-C", at, "workers", "ls")).stdout, "the project's own file is wrong").toMatch(
    /\ngood {2}/,
  );
});

it("corral workers ls lists workers, or every mistake with its place and status 1", async () => {
  const inbox = join(import.meta.dirname, "../../examples/inbox");
  const listed = JSON.parse((await corral("/", "-C", inbox, "workers", "ls", "--json")).stdout);
  expect(listed.problems).toEqual([]);
  expect(listed.workers).toContainEqual(
    expect.objectContaining({ name: "extract", image: "corral/documents", policy: "untrusted", calls: ["summarize"] }),
  );
  expect((await corral("/", "-C", inbox, "workers")).stdout).toMatch(/^WORKER .*\n[\s\S]*^extract .*summarize/m);
  const missing = await corral("/", "-C", "/nowhere", "workers", "ls");
  expect(missing).toMatchObject({ status: 1, stdout: "", stderr: "/nowhere: the project's folder does not exist\n" });
});
