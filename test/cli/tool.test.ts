import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { TOOLS } from "../../src/tools/toolbox.ts";
import { type CliProject, cliProject } from "./cli-project.ts";

let project: CliProject;

beforeAll(async () => {
  project = await cliProject({
    yaml: {
      version: 1,
      policy: "untrusted",
      sandbox: { mode: "direct", zones: { out: { path: "out", mode: "rw" }, docs: { path: "docs", mode: "ro" } } },
    },
    workers: {
      w: {
        command: ["true"],
        sandbox: { zones: [{ name: "docs" }, { name: "out", mode: "rw" }] },
        shell_rules: {
          default: "pre_approved",
          rules: [{ pattern: "rm **", approval: "blocked", why: "no removing" }],
        },
      },
      asks: { command: ["true"], sandbox: {} },
      narrow: { command: ["true"], tools: ["read_file"], sandbox: {} },
      greedy: { command: ["true"], sandbox: { zones: [{ name: "docs", mode: "rw" }, { name: "secrets" }] } },
    },
    folders: ["out"],
    files: { "docs/a.txt": "a document\n", "in.json": '{"path":"/docs/a.txt"}' },
  });
});

afterAll(async () => {
  await project[Symbol.asyncDispose]();
});

const w = ["--worker", "w"];
const tool = (name: string, input: unknown, ...more: string[]) =>
  project.corral(["tool", name, JSON.stringify(input), ...w, ...more]);

