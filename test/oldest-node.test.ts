import { execFile, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type CliProject, cliProject, sh } from "./cli/cli-project.ts";
import { PROGRAM } from "./cli/program.ts";
import { packedProgram } from "./packed-program.ts";

const { engines } = JSON.parse(readFileSync(join(import.meta.dirname, "../package.json"), "utf8"));
const OLDEST = `${engines.node.replace(">=", "")}.0`;

let project: CliProject;
let node = "";
beforeAll(async () => {
  node = packedProgram(`node-linux-${process.arch}@${OLDEST}`, "bin/node");
  const command = sh('read -r line < /attachments/in.txt; echo "$line" > "$CORRAL_FIELD_OUT/copy.txt"');
  const zone = { name: "out", mode: "rw", approval: "pre_approved" };
  project = await cliProject({
    yaml: { version: 1, sandbox: { mode: "direct", zones: { out: { path: "./out", mode: "rw" } } } },
    workers: { copy: { image: "corral/base", command, sandbox: { zones: [zone] } } },
    folders: ["out"],
    files: { "in/a.txt": "first\n", "in/b.txt": "second\n" },
  });
});
afterAll(() => project?.[Symbol.asyncDispose]());

async function corral(...args: readonly string[]): Promise<string> {
  const env = { ...process.env, NO_COLOR: "1", CORRAL_STATE_DIR: project.stateDir };
  const { stdout, stderr } = await promisify(execFile)(node, [PROGRAM, ...args], { cwd: project.dir, env });
  // A warning of Node's would be there.
  expect(stderr.split("\n").filter((line) => line !== "" && !/^(corral: | +\d+ {2}\w)/.test(line))).toEqual([]);
  return stdout;
}

it("runs, fleets, sessions, conversions and the service work with the oldest Node that the package supports", async () => {
  expect(await corral("run", "--", "echo", "hello")).toBe("hello\n");
  const each = ["--attach", "{path}=in.txt", "--allow-write", "/out/{stem}", "--input", '{"out": "/out/{stem}"}'];
  await corral("map", "copy", "--over", "in/*.txt", ...each);
  expect(await readFile(join(project.dir, "out/b/copy.txt"), "utf8")).toBe("second\n");
  const { fleets } = JSON.parse(await corral("fleet", "ls", "--json"));
  expect(fleets).toMatchObject([{ state: "done" }]);
  await corral("convert", "--to", "text", "in", "--out", "texts");
  await corral("session", "start", "copy", "--name", "desk");
  expect(await corral("session", "exec", "desk", "--", "echo", "inside")).toBe("inside\n");
  await corral("session", "stop", "desk");

  const env = { ...process.env, CORRAL_STATE_DIR: project.stateDir };
  const service = spawn(node, [PROGRAM, "serve", "--listen", "127.0.0.1:0"], { cwd: project.dir, env });
  const log = text(service.stderr);
  const [address] = await once(service.stdout);
  expect((await fetch(`${address}/v1/health`)).status).toBe(200);
  service.kill("SIGTERM");
  expect(await log).not.toContain("Warning");
});

/** The first line that it prints. */
async function once(stream: NodeJS.ReadableStream): Promise<string[]> {
  for await (const chunk of stream) return String(chunk).split("\n");
  throw new Error("it printed nothing");
}
