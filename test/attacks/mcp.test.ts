import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Client } from "@modelcontextprotocol/client";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { PROGRAM } from "../cli/program.ts";
import { HANDY_PROJECT, type McpProject, mcpProject, textOf } from "../mcp/mcp-project.ts";
import { AT_LENGTH } from "../tiers/at-length.ts";

const BUILT = { built: true };
const CANARY = "CANARY: no client may read or change this";

let mcp: McpProject;

beforeAll(async () => {
  const files = { ...HANDY_PROJECT.files, "secret/canary": CANARY };
  mcp = await mcpProject({ ...HANDY_PROJECT, files }, BUILT);
  await symlink("../secret/canary", join(mcp.project.dir, "out/relative"));
  await symlink(join(mcp.project.dir, "secret"), join(mcp.project.dir, "out/absolute"));
});
afterEach(async () => {
  expect(await readFile(join(mcp.project.dir, "secret/canary"), "utf8")).toBe(CANARY);
});
afterAll(() => mcp?.[Symbol.asyncDispose]());

/** Whatever a client is told: an answer, or an error with all its data. */
async function told(asked: Promise<unknown>): Promise<string> {
  return JSON.stringify(await asked.catch((error: Error & { data?: unknown }) => [error.message, error.data]));
}

function expectNothingOf(text: string): void {
  expect(text).not.toContain("CANARY");
  expect(text).not.toContain("root:");
  expect(text).not.toContain(mcp.project.dir);
  expect(text).not.toContain(mcp.project.stateDir);
}

