import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject } from "./cli-project.ts";

const ROOT = join(import.meta.dirname, "../..");

let project: CliProject;

beforeAll(async () => {
  project = await cliProject({
    yaml: { version: 1 },
    workers: { w: { command: ["true"] }, reader: { model: "script/s.yaml", tools: ["read_file", "list_files"] } },
  });
});
afterAll(async () => {
  await project[Symbol.asyncDispose]();
});

const VERBS =
  "init run explain check tool shell mcp map fleet ps reap audit transcripts changes grants images doctor fleet,ls " +
  "fleet,show fleet,logs fleet,resume fleet,retry fleet,cancel fleet,rm fleet,results fleet,report transcripts,ls transcripts,show " +
  "changes,ls changes,show changes,diff changes,apply changes,discard grants,ls grants,revoke images,build images,ls";

describe("the help", () => {
  it.each(VERBS.split(" "))("of %s is there by -h, in words alone", async (verb) => {
    const { status, stdout, stderr } = await project.corral([...verb.split(","), "-h"]);
    expect([status, stderr]).toEqual([0, ""]);
    expect(stdout).toContain(`Usage: corral ${verb.replace(",", " ")}`);
    // What a program takes for absent is nothing that a person says.
    expect(stdout).not.toMatch(/default: \[|display help/);
    expect(stdout).not.toMatch(/\S\nExamples:/);
  });
});

it.each("run w,shell w,tool w,mcp,map w,fleet resume x,fleet retry x,serve".split(","))(
  "a command that makes cells takes --driver, with the drivers that there are: %s",
  async (words) => {
    const { status, stderr } = await project.corral([...words.split(" "), "--driver", "docker"]);
    expect(status).toBe(2);
    expect(stderr).toContain(
      "argument 'docker' is invalid. Allowed choices are auto, engine, runc, prefer-runc, bwrap, seatbelt.",
    );
  },
);

describe("the help of a command whose exit status says something", () => {
  it.each(
    "init run explain check tool shell map fleet,resume fleet,retry fleet,rm fleet,results audit changes,apply doctor".split(
      " ",
    ),
  )("names it: %s", async (verb) => {
    const { stdout } = await project.corral([...verb.split(","), "-h"]);
    expect(stdout).toMatch(/^Exit status:/m);
  });
});

describe("a mistake on the command line", () => {
  it.each([
    [["rnu"], "corral: unknown command 'rnu'\n(Did you mean run?)"],
    [["run"], "corral: name a worker, or write a command after --, such as `corral run --ro inbox -- ls /inbox`"],
    [["run", "w", "x"], "corral: write -- before the arguments of w, or before a command"],
    [["run", "w", "--ro", "."], "corral: --ro is for a command without a project"],
    [["run", "w", "--", "x"], "corral: w takes no arguments; `arguments: true` in its file"],
    [["run", "--project", ".", "--", "ls"], "corral: --project is for a worker of that project"],
    [["shell"], "corral: name a worker, or say with --image, --ro and --rw what the shell gets"],
    [["mcp"], "corral: use --worker NAME"],
    [["run", "w", "--jsn"], "corral: unknown option '--jsn'\n(Did you mean --json?)"],
    [["run", "w", "--project", ""], "argument '' is invalid. The value is empty."],
    [["run", "w", "--input", "{"], "corral: --input:1:2: this is not JSON"],
    [["tool", "list_files", "{", "--worker", "w"], "corral: the input:1:2: this is not JSON"],
    [["tool", "rd", "{}", "--worker", "reader"], 'there is no tool "rd"; there are: read_file, list_files\n'],
    [["tool", "list_files", "@nowhere", "--worker", "w"], "corral: the input: nowhere cannot be read"],
  ])("is told of %j, with status 2", async (args, says) => {
    const { status, stdout, stderr } = await project.corral(args);
    expect(stderr).toContain(says);
    expect([status, stdout]).toEqual([2, ""]);
  });

  it("is told where Node is older than the package asks for", async () => {
    const asked = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8")).engines.node as string;
    const [, major = "", minor = ""] = /^>=(\d+)\.(\d+)$/.exec(asked) ?? [];
    const on = async (version: string) => {
      const pretended = `data:text/javascript,Object.defineProperty(process,"versions",{value:{node:"${version}"}})`;
      return await project.built(["check"], { env: { NODE_OPTIONS: `--import ${pretended.replaceAll('"', "%22")}` } });
    };
    const older = `${major}.${Number(minor) - 1}.0`;
    expect(await on(older)).toMatchObject({
      status: 1,
      stdout: "",
      stderr: `corral: Node ${major}.${minor} or newer is needed, and this is ${older}\n`,
    });
    expect(await on(`${major}.${minor}.0`)).toMatchObject({ status: 0 });
  });

  it("is told of a port that another program has", async () => {
    const other = createServer().listen(0, "127.0.0.1");
    await once(other, "listening");
    const { port } = other.address() as { port: number };
    const { status, stderr } = await project.corral(["mcp", "--worker", "w", "--http", String(port)]);
    other.close();
    expect(stderr).toMatch(
      new RegExp(`^corral: --http ${port}: this port is not available \\(.*address already in use`),
    );
    expect(status).toBe(2);
  });
});

it("refuses --driver seatbelt on Linux in a sentence, and makes containers with it nowhere", async () => {
  const run = await project.corral(["run", "--driver", "seatbelt", "--policy", "seatbelt", "--", "true"]);
  expect(run).toMatchObject({
    status: 126,
    stdout: "",
    stderr: expect.stringContaining("needs /usr/bin/sandbox-exec"),
  });
  for (const words of ["run w --driver seatbelt", "shell w --driver seatbelt", "--driver seatbelt images ls"]) {
    const { status, stderr } = await project.corral(words.split(" "));
    expect([words, status, stderr]).toEqual([
      words,
      expect.any(Number),
      expect.stringMatching(/Seatbelt makes no containers|sandbox-exec/),
    ]);
    expect(status).toBeGreaterThan(1);
  }
});
