import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject } from "../cli/cli-project.ts";
import { PROGRAM } from "../cli/program.ts";
import { clientOf, textOf } from "./mcp-project.ts";

interface Launched {
  readonly command: string;
  readonly args: readonly string[];
}

const blocks = async (language: string, page = "docs/mcp.md"): Promise<string[]> => {
  const text = await readFile(join(import.meta.dirname, "../..", page), "utf8");
  return [...text.matchAll(new RegExp(`\`\`\`${language}\\n(.*?)\`\`\``, "gs"))].map(([, block = ""]) => block);
};

let bin: string;
let project: CliProject;

beforeAll(async () => {
  // `corral` as it is found where it is installed.
  bin = await mkdtemp(join(tmpdir(), "corral-bin-"));
  await writeFile(join(bin, "corral"), `#!/bin/sh\nexec '${process.execPath}' '${PROGRAM}' "$@"\n`);
  await chmod(join(bin, "corral"), 0o755);
  project = await cliProject({
    yaml: {},
    workers: {},
    files: { "papers/a.txt": "a paper\n" },
    folders: ["notes"],
  });
  const [yaml = "", worker = ""] = await blocks("yaml");
  await writeFile(join(project.dir, "corral.yaml"), yaml);
  await mkdir(join(project.dir, "workers"), { recursive: true });
  await writeFile(join(project.dir, "workers/desk.worker"), worker.replace(/^# .*\n/, ""));
});
afterAll(async () => {
  await project?.[Symbol.asyncDispose]();
  await rm(bin, { recursive: true, force: true });
});

const env = (): Record<string, string> => ({
  ...(process.env as Record<string, string>),
  PATH: `${bin}${delimiter}${process.env.PATH}`,
  CORRAL_STATE_DIR: project.stateDir,
});

describe("the README", () => {
  it("has the same configuration in three lines", async () => {
    const [config = ""] = await blocks("json", "README.md");
    const [documented = ""] = await blocks("json");
    expect(config.trim().split("\n")).toHaveLength(3);
    expect(JSON.parse(config)).toEqual(JSON.parse(documented));
  });
});

describe("docs/mcp.md", () => {
  it("has a configuration that puts a client into a container that sees two folders", async () => {
    const [config = ""] = await blocks("json");
    const { mcpServers } = JSON.parse(config.replaceAll("/srv", project.dir)) as {
      mcpServers: { desk: Launched };
    };
    const { command, args } = mcpServers.desk;
    const client = clientOf({ capabilities: { elicitation: {} } });
    client.setRequestHandler("elicitation/create", async () => ({ action: "accept", content: { answer: "once" } }));
    await client.connect(new StdioClientTransport({ command, args: [...args], env: env() }));
    const exec = async (line: string) => textOf(await client.callTool({ name: "exec", arguments: { command: line } }));
    expect(textOf(await client.callTool({ name: "list_files", arguments: { path: "/" } }))).toBe("/notes/\n/papers/");
    expect(await exec("cat /papers/a.txt; echo x > /papers/b 2>&1 || echo no")).toContain("a paper\n");
    expect(await exec(`ls ${project.dir} 2>&1`)).toContain("No such file");
    const written = await client.callTool({ name: "write_file", arguments: { path: "/notes/n.md", content: "# n" } });
    expect(written.isError).toBeFalsy();
    await client.close();
    const note = () => readFile(join(project.dir, "notes/n.md"), "utf8").catch(() => "");
    await expect.poll(note).toBe("# n");
  });

  it("has a configuration for HTTP that is answered", async () => {
    const [, config = ""] = await blocks("json");
    const { desk } = (
      JSON.parse(config) as { mcpServers: { desk: { url: string; headers: { Authorization: string } } } }
    ).mcpServers;
    const [, , port = ""] = desk.url.split(":");
    const shell = (await blocks("sh")).find((block) => block.includes("--http")) ?? "";
    expect(shell).toContain(`--http ${port.split("/")[0]}`);
    const token = "t".repeat(64);
    const { child, ended } = project.start(["mcp", "--worker", "desk", "--http", "0"], {
      env: { CORRAL_MCP_TOKEN: token },
    });
    const said = await new Promise<string>((resolve) => child.stderr?.once("data", (chunk) => resolve(String(chunk))));
    const url = /http:\S+/.exec(said)?.[0] ?? "";
    expect(url.replace(/:\d+/, `:${port.split("/")[0]}`)).toBe(desk.url);
    const authorization = desk.headers.Authorization.replace(/\$\{CORRAL_MCP_TOKEN\}/, token);
    const client = clientOf();
    await client.connect(
      new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { authorization } } }),
    );
    expect((await client.listTools()).tools.length).toBeGreaterThan(5);
    await client.close();
    child.kill("SIGTERM");
    const { stderr, status } = await ended;
    expect(status).toBe(130);
    // A token that was set is not shown.
    expect(stderr).not.toContain(token);
  });
});