describe.each([false, true])("a hostile client (2026-07-28: %s)", (modern) => {
  let client: Client;
  // One for all, as a server has to go on after each attack.
  beforeAll(async () => {
    ({ client } = await mcp.connect({ modern }));
  });
  afterAll(() => mcp.leave());

  it("reads nothing outside by a resource's URI, however it is written", async () => {
    const { dir } = mcp.project;
    const uris = [
      "corral:///docs/../secret/canary",
      "corral:///docs/%2e%2e/secret/canary",
      "corral:///docs/%2e%2e%2fsecret%2fcanary",
      "corral:///docs/%252e%252e/secret/canary",
      "corral:///docs/..%c0%afsecret/canary",
      "corral:///../../../../etc/passwd",
      "corral:////etc/passwd",
      "corral:///etc/passwd",
      "corral://localhost/etc/passwd",
      "corral:///docs/a.txt%00/../../secret/canary",
      "corral:///docs:../secret/canary",
      "corral:///~/canary",
      "corral:///proc/self/environ",
      "corral:///.corral/x",
      `corral://${dir}/secret/canary`,
      `file://${dir}/secret/canary`,
      "file:///etc/passwd",
      "http://127.0.0.1/",
      "corral:///out/relative",
      "corral:///out/absolute/canary",
      "corral:///out/absolute",
      `corral:///docs/${"../".repeat(2000)}etc/passwd`,
      `corral:///${"%2e%2e/".repeat(2000)}etc/passwd`,
      "",
      "\u0000",
    ];
    // What it wrote itself may come back to it.
    for (const uri of uris) expectNothingOf((await told(client.readResource({ uri }))).replaceAll(dir, ""));
  });

  it("reads nothing through a link that a command plants in a writable directory", async () => {
    const command = `ln -s /docs/../../../../secret/canary /out/planted; ln -s ${mcp.project.dir}/secret /out/hole; ln -s /etc/passwd /out/pw; ln -s / /out/root`;
    await client.callTool({ name: "exec", arguments: { command } });
    for (const path of ["planted", "hole/canary", "hole", "pw", "root/etc/passwd", "root"]) {
      const uri = `corral:///out/${path}`;
      const text = await told(client.readResource({ uri }));
      expect(text).not.toContain("CANARY");
      expect(text).not.toContain("root:");
      for (const name of ["read_file", "list_files"]) {
        const answer = await told(client.callTool({ name, arguments: { path: `/out/${path}` } }));
        expect(answer).not.toContain("CANARY");
        expect(answer).not.toContain("root:");
      }
      await client.callTool({ name: "write_file", arguments: { path: `/out/${path}`, content: "overwritten" } });
    }
    expectNothingOf(await told(client.listResources()));
    expect(await readdir(join(mcp.project.dir, "secret"))).toEqual(["canary"]);
  });

  it("finds no tool by a name that every object has", async () => {
    for (const name of [
      "constructor",
      "__proto__",
      "toString",
      "hasOwnProperty",
      "",
      "read_file ",
      "READ_FILE",
      "../read_file",
    ]) {
      await expect(client.callTool({ name, arguments: {} })).rejects.toMatchObject({ code: -32602 });
    }
  });

  it("changes nothing by arguments with such keys, and is told that they are not taken", async () => {
    const polluting = JSON.parse(
      '{"path":"/docs/a.txt","__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}}}',
    );
    const answer = await client.callTool({ name: "read_file", arguments: polluting as Record<string, unknown> });
    const text = await told(Promise.resolve(answer));
    expect(text.includes("BAD_INPUT") || text.includes("a document")).toBe(true);
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined();
    const again = await client.callTool({ name: "list_files", arguments: { path: "/" } });
    expect(textOf(again)).toContain("/docs/");
    const env = JSON.parse('{"command":"env","env":{"__proto__":"x","LD_PRELOAD\\u0000":"x"}}') as Record<
      string,
      unknown
    >;
    expect(await told(client.callTool({ name: "exec", arguments: env }))).toMatch(/BAD_INPUT|succeeded/);
  });

  it("is refused giant arguments, and the server goes on", async () => {
    const path = "a/".repeat(500_000);
    const long = await client.callTool({ name: "read_file", arguments: { path } });
    expect(long).toMatchObject({ isError: true, structuredContent: { code: "BAD_INPUT" } });
    expect(JSON.stringify(long).length).toBeLessThan(10_000);
    let deep: unknown = "x";
    for (let depth = 0; depth < 2000; depth += 1) deep = { deep };
    await expect(client.callTool({ name: "call_worker", arguments: { worker: "kid", input: deep } })).rejects.toThrow(
      "this server does not accept the message: it is nested more than 500 levels deep",
    );
    const unknown = await told(client.callTool({ name: "n".repeat(1_000_000), arguments: {} }));
    expect(unknown.length).toBeLessThan(5000);
    expect(textOf(await client.callTool({ name: "list_files", arguments: { path: "/" } }))).toContain("/docs/");
  });

  // How many are worked on does not depend on the revision.
  it.skipIf(modern && !AT_LENGTH)(
    "has a bounded number of its 400 calls worked on; the rest is refused at once, and all are answered",
    async () => {
      const calls = Array.from({ length: 400 }, (_, index) =>
        client.callTool({ name: "exec", arguments: { command: `sleep 0.01; echo ${index}` } }, { timeout: 170_000 }),
      );
      const answers = await Promise.all(calls);
      const refused = answers.filter(
        ({ structuredContent }) => (structuredContent as { code?: string }).code === "TOO_MANY_REQUESTS",
      );
      const done = answers.filter(({ isError }) => !isError);
      expect(done.length).toBeGreaterThan(50);
      expect(done.length).toBeLessThanOrEqual(300);
      expect(done.length + refused.length).toBe(400);
      expect(await mcp.cells()).toHaveLength(1);
    },
    180_000,
  );

  it("learns nothing of the host from any error of any tool", async () => {
    const { tools } = await client.listTools();
    for (const path of ["/", "/nowhere", "/docs", "/out/relative", "/../..", mcp.project.dir, "\u0000", "~root"]) {
      for (const { name } of tools) {
        const input = { path, from: path, to: path, content: "", command: `cat ${path}`, worker: path, edits: [] };
        const { properties = {} } = (tools.find((tool) => tool.name === name)?.inputSchema ?? {}) as {
          properties?: object;
        };
        const taken = Object.fromEntries(Object.entries(input).filter(([key]) => key in properties));
        if (name === "exec" && path.includes("\0")) continue;
        const text = await told(client.callTool({ name, arguments: taken }));
        const own = path === mcp.project.dir ? text.replaceAll(mcp.project.dir, "") : text;
        expect(own).not.toContain("CANARY");
        expect(own).not.toContain(mcp.project.stateDir);
        if (path !== mcp.project.dir) expect(own).not.toContain(mcp.project.dir);
      }
    }
  });

  it("answers for nobody's question with a state that it made up, or that is another call's", async () => {
    if (!modern) return;
    const forged = await client.request({
      method: "tools/call",
      params: {
        name: "write_file",
        arguments: { path: "/docs/a.txt", content: "forged" },
        requestState: "made-up",
        inputResponses: { "approval-1": { action: "accept", content: { answer: "session" } } },
      },
    });
    expect(forged).toMatchObject({ isError: true, structuredContent: { code: "QUESTION_OVER" } });
    expect(await readFile(join(mcp.project.dir, "docs/a.txt"), "utf8")).toBe("a document\n");
  });
});

