import { mkdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { Client } from "@modelcontextprotocol/client";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { type ConnectedClient, HANDY, HANDY_PROJECT, type McpProject, mcpProject, textOf } from "../mcp-project.ts";

let mcp: McpProject;

beforeAll(async () => {
  mcp = await mcpProject({
    ...HANDY_PROJECT,
    workers: { ...HANDY_PROJECT.workers, dyn: { ...HANDY, sandbox: { dynamic: true } } },
  });
  await mkdir(join(mcp.project.dir, "docs/sub"));
  await writeFile(join(mcp.project.dir, "docs/sub/b.txt"), "below\n");
  await mkdir(join(mcp.project.dir, "elsewhere"));
  await symlink(join(mcp.project.dir, "docs/sub"), join(mcp.project.dir, "elsewhere/link"));
});
afterEach(() => mcp.leave());
afterAll(() => mcp?.[Symbol.asyncDispose]());

const uri = (path: string): string => pathToFileURL(join(mcp.project.dir, path)).href;

/** A client with these roots, which a test may change. */
async function rooted(roots: string[], args?: readonly string[]): Promise<ConnectedClient & { asked: () => number }> {
  let asked = 0;
  const connected = await mcp.connect({
    capabilities: { roots: { listChanged: true } },
    ...(args === undefined ? {} : { args }),
    prepare(client) {
      client.setRequestHandler("roots/list", async () => {
        asked += 1;
        return { roots: roots.map((each) => ({ uri: each })) };
      });
    },
  });
  return { ...connected, asked: () => asked };
}

async function shown(client: Client): Promise<string> {
  return textOf(await client.callTool({ name: "list_files", arguments: { path: "/", pattern: "**" } }));
}

async function seenInCell(client: Client): Promise<string> {
  const command = "find /docs /out -type f 2>/dev/null | sort";
  return textOf(await client.callTool({ name: "exec", arguments: { command } }));
}

describe("a client's roots", () => {
  it("leave what lies in them, for tools and for commands alike", async () => {
    const { client } = await rooted([uri("docs/sub")]);
    expect(await shown(client)).toBe("/docs/\n/docs/sub/\n/docs/sub/b.txt (6 bytes)");
    expect(await seenInCell(client)).toBe("/docs/sub/b.txt\n");
    const refused = await client.callTool({ name: "read_file", arguments: { path: "/docs/a.txt" } });
    expect(refused).toMatchObject({ isError: true, structuredContent: { code: "PATH_NOT_IN_SANDBOX" } });
    const written = await client.callTool({ name: "write_file", arguments: { path: "/out/x", content: "" } });
    expect(written.isError).toBe(true);
    const { resources } = await client.listResources();
    expect(resources.map((resource) => resource.uri)).toEqual(["corral:///docs", "corral:///docs/sub"]);
    await expect(client.readResource({ uri: "corral:///docs/a.txt" })).rejects.toThrow();
  });

  it("are followed where they are links", async () => {
    const { client } = await rooted([uri("elsewhere/link")]);
    expect(await shown(client)).toContain("/docs/sub/b.txt");
    expect(await shown(client)).not.toContain("/docs/a.txt");
  });

  it("never make a read-only directory writable, nor show what the worker has not", async () => {
    const { client } = await rooted([uri("."), "file:///etc", "file:///"]);
    expect(await shown(client)).toBe("/docs/\n/docs/a.txt (11 bytes)\n/docs/sub/\n/docs/sub/b.txt (6 bytes)\n/out/");
    const written = await client.callTool({ name: "write_file", arguments: { path: "/docs/a.txt", content: "" } });
    expect(written).toMatchObject({ isError: true, structuredContent: { code: "PATH_NOT_WRITABLE" } });
    for (const path of ["/etc/passwd", join(mcp.project.dir, "corral.yaml")]) {
      expect((await client.callTool({ name: "read_file", arguments: { path } })).isError).toBe(true);
    }
  });

  it.each([
    ["outside of everything", () => [uri("elsewhere")]],
    ["nowhere, or on another machine", () => ["file:///no/such/place", "file://host/etc", "file:///%00"]],
    ["encoded slashes", () => [`${uri(".")}%2Fdocs`]],
    ["a file", () => [uri("docs/a.txt")]],
  ])("that are %s leave no files, and say why", async (_, roots) => {
    const { client, stderr } = await rooted(roots());
    const answer = await client.callTool({ name: "list_files", arguments: { path: "/" } });
    expect(textOf(answer)).toMatch(/^There are no entries\.\n\[Note: None of this worker's directories is in/);
    expect(textOf(answer)).not.toContain(mcp.project.dir);
    expect(await seenInCell(client)).not.toContain("/docs/");
    expect(stderr()).toContain("is in the client's roots");
  });

  it("are not asked for with --no-roots, and an empty list draws no line", async () => {
    const ignoring = await rooted([uri("elsewhere")], ["--worker", "w", "--no-roots"]);
    expect(await shown(ignoring.client)).toContain("/docs/a.txt");
    expect(ignoring.asked()).toBe(0);
    const empty = await rooted([]);
    expect(await shown(empty.client)).toContain("/docs/a.txt");
  });

  it("that change close what is open, and open it anew under the new ones", async () => {
    const roots = [uri("docs"), uri("out")];
    const { client } = await rooted(roots);
    await client.callTool({ name: "exec", arguments: { command: "echo kept > /tmp/x" } });
    expect(await shown(client)).toContain("/docs/a.txt");
    expect(await mcp.cells()).toHaveLength(1);
    roots.splice(0, 2, uri("docs/sub"));
    await client.sendRootsListChanged();
    await expect.poll(() => mcp.cells()).toEqual([]);
    expect(await shown(client)).toBe("/docs/\n/docs/sub/\n/docs/sub/b.txt (6 bytes)");
    expect(await seenInCell(client)).toBe("/docs/sub/b.txt\n");
    roots.splice(0, 1);
    await client.sendRootsListChanged();
    // Who has named roots, and names none any more, has left nothing inside of them.
    await expect.poll(() => shown(client)).toContain("There are no entries.");
    roots.push("file:///");
    await client.sendRootsListChanged();
    await expect
      .poll(() => shown(client))
      .toBe("/docs/\n/docs/a.txt (11 bytes)\n/docs/sub/\n/docs/sub/b.txt (6 bytes)\n/out/");
  });

  it("are learnt anew before anything more is shown, also where nobody waits in between", async () => {
    const roots = [uri("docs")];
    const { client } = await rooted(roots);
    expect(await shown(client)).toContain("/docs/a.txt");
    roots[0] = uri("out");
    await client.sendRootsListChanged();
    expect(await shown(client)).toBe("/out/");
  });

  it("that change without a pause are asked for one time after another, and the last ones count", async () => {
    const roots = [uri("docs/sub")];
    const { client, asked } = await rooted(roots);
    await shown(client);
    for (let change = 0; change < 3000; change += 1) {
      roots[0] = uri(change === 2999 ? "out" : "docs");
      await client.sendRootsListChanged();
    }
    expect(await shown(client)).toBe("/out/");
    expect(asked()).toBeLessThan(1000);
  });

  it("that are of another kind are as if they were not told", async () => {
    const { client } = await rooted([uri("docs"), "https://example.org/docs"]);
    const answer = await client.callTool({ name: "list_files", arguments: { path: "/" } });
    expect(answer).toMatchObject({ isError: true, structuredContent: { code: "ROOTS_UNKNOWN" } });
  });

  it("that a client does not tell leave everything shut", async () => {
    const { client } = await mcp.connect({
      capabilities: { roots: {} },
      prepare: (preparing) =>
        preparing.setRequestHandler("roots/list", () => {
          throw new Error("I do not say");
        }),
    });
    const answer = await client.callTool({ name: "list_files", arguments: { path: "/" } });
    expect(answer).toMatchObject({ isError: true, structuredContent: { code: "ROOTS_UNKNOWN" } });
  });

  it("are no way to be granted more: nothing is granted past them", async () => {
    const roots = [uri("out")];
    const { client } = await mcp.connect({
      args: ["--worker", "dyn"],
      capabilities: { roots: {}, elicitation: {} },
      prepare(preparing) {
        preparing.setRequestHandler("roots/list", async () => ({ roots: roots.map((each) => ({ uri: each })) }));
        preparing.setRequestHandler("elicitation/create", async () => ({
          action: "accept",
          content: { answer: "once" },
        }));
      },
    });
    const refused = await client.callTool({ name: "read_file", arguments: { path: "/docs/a.txt" } });
    expect(refused).toMatchObject({ isError: true, structuredContent: { code: "GRANT_LIMITED_CALL" } });
    const without = await mcp.connect({
      args: ["--worker", "dyn"],
      capabilities: { elicitation: {} },
      prepare: (preparing) =>
        preparing.setRequestHandler("elicitation/create", async () => ({
          action: "accept",
          content: { answer: "once" },
        })),
    });
    const granted = await without.client.callTool({ name: "read_file", arguments: { path: "/docs/a.txt" } });
    expect(textOf(granted)).toContain("a document");
  });
});
