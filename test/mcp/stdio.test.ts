import { spawn } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { STARTED_TOOLS } from "../../src/mcp/connection/started-tools.ts";
import type { ToolEffects } from "../../src/tools/tool.ts";
import { TOOLS } from "../../src/tools/toolbox.ts";
import { PROGRAM } from "../cli/program.ts";
import { bareRemote, type Remote } from "../git/remote.ts";
import { AT_LENGTH } from "../tiers/at-length.ts";
import { HANDY, HANDY_PROJECT, type McpProject, mcpProject, textOf } from "./mcp-project.ts";

const PNG = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=",
  "base64",
);

const BUILT = { built: true };

let remote: Remote;
let mcp: McpProject;

beforeAll(async () => {
  remote = bareRemote({ "a.md": "one\n" });
  mcp = await mcpProject(
    {
      ...HANDY_PROJECT,
      yaml: {
        ...HANDY_PROJECT.yaml,
        git: { repos: { notes: { url: remote.path, at: "/out/notes" } } },
        approval: { rules: [{ operation: "push", paths: ["/out/notes/**"], decide: "approve" }] },
      },
      workers: {
        ...HANDY_PROJECT.workers,
        w: { ...HANDY, git: ["notes"], calls: ["kid", "slow"] },
        slow: { command: ["sleep", "30"], sandbox: {} },
        plain: { command: ["true"], sandbox: { zones: [{ name: "docs" }] } },
        few: { command: ["true"], sandbox: { zones: [{ name: "docs" }] }, tools: ["read_file", "list_files"] },
        greedy: { command: ["true"], sandbox: { zones: [{ name: "docs", mode: "rw" }] } },
      },
    },
    BUILT,
  );
  await writeFile(join(mcp.project.dir, "docs/i.png"), PNG);
});
afterEach(() => mcp.leave());
afterAll(async () => {
  await mcp?.[Symbol.asyncDispose]();
  remote?.remove();
});