describe("corral tool", () => {
  it("lists the tools without a name, and with --json their inputs as JSON Schema", async () => {
    const listed = await project.corral(["tool"]);
    expect(listed).toMatchObject({ status: 0, stderr: "" });
    expect(listed.stdout.match(/^\w+$/gm)).toEqual([...TOOLS.keys()]);
    const told = JSON.parse((await project.corral(["tool", "--json"])).stdout) as { name: string; input: object }[];
    const lists = told.find(({ name }) => name === "list_files")?.input;
    // What has a default may be left out.
    expect(lists).not.toHaveProperty("required");
    expect(lists).toMatchObject({
      type: "object",
      additionalProperties: false,
      properties: { limit: { default: 1000 } },
    });
  });

  it("lists the tools of a worker with their inputs, if one is named", async () => {
    const { status, stdout } = await project.corral(["tool", "--worker", "narrow"]);
    expect(status).toBe(0);
    expect(stdout.match(/^\w+$/gm)).toEqual(["read_file"]);
    expect(stdout).toContain('"offset":{');
    const told = JSON.parse((await project.corral(["tool", "--worker", "narrow", "--json"])).stdout);
    expect(told).toMatchObject([{ name: "read_file", input: { type: "object" } }]);
  });

  it("answers on standard output, and a refusal on standard error with 126", async () => {
    expect(await tool("list_files", { path: "/" })).toEqual({
      status: 0,
      signal: null,
      stdout: "/docs/\n/out/\n",
      stderr: "",
    });
    expect(await tool("read_file", { path: "docs/a.txt" })).toMatchObject({ status: 0, stdout: "a document\n" });
    const refused = await tool("read_file", { path: "/etc/passwd" });
    expect(refused).toMatchObject({ status: 126, stdout: "" });
    expect(refused.stderr).toContain("corral: Cannot access '/etc/passwd'");
    expect(refused.stderr).not.toContain(project.dir);
  });

  it("prints the whole answer with --json, a refusal as well", async () => {
    const read = await tool("read_file", { path: "/docs/a.txt" }, "--json");
    expect(JSON.parse(read.stdout)).toMatchObject({ ok: true, text: "a document\n", data: { totalLines: 1 } });
    const refused = await tool("write_file", { path: "/docs/a.txt", content: "" }, "--json");
    expect(JSON.parse(refused.stdout)).toMatchObject({
      ok: false,
      code: "PATH_NOT_WRITABLE",
      data: { path: "/docs/a.txt" },
    });
    expect(refused).toMatchObject({ status: 126, stderr: "" });
  });

  it("takes its input from a file and from standard input, and none for none", async () => {
    expect((await project.corral(["tool", "read_file", "@in.json", ...w])).stdout).toBe("a document\n");
    const piped = await project.corral(["tool", "read_file", "-", ...w], { stdin: '{"path":"/docs/a.txt"}' });
    expect(piped.stdout).toBe("a document\n");
    expect((await project.corral(["tool", "list_files", ...w])).stdout).toBe("/docs/\n/out/\n");
  });

  it("writes where the mode agrees, and denies where nobody can be asked", async () => {
    const input = { path: "/out/a", content: "text" };
    const denied = await tool("write_file", input);
    expect(denied.status).toBe(126);
    expect(denied.stderr).toContain("To write /out/a needs approval, and it was denied");
    const unruled = await project.corral(["tool", "exec", '{"command":"id"}', "--worker", "asks"]);
    expect(unruled.stderr).toMatch(
      /^corral: `id` needs approval: no rule matches, so the default applies\. It was denied: the approval mode /,
    );
    expect(denied.stderr).toContain("no terminal");
    expect(await readdir(join(project.dir, "out"))).toEqual([]);
    expect(await tool("write_file", input, "--approve", "approve_all")).toMatchObject({ status: 0 });
    expect(await readFile(join(project.dir, "out/a"), "utf8")).toBe("text");
  });

  it("exec ends with the command's own status, or one that says why there is none", async () => {
    const exec = (command: string, more: object = {}) => tool("exec", { command, ...more });
    const three = await exec("echo out; echo err >&2; exit 3");
    expect(three).toMatchObject({
      status: 3,
      stdout: "out\n\n[standard error]\nerr\n\n[failed: exit code 3]\n",
      stderr: "",
    });
    expect((await exec("kill -SEGV $$")).status).toBe(139);
    expect((await exec("sleep 60", { timeout_ms: 200 })).status).toBe(124);
    expect((await exec("tail /dev/zero")).status).toBe(137);
    expect((await exec("yes")).status).toBe(153);
    const blocked = await exec("rm -rf /out");
    expect(blocked.status).toBe(126);
    expect(blocked.stderr).toContain("no removing");
    const asked = await project.corral(["tool", "exec", '{"command":"true"}', "--worker", "asks"]);
    expect(asked.status).toBe(126);
  });

  it("leaves nothing behind, also where it is stopped in the middle", async () => {
    const command = "echo $$ > /out/begun; sleep 60";
    const input = JSON.stringify({ command });
    const { child, ended } = project.start(["tool", "exec", input, ...w]);
    await expect.poll(project.cells).toHaveLength(1);
    child.kill("SIGINT");
    expect((await ended).status).toBe(130);
    expect(await project.cells()).toEqual([]);
    expect(await readdir(join(project.stateDir, "live"))).toEqual([]);
  });

  it("refuses a worker that asks for more than the project has, with every reason", async () => {
    const { status, stderr } = await project.corral(["tool", "list_files", "{}", "--worker", "greedy"]);
    expect(status).toBe(126);
    expect(stderr).toContain("'/docs'");
    expect(stderr).toContain("'secrets'");
  });

  it.each([
    [["tool", "reed_file", "{}", ...w], "there is no tool"],
    [["tool", "read_file", "{}"], "--worker NAME"],
    [["tool", "read_file", "{}", "--worker", "ww"], "did you mean `w`?"],
    [["tool", "read_file", "{", ...w], "this is not JSON"],
    [["tool", "read_file", '{"path":3}', ...w], "→ at path"],
    [["tool", "read_file", '{"path":"/docs","x":1}', ...w], 'Unrecognized key: "x"'],
  ])("says what is wrong with %j, and ends with 2", async (args, says) => {
    const { status, stdout, stderr } = await project.corral(args);
    expect(stderr).toContain(says);
    expect(stdout).toBe("");
    expect(status).toBe(2);
  });
});
