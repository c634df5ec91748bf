import { type ChildProcess, spawn } from "node:child_process";
import { request as httpRequest } from "node:http";
import { join } from "node:path";
import type { Client } from "@modelcontextprotocol/client";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { MAX_MESSAGE_BYTES } from "../../../src/mcp/protocol-server.ts";
import { type McpProject, mcpProject, textOf } from "../mcp-project.ts";
import { connectedTo, type HttpClient, type Served, served, TOKEN } from "./served.ts";

describe("corral mcp --http", () => {
  let mcp: McpProject;
  let child: ChildProcess;
  let ended: Promise<{ status: number | null; stdout: string; stderr: string }>;
  let url = "";
  let token = "";

  beforeAll(async () => {
    mcp = await mcpProject();
    ({ child, ended } = mcp.project.start(["mcp", "--worker", "w", "--http", "0"]));
    let said = "";
    await new Promise<void>((resolve) => {
      child.stderr?.on("data", (chunk: Buffer) => {
        said += chunk.toString();
        if (said.includes("Bearer")) resolve();
      });
    });
    url = /http:\S+/.exec(said)?.[0] ?? "";
    token = /Bearer (\S+)/.exec(said)?.[1] ?? "";
  });
  afterAll(async () => {
    child.kill("SIGTERM");
    expect(await ended).toMatchObject({ status: 130, stdout: "" });
    expect(await mcp.cells()).toEqual([]);
    await mcp[Symbol.asyncDispose]();
  });

  /** Fetch does not let anybody choose the host. */
  async function ask(options: {
    readonly method?: string;
    readonly path?: string;
    readonly headers?: Readonly<Record<string, string>>;
    readonly body?: string;
  }): Promise<{ status: number | undefined; text: string; challenge: string | undefined }> {
    const { method = "POST", path = "/mcp", headers = {}, body = "{}" } = options;
    const { port } = new URL(url);
    const { promise, resolve, reject } = Promise.withResolvers<Awaited<ReturnType<typeof ask>>>();
    const request = httpRequest({ host: "127.0.0.1", port, method, path, headers }, (response) => {
      let text = "";
      response.on("data", (chunk: Buffer) => {
        text += chunk.toString();
      });
      const challenge = response.headers["www-authenticate"];
      response.on("end", () => resolve({ status: response.statusCode, text, challenge }));
      response.on("error", reject);
    });
    request.on("error", reject);
    request.end(body);
    return await promise;
  }

  const authorized = (): Record<string, string> => ({
    authorization: `Bearer ${token}`,
    accept: "application/json, text/event-stream",
    "content-type": "application/json",
  });

  it("listens on this machine's loopback alone, and has a token of 256 bits", () => {
    expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/mcp$/);
    expect(Buffer.from(token, "base64url")).toHaveLength(32);
  });

  it.each([
    ["the handshake", false],
    ["the revision 2026-07-28", true],
  ])("serves a client of %s", async (_, modern) => {
    const { client, transport } = await connectedTo(url, token, modern);
    expect((await client.listTools()).tools.length).toBeGreaterThan(10);
    const heard: string[] = [];
    const answer = await client.callTool(
      { name: "exec", arguments: { command: "echo here; cat /docs/a.txt; sleep 0.3" } },
      { onprogress: ({ message = "" }) => void heard.push(message) },
    );
    expect(textOf(answer)).toBe("here\na document\n");
    expect(heard.join("\n")).toBe("here\na document");
    const { contents } = await client.readResource({ uri: "corral:///docs/a.txt" });
    expect(contents).toMatchObject([{ text: "a document\n" }]);
    expect(await mcp.cells()).toHaveLength(1);
    if (!modern) {
      await transport.terminateSession();
      await expect.poll(() => mcp.cells()).toEqual([]);
    }
    await client.close();
  });

  it("gives each session a container of its own", async () => {
    const one = await connectedTo(url, token);
    const two = await connectedTo(url, token);
    const exec = async ({ client }: typeof one, command: string) =>
      textOf(await client.callTool({ name: "exec", arguments: { command } }));
    await exec(one, "echo mine > /tmp/x");
    expect(await exec(two, "cat /tmp/x 2>&1")).toContain("No such file");
    for (const { client, transport } of [one, two]) {
      await transport.terminateSession();
      await client.close();
    }
  });

  it.each([
    ["no token", {}, 401],
    ["a wrong token", { authorization: "Bearer wrong" }, 401],
    ["a token that is the right one's beginning", { authorization: "Bearer BEGINNING" }, 401],
    ["another scheme", { authorization: "Basic TOKEN" }, 401],
    [
      "the name of a page that was made to mean this machine",
      { authorization: "Bearer TOKEN", host: "evil.example" },
      403,
    ],
    ["another port's name", { authorization: "Bearer TOKEN", host: "127.0.0.1:1" }, 403],
    ["the origin of a page", { authorization: "Bearer TOKEN", origin: "https://evil.example" }, 403],
    ["an origin that is none", { authorization: "Bearer TOKEN", origin: "null" }, 403],
    ["the origin of another port", { authorization: "Bearer TOKEN", origin: "http://127.0.0.1:1" }, 403],
  ])("refuses %s", async (_, headers, status) => {
    const filled = Object.fromEntries(
      Object.entries(headers).map(([name, value]) => [
        name,
        value.replace("TOKEN", token).replace("BEGINNING", token.slice(0, -1)),
      ]),
    );
    const answer = await ask({ headers: filled });
    expect(answer.status).toBe(status);
    expect(answer.text).not.toContain(token);
    if (status === 401) expect(answer.challenge).toBe("Bearer");
  });

  it("refuses what is too long, has too many values, is no JSON, another path or method, and a session that is not there", async () => {
    const said = { ...authorized(), "content-length": String(MAX_MESSAGE_BYTES + 1) };
    const tooLong = await ask({ headers: said, body: "" }).catch((error: NodeJS.ErrnoException) => error.code);
    expect(tooLong).toMatchObject({ status: 413 });
    const unsaid = { ...authorized(), "transfer-encoding": "chunked" };
    const streamed = await ask({ headers: unsaid, body: " ".repeat(MAX_MESSAGE_BYTES + 1) }).catch(() => ({
      status: 413,
    }));
    expect(streamed.status).toBe(413);
    expect((await ask({ headers: authorized(), body: "{" })).status).toBe(400);
    const many = await ask({ headers: authorized(), body: `[${"0,".repeat(50_000)}0]` });
    expect(many).toMatchObject({ status: 400, text: expect.stringContaining("it has more than 50000 values") });
    expect((await ask({ headers: authorized(), path: "/" })).status).toBe(404);
    expect((await ask({ headers: authorized(), method: "PUT" })).status).toBe(405);
    const list = '{"jsonrpc":"2.0","id":1,"method":"tools/list"}';
    expect((await ask({ headers: { ...authorized(), "mcp-session-id": "no" }, body: list })).status).toBe(404);
    expect((await ask({ headers: authorized(), body: list })).status).toBe(400);
    expect((await ask({ headers: authorized(), method: "GET" })).status).toBe(400);
  });

  it("opens no more sessions than it has places for", async () => {
    const body = JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "initialize",
      params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "many", version: "1" } },
    });
    const answers: (number | undefined)[] = [];
    for (let count = 0; count < 20; count += 1) answers.push((await ask({ headers: authorized(), body })).status);
    expect(answers.filter((status) => status === 200)).toHaveLength(16);
    expect(answers.slice(16)).toEqual([503, 503, 503, 503]);
  });
});