// What a process adds is the same for both revisions: the first and the whole set of tools show it for each.
describe.each([
  ["a client that begins with a handshake", false],
  ["a client of the revision 2026-07-28", true],
])("over stdio, %s", (_, modern) => {
  it("lists every tool with its schema, title and annotations, and can use each", async () => {
    const { client } = await mcp.connect({ modern });
    const { tools } = await client.listTools();
    // The worker is not `dynamic`, so it can ask for nothing.
    const all = new Map<string, { effects: ToolEffects }>([...TOOLS, ...STARTED_TOOLS]);
    const offered = [...all.keys()].filter((name) => name !== "request_access");
    expect(tools.map(({ name }) => name)).toEqual(offered);
    for (const tool of tools) {
      expect(tool).toMatchObject({ title: expect.any(String), inputSchema: { type: "object" } });
      expect(tool.annotations?.readOnlyHint).toBe(all.get(tool.name)?.effects.readOnly);
      expect(tool.annotations?.openWorldHint).toBe(all.get(tool.name)?.effects.openWorld);
    }
    const calling = tools.find(({ name }) => name === "call_worker");
    expect(calling?.description).toContain("- kid: Says what it is told");

    const at = modern ? "/out/modern" : "/out/legacy";
    const used = new Set<string>();
    const use = async (name: string, input: Record<string, unknown>) => {
      used.add(name);
      const answer = await client.callTool({ name, arguments: input });
      expect(answer.isError, textOf(answer)).toBeFalsy();
      expect(answer.structuredContent).toBeTypeOf("object");
      return answer;
    };
    expect(textOf(await use("list_files", { path: "/" }))).toBe("/docs/\n/out/");
    expect(textOf(await use("read_file", { path: "/docs/a.txt" }))).toBe("a document\n");
    const image = await use("read_file", { path: "/docs/i.png" });
    expect(image.content).toContainEqual({ type: "image", mimeType: "image/png", data: PNG.toString("base64") });
    expect(image.structuredContent).toMatchObject({ type: "image", bytes: PNG.length });
    await use("write_file", { path: `${at}/x`, content: "one" });
    await use("append_file", { path: `${at}/x`, content: " two" });
    await use("edit_file", { path: `${at}/x`, edits: [{ old: "one", new: "1" }] });
    await use("copy_file", { from: `${at}/x`, to: `${at}/y` });
    await use("move_file", { from: `${at}/y`, to: `${at}/z` });
    expect(textOf(await use("file_info", { path: `${at}/z` }))).toContain("5 bytes");
    expect(textOf(await use("exec", { command: `cat ${at}/z; hostname >&2` }))).toContain("1 two");
    const line = "printf 'one\\303'; sleep 1; printf '\\244two'; echo three >&2; exec sleep 4783";
    const { id } = (await use("exec_start", { command: line })).structuredContent as { id: string };
    const read: string[] = [];
    for (let from = 0; !read.join("").includes("three"); ) {
      const more = await use("exec_output", { id, from, wait_ms: 60_000 });
      read.push(textOf(more).replace(/\n\[running; next: \d+\]$/, ""));
      from = (more.structuredContent as { next: number }).next;
    }
    // No answer ends within a character.
    expect(read.join("")).toBe("oneätwothree\n");
    await use("exec_signal", { id });
    expect((await use("exec_output", { id, wait_ms: 60_000, until: "end" })).structuredContent).toMatchObject({
      status: "signaled",
      signal: "SIGTERM",
      next: 14,
    });
    await use("delete_file", { path: `${at}/z` });
    expect(textOf(await use("call_worker", { worker: "kid", input: { a: 1 } }))).toBe('{"a":1}\n');
    expect(textOf(await use("commit_changes", {}))).toBe("There are no staged changes.");
    await use("git_pull", { repo: "notes", overwrite: true });
    await use("write_file", { path: "/out/notes/a.md", content: `by ${at}\n` });
    const stage = async () => {
      const staged = await use("git_stage", { repo: "notes", files: ["a.md"], message: "say why" });
      return (staged.structuredContent as { commit: string }).commit;
    };
    await use("git_discard", { commit: await stage() });
    await use("git_push", { commit: await stage() });
    expect(remote.git("show", "main:a.md").trim()).toBe(`by ${at}`);
    expect([...used].sort()).toEqual(offered.sort());
    await client.close();
    await expect.poll(() => mcp.cells()).toEqual([]);
  });

  it("is told of a refusal in words and as data, and of bad arguments too", async () => {
    const { client } = await mcp.connect({ modern, within: modern });
    const refused = await client.callTool({ name: "read_file", arguments: { path: "/etc/passwd" } });
    expect(refused).toMatchObject({
      isError: true,
      structuredContent: { code: "PATH_NOT_IN_SANDBOX", path: "/etc/passwd" },
    });
    expect(textOf(refused)).toContain("Readable paths: /docs, /out");
    const readOnly = await client.callTool({ name: "write_file", arguments: { path: "/docs/a.txt", content: "" } });
    expect(readOnly).toMatchObject({ isError: true, structuredContent: { code: "PATH_NOT_WRITABLE" } });
    for (const input of [{}, { path: 7 }, { path: "/docs", extra: true }]) {
      const bad = await client.callTool({ name: "read_file", arguments: input });
      expect(bad).toMatchObject({ isError: true, structuredContent: { code: "BAD_INPUT" } });
      expect(textOf(bad)).toContain("The input of read_file is not valid");
    }
    for (const [name, input, code] of [
      ["exec_start", { command: 7 }, "BAD_INPUT"],
      ["exec_output", { id: "0".repeat(12) }, "UNKNOWN_COMMAND"],
      ["exec_signal", { id: "0".repeat(12) }, "UNKNOWN_COMMAND"],
    ] as const)
      expect(await client.callTool({ name, arguments: input })).toMatchObject({
        isError: true,
        structuredContent: { code },
      });
    await expect(client.callTool({ name: "no_such", arguments: {} })).rejects.toMatchObject({
      code: -32602,
      message: expect.stringContaining('There is no tool "no_such". There are: read_file, write_file'),
    });
  });

  it("hears the lines of a command as it prints them, where it asked for progress", async () => {
    const { client } = await mcp.connect({ modern, within: modern });
    const heard: string[] = [];
    const command = "echo first; sleep 1; printf 'sec'; printf '\\033[31mond\\n'; sleep 0.3; echo third >&2; sleep 0.5";
    const answer = await client.callTool(
      { name: "exec", arguments: { command } },
      { onprogress: ({ message = "" }) => void heard.push(message) },
    );
    expect(answer.isError).toBeFalsy();
    expect(heard.join("\n")).toBe("first\nsec\\u{1b}[31mond\nthird");
  });

  it("ends a command that it cancels, with all its processes, and can go on", async () => {
    const { client } = await mcp.connect({ modern, within: modern });
    const cancel = new AbortController();
    const command = "echo begun; sleep 4242 & sleep 4242";
    const running = client.callTool(
      { name: "exec", arguments: { command } },
      { signal: cancel.signal, onprogress: () => cancel.abort() },
    );
    await expect(running).rejects.toThrow();
    const left = async () => {
      const command = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done";
      return textOf(await client.callTool({ name: "exec", arguments: { command } }));
    };
    await expect.poll(left).not.toContain("sleep 4242");
  });

  // Which revision its client speaks does not matter after the progress of a command was heard, and it takes 5 s.
  it.skipIf(modern && !AT_LENGTH)(
    "hears that a call goes on, and can stop it: the called worker's container goes",
    async () => {
      const { client } = await mcp.connect({ modern });
      const cancel = new AbortController();
      const heard = Promise.withResolvers<string>();
      const running = client.callTool(
        { name: "call_worker", arguments: { worker: "slow" } },
        { signal: cancel.signal, onprogress: ({ message = "" }) => heard.resolve(message) },
      );
      expect(await heard.promise).toBe("still running (5 s)");
      expect(await mcp.cells()).toHaveLength(1);
      cancel.abort();
      await expect(running).rejects.toThrow();
      await expect.poll(() => mcp.cells()).toEqual([]);
    },
  );
});