describe("a client that speaks no protocol", () => {
  it("is given nothing, and its server ends with it", async () => {
    const lines = [
      "\u0000\u0001\u0002",
      "[]",
      '{"jsonrpc":"2.0","method":"tools/call","params":{"name":"exec","arguments":{"command":"touch /out/early"}}}',
      '{"jsonrpc":"2.0","id":{"a":1},"method":"initialize"}',
      `{"jsonrpc":"2.0","id":1,"method":"${"x".repeat(100_000)}"}`,
      '{"__proto__":{"polluted":true},"jsonrpc":"2.0","id":2,"method":"__proto__"}',
    ];
    const { status } = await mcp.project.built(["mcp", "--worker", "w"], { stdin: `${lines.join("\n")}\n` });
    expect(status).toBe(0);
    expect(await readdir(join(mcp.project.dir, "out"))).not.toContain("early");
  });

  it("is refused messages that are nested too deeply or have too many values, unparsed, and served on", async () => {
    const call = (input: string) =>
      `"method":"tools/call","params":{"name":"call_worker","arguments":{"worker":"kid","input":${input}}}`;
    const deep = (levels: number) => `${"[".repeat(levels)}${"]".repeat(levels)}`;
    const many = (values: number) => `[${"0,".repeat(values)}0]`;
    const info = '{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}';
    const { ended } = mcp.project.start(["mcp", "--worker", "w"], {
      stdin: [
        `{"jsonrpc":"2.0","id":1,"method":"initialize","params":${info}}`,
        `{"jsonrpc":"2.0","id":2,${call(deep(1_000_000))}}`,
        `{${call(many(8_000_000))},"jsonrpc":"2.0","id":3}`,
        `{"id":"4","jsonrpc":"2.0",${call(many(50_000))}}`,
        `{"jsonrpc":"2.0","id":5,"method":"tools/list"}`,
        "",
      ].join("\n"),
    });
    const { status, stdout } = await ended;
    expect(status).toBe(0);
    const answers = stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    const refused = (id: number | null, problem: string) => ({
      jsonrpc: "2.0",
      id,
      error: { code: -32_600, message: `this server does not accept the message: it ${problem}` },
    });
    expect(answers.filter(({ error }) => error)).toEqual([
      refused(2, "is nested more than 500 levels deep"),
      refused(3, "has more than 50000 values"),
      refused(null, "has more than 50000 values"),
    ]);
    expect(answers.filter(({ result }) => result).map(({ id }) => id)).toEqual([1, 5]);
  });

  it("is cut off where its message has no end", async () => {
    await writeFile(join(mcp.project.dir, "endless"), "");
    const { status, stdout } = await mcp.project.built(["mcp", "--worker", "w"], {
      stdin: "x".repeat(20 * 1024 ** 2),
    });
    expect({ status, stdout }).toEqual({ status: 0, stdout: "" });
  });
});