describe.each([false, true])("a client over HTTP (2026-07-28: %s)", (modern) => {
  let s: Served;
  afterEach(() => s[Symbol.asyncDispose]());
  const exec = async ({ client }: HttpClient, command: string) =>
    textOf(await client.callTool({ name: "exec", arguments: { command } }));

  it("ends a command that it cancels, with all its processes", async () => {
    s = await served({ idleMs: 60_000, goneMs: 60_000 });
    const connected = await connectedTo(s.server.url, TOKEN, modern);
    const cancel = new AbortController();
    const running = connected.client.callTool(
      { name: "exec", arguments: { command: "echo begun; sleep 4242 & sleep 4242" } },
      { signal: cancel.signal, onprogress: () => cancel.abort() },
    );
    await expect(running).rejects.toThrow();
    const left = () => exec(connected, "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done");
    await expect.poll(left).not.toContain("sleep 4242");
  });

  it("is asked for approval by a form, and what it is asked is its own", async () => {
    s = await served({ idleMs: 60_000, goneMs: 60_000 });
    const asked: string[] = [];
    const answering = (answer: string) => ({
      capabilities: { elicitation: {} },
      prepare(client: Client) {
        client.setRequestHandler("elicitation/create", async ({ params }) => {
          asked.push(`${answer}: ${params.message.includes("printf hello")}`);
          return { action: "accept" as const, content: { answer } };
        });
      },
    });
    const yes = await connectedTo(s.server.url, TOKEN, modern, answering("once"));
    const no = await connectedTo(s.server.url, TOKEN, modern, answering("deny"));
    expect(await Promise.all([exec(yes, "printf hello"), exec(no, "printf hello")])).toEqual([
      "hello",
      expect.stringContaining("the person at the client denied it"),
    ]);
    expect(asked.sort()).toEqual(["deny: true", "once: true"]);
  });

  it("may narrow by roots where its revision has them, and by nothing later", async () => {
    s = await served({ idleMs: 60_000, goneMs: 60_000 });
    const { client } = await connectedTo(s.server.url, TOKEN, modern, {
      capabilities: { roots: {} },
      prepare: (preparing) =>
        preparing.setRequestHandler("roots/list", async () => ({ roots: [{ uri: `file://${s.project.dir}/docs` }] })),
    });
    const listed = textOf(await client.callTool({ name: "list_files", arguments: { path: "/" } }));
    expect(listed).toBe(modern ? "/docs/\n/out/" : "/docs/");
  });
});