describe("corral mcp on stdio", () => {
  it("offers a worker only what it can use", async () => {
    const names = async (worker: string) => {
      const { client } = await mcp.connect({ args: ["--worker", worker], within: true });
      return (await client.listTools()).tools.map(({ name }) => name);
    };
    const plain = await names("plain");
    expect(plain.filter((name) => name === "call_worker" || name.startsWith("git_"))).toEqual([]);
    expect(plain).toContain("exec");
    expect(await names("few")).toEqual(["read_file", "list_files"]);
  });

  it("refuses to begin for a worker whose sandbox is refused, and for one that is not there", async () => {
    const greedy = await mcp.project.corral(["mcp", "--worker", "greedy"]);
    expect(greedy).toMatchObject({ status: 126, stdout: "" });
    expect(greedy.stderr).toContain("docs");
    expect(await mcp.project.corral(["mcp", "--worker", "nobody"])).toMatchObject({ status: 2, stdout: "" });
    expect(await mcp.project.corral(["mcp"])).toMatchObject({ status: 2, stdout: "" });
    expect(await mcp.project.corral(["mcp", "--worker", "w", "--http", "x"])).toMatchObject({ status: 2, stdout: "" });
    const env = { CORRAL_MCP_TOKEN: "short" };
    const weak = await mcp.project.corral(["mcp", "--worker", "w", "--http"], { env });
    expect(weak).toMatchObject({ status: 2, stdout: "" });
  });

  it("ends with status 0 where nobody ever speaks, and writes nothing on standard output", async () => {
    expect(await mcp.project.corral(["mcp", "--worker", "w"])).toEqual({
      status: 0,
      signal: null,
      stdout: "",
      stderr: "",
    });
  });

  it("says on standard error and not to the client what is wrong with a message", async () => {
    const { status, stdout } = await mcp.project.corral(["mcp", "--worker", "w"], { stdin: "this is no JSON\n{}\n" });
    expect({ status, stdout }).toEqual({ status: 0, stdout: "" });
  });

  it("leaves nothing when its client is killed in the middle of a command", async () => {
    const script = join(import.meta.dirname, "busy-client.ts");
    const { dir, stateDir } = mcp.project;
    const child = spawn(process.execPath, [script, PROGRAM, dir], {
      env: { ...process.env, CORRAL_STATE_DIR: stateDir },
      stdio: ["ignore", "pipe", "inherit"],
    });
    const server = await new Promise<number>((resolve) => child.stdout.once("data", (pid) => resolve(Number(pid))));
    const before = await mcp.cells();
    child.kill("SIGKILL");
    expect(before).toHaveLength(1);
    await expect.poll(() => isAlive(server)).toBe(false);
    expect(await mcp.cells()).toEqual([]);
  });

  it("leaves no process when it is killed together with what waits for its end: the container ends by itself", async () => {
    const { client, pid } = await mcp.connect();
    const running = client.callTool({ name: "exec", arguments: { command: "sleep 4242" } }).catch(() => "ended");
    await expect.poll(() => mcp.cells()).toMatchObject([{ state: "running" }]);
    const children = await readFile(`/proc/${pid}/task/${pid}/children`, "utf8");
    for (const each of [...children.split(" ").filter(Boolean), pid]) {
      // One of them may have ended by itself since they were listed.
      if (isAlive(Number(each))) process.kill(Number(each), "SIGKILL");
    }
    expect(await running).toBe("ended");
    await expect.poll(() => mcp.cells()).toMatchObject([{ state: "exited" }]);
    expect((await mcp.project.corral(["reap"])).stdout).toContain("container of run");
  });

  it.each(["SIGINT", "SIGTERM"] as const)("leaves nothing when it gets %s", async (signal) => {
    const { client, pid } = await mcp.connect();
    const running = client.callTool({ name: "exec", arguments: { command: "sleep 4242" } }).catch(() => "ended");
    await expect.poll(() => mcp.cells()).toHaveLength(1);
    process.kill(pid, signal);
    await expect.poll(() => isAlive(pid)).toBe(false);
    expect(await mcp.cells()).toEqual([]);
    expect(await running).toBe("ended");
  });

  it("writes each use of a tool into the audit trail", async () => {
    const { client } = await mcp.connect({ within: true });
    await client.callTool({ name: "read_file", arguments: { path: "/docs/a.txt" } });
    await client.close();
    const { stdout } = await mcp.project.corral(["audit", "--type", "tool_used", "--json", "--limit", "1"]);
    expect(JSON.parse(stdout.split("\n")[0] ?? "")).toMatchObject({ type: "tool_used", tool: "read_file" });
  });

  it("keeps what was staged and nobody agreed to, and says where it waits", async () => {
    await using asking = await mcpProject({
      ...HANDY_PROJECT,
      workers: { w: { ...HANDY, calls: [], sandbox: { zones: [{ name: "out", mode: "rw" }] } } },
    });
    const connected = await asking.connect();
    const written = await connected.client.callTool({ name: "exec", arguments: { command: "echo hi > /out/new" } });
    expect(written.isError).toBeFalsy();
    const committed = await connected.client.callTool({ name: "commit_changes", arguments: {} });
    expect(committed).toMatchObject({ isError: true, structuredContent: { code: "APPROVAL_DENIED" } });
    expect(textOf(committed)).toContain("the client offers no way to ask a person");
    await connected.close();
    await expect.poll(() => connected.stderr()).toContain("corral changes show");
    await expect(readFile(join(asking.project.dir, "out/new"))).rejects.toThrow("ENOENT");
    const waiting = await asking.project.corral(["changes", "ls", "--json"]);
    expect(JSON.parse(waiting.stdout)).toHaveLength(1);
  });

  it("has help with a client's configuration", async () => {
    const { stdout, status } = await mcp.project.corral(["mcp", "--help"]);
    expect(status).toBe(0);
    expect(stdout).toContain('"mcpServers"');
    expect(stdout).toContain("claude mcp add");
  });
});

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