describe("a worker whose output no message holds", () => {
  it.each([false, true])(
    "takes its client's connection down with it neither by a call nor by a file (2026-07-28: %s)",
    async (modern) => {
      const print = ["sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' '\\1'"];
      const { workers, files } = HANDY_PROJECT;
      await using hostile = await mcpProject(
        {
          ...HANDY_PROJECT,
          workers: { ...workers, kid: { command: print, sandbox: {} } },
          files: { ...files, "docs/text": "\u0001".repeat(1_900_000) },
        },
        BUILT,
      );
      const image = Buffer.alloc(9 * 1024 ** 2);
      Buffer.from("89504e470d0a1a0a0000000d49484452", "hex").copy(image);
      await writeFile(join(hostile.project.dir, "docs/large.png"), image);
      const { client } = await hostile.connect({ modern });
      const called = await client.callTool({ name: "call_worker", arguments: { worker: "kid" } });
      expect(called.structuredContent).toEqual({ status: "succeeded", cut: true });
      expect(textOf(called)).toBe(`${"\u0001".repeat(200_000)}\n[800000 more characters are not shown.]`);
      const read = await client.callTool({
        name: "read_file",
        arguments: { path: "/docs/text", max_chars: 1_900_000 },
      });
      expect(textOf(read)).toContain("more characters are not shown");
      const looked = await client.callTool({ name: "read_file", arguments: { path: "/docs/large.png" } });
      expect(textOf(looked)).toBe("Image (image/png, 9437184 bytes).\n[The image is too large to send.]");
      for (const uri of ["corral:///docs/text", "corral:///docs/large.png"])
        await expect(client.readResource({ uri })).rejects.toMatchObject({ code: -32602 });
      expect(textOf(await client.callTool({ name: "list_files", arguments: { path: "/" } }))).toContain("/docs/");
    },
  );
});

describe("a client that asks and does not read", () => {
  const INFO = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "deaf", version: "1" } };

  interface Deaf extends AsyncDisposable {
    readonly server: ChildProcess & { readonly stdin: NonNullable<ChildProcess["stdin"]> };
    ask(id: number, method: string, params?: object): void;
    /** Reads until it has been told so many messages in all, and answers with the codes of their refusals. */
    read(messages: number): Promise<string[]>;
  }

  async function deaf(): Promise<Deaf> {
    const { dir, stateDir } = mcp.project;
    const args = [PROGRAM, "mcp", "--project", dir, "--worker", "w"];
    const env = { ...process.env, CORRAL_STATE_DIR: stateDir };
    const server = spawn(process.execPath, args, { env, stdio: ["pipe", "pipe", "ignore"] });
    const ended = new Promise((resolve) => server.once("exit", resolve));
    server.stdin.on("error", () => {});
    const tell = (message: object): void =>
      void server.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
    const ask = (id: number, method: string, params = {}): void => tell({ id, method, params });
    let count = 0;
    const read = async (messages: number): Promise<string[]> => {
      const codes: string[] = [];
      const hear = (chunk: Buffer): void => {
        const text = chunk.toString("latin1");
        count += text.split("\n").length - 1;
        codes.push(...(text.match(/"code":"[A-Z_]+"/g) ?? []));
      };
      server.stdout.on("data", hear).resume();
      await expect.poll(() => count, { timeout: 90_000 }).toBe(messages);
      server.stdout.off("data", hear).pause();
      return codes;
    };
    ask(1, "initialize", INFO);
    await read(1);
    tell({ method: "notifications/initialized" });
    return {
      server,
      ask,
      read,
      async [Symbol.asyncDispose]() {
        server.stdin.destroy();
        server.stdout.destroy();
        await ended;
      },
    };
  }

  const megabytesOf = ({ pid }: ChildProcess): number =>
    Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? Number.NaN) / 1024;

  it("is not read any further either, and has all its answers once it reads", async () => {
    await using client = await deaf();
    const { stdin } = client.server;
    for (let id = 2; id <= 10_000; id += 1) client.ask(id, "resources/templates/list");
    await new Promise((resolve) => setTimeout(resolve, 2500));
    expect(stdin.writableLength).toBeGreaterThan(300_000);
    await client.read(10_000);
  });

  it("has no more done than what is held for it, and what it asked for besides is refused", async () => {
    const image = Buffer.alloc(1024 ** 2);
    Buffer.from("89504e470d0a1a0a0000000d49484452", "hex").copy(image);
    await writeFile(join(mcp.project.dir, "docs/large.png"), image);
    await using client = await deaf();
    const before = megabytesOf(client.server);
    for (let id = 2; id <= 400; id += 1) {
      client.ask(id, "tools/call", { name: "read_file", arguments: { path: "/docs/large.png" } });
      if (id % 100 === 0) await new Promise((resolve) => setTimeout(resolve, 1000));
    }
    // All of them are more than 500 MB as base64.
    expect(megabytesOf(client.server) - before).toBeLessThan(300);
    const codes = await client.read(400);
    expect(codes.length).toBeGreaterThan(200);
    expect(new Set(codes)).toEqual(new Set(['"code":"TOO_MANY_REQUESTS"']));
  });
});