describe("a client over HTTP that goes without a word", () => {
  let s: Served;
  afterEach(() => s[Symbol.asyncDispose]());

  it("is gone when what it had open breaks off, with its command and its container", async () => {
    s = await served({ idleMs: 60_000, goneMs: 300 });
    const script = join(import.meta.dirname, "busy-http-client.ts");
    const child = spawn(process.execPath, [script, s.server.url, TOKEN], { stdio: ["ignore", "pipe", "inherit"] });
    await new Promise((resolve) => child.stdout.once("data", resolve));
    expect(await s.cells()).toBe(1);
    child.kill("SIGKILL");
    await expect.poll(() => s.cells()).toBe(0);
  });

  it.each([false, true])("is gone when it has asked nothing for long (2026-07-28: %s)", async (modern) => {
    s = await served({ idleMs: 1500, goneMs: 300 });
    const { client } = await connectedTo(s.server.url, TOKEN, modern);
    await client.callTool({ name: "exec", arguments: { command: "sleep 2" } });
    expect(await s.cells()).toBe(1);
    await client.close();
    await expect.poll(() => s.cells()).toBe(0);
    expect(s.troubles).toEqual([]);
  });

  it("leaves nothing when the server is stopped in the middle of its command", async () => {
    s = await served({ idleMs: 60_000, goneMs: 60_000 });
    const running: Promise<unknown>[] = [];
    for (const modern of [false, true]) {
      const { client } = await connectedTo(s.server.url, TOKEN, modern);
      running.push(client.callTool({ name: "exec", arguments: { command: "sleep 4242" } }));
    }
    await expect.poll(() => s.cells()).toBe(2);
    await s.server[Symbol.asyncDispose]();
    expect(await s.cells()).toBe(0);
    expect(await s.project.traces()).toEqual([]);
    for (const answer of await Promise.all(running)) expect(JSON.stringify(answer)).toMatch(/cancelled/i);
  });
});
