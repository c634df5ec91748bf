import type { ChildProcess } from "node:child_process";
import { Client, type ClientOptions } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { type CliProject, cliProject } from "../cli/cli-project.ts";
import { PROGRAM } from "../cli/program.ts";
import { WithinTransport } from "./within-transport.ts";

/** A worker that reads `docs`, writes `out`, may run anything, and has one to call. */
export const HANDY = {
  command: ["true"],
  description: "Keeps notes",
  calls: ["kid"],
  sandbox: { zones: [{ name: "docs" }, { name: "out", mode: "rw", approval: "pre_approved" }] },
  shell_rules: { default: "pre_approved" },
};

export const HANDY_PROJECT = {
  yaml: {
    version: 1,
    policy: "untrusted",
    sandbox: { mode: "direct", zones: { out: { path: "out", mode: "rw" }, docs: { path: "docs", mode: "ro" } } },
  },
  workers: {
    w: HANDY,
    kid: { command: ["cat"], description: "Says what it is told", sandbox: {} },
  },
  files: { "docs/a.txt": "a document\n" },
  folders: ["out"],
} as const;

export interface McpProject extends AsyncDisposable {
  readonly project: CliProject;
  /** A client of the SDK with a server of its own. */
  connect(options?: ConnectOptions): Promise<ConnectedClient>;
  /** Ids of the project's containers, as its own Engine's labels tell. */
  cells(): Promise<readonly unknown[]>;
  /** Ends all clients; the project stays. */
  leave(): Promise<void>;
}

export interface ConnectOptions extends ClientOptions {
  readonly args?: readonly string[];
  /** Revision 2026-07-28 in place of the handshake. */
  readonly modern?: boolean;
  /** The server is the same code in the process of the test, whatever the project's are. */
  readonly within?: boolean;
  /** Called before the client is connected, for what the server may ask of it at once. */
  readonly prepare?: (client: Client) => void;
}

export interface ConnectedClient {
  readonly client: Client;
  /** Of the server, if that is a process. */
  readonly pid: number;
  /** What the server has said to people so far. */
  stderr(): string;
  /** As the SDK ends its server: end of input, and, if it is a process, later signals. */
  close(): Promise<void>;
}

/** `built`: servers are the built program in processes of their own, and not the same code in that of the test. */
export async function mcpProject(
  spec: Parameters<typeof cliProject>[0] = HANDY_PROJECT,
  { built = false } = {},
): Promise<McpProject> {
  const project = await cliProject(spec);
  const open = new Set<ConnectedClient>();
  const leave = async (): Promise<void> => {
    await Promise.allSettled([...open].map((client) => client.close()));
    open.clear();
  };
  return {
    project,
    async connect(options) {
      const connected = await (built && options?.within !== true ? connect : connectWithin)(project, options);
      open.add(connected);
      return connected;
    },
    cells: project.cells,
    leave,
    async [Symbol.asyncDispose]() {
      await leave();
      await project[Symbol.asyncDispose]();
    },
  };
}

async function connectWithin(
  { dir, stateDir }: CliProject,
  { args = ["--worker", "w"], modern = false, within: _, prepare, ...options }: ConnectOptions = {},
): Promise<ConnectedClient> {
  let said = "";
  const env = { ...process.env, NO_COLOR: "1", CORRAL_STATE_DIR: stateDir };
  const transport = new WithinTransport(["mcp", "--project", dir, ...args], { env, cwd: dir }, (text) => {
    said += text;
  });
  const client = clientOf(options, modern);
  prepare?.(client);
  await client.connect(transport).catch((cause: unknown) => {
    throw new Error(`the client could not connect; its server said: ${said}`, { cause });
  });
  return { client, pid: Number.NaN, stderr: () => said, close: () => client.close() };
}

async function connect(
  { dir, stateDir }: CliProject,
  { args = ["--worker", "w"], modern = false, within: _, prepare, ...options }: ConnectOptions = {},
): Promise<ConnectedClient> {
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [PROGRAM, "mcp", "--project", dir, ...args],
    env: { ...(process.env as Record<string, string>), NO_COLOR: "1", CORRAL_STATE_DIR: stateDir },
    stderr: "pipe",
  });
  let said = "";
  transport.stderr?.on("data", (chunk: Buffer) => {
    said += chunk.toString();
  });
  const client = clientOf(options, modern);
  prepare?.(client);
  await client.connect(transport).catch((cause: unknown) => {
    throw new Error(`the client could not connect; its server said: ${said}`, { cause });
  });
  // The SDK's client waits with a listener for each message that the pipe does not take at once.
  const { _process: server } = transport as unknown as { readonly _process?: ChildProcess };
  server?.stdin?.setMaxListeners(0);
  return {
    client,
    pid: transport.pid ?? 0,
    stderr: () => said,
    close: () => client.close(),
  };
}

export function clientOf(options: ClientOptions = {}, modern = false): Client {
  return new Client(
    { name: "test", version: "1" },
    modern ? { ...options, versionNegotiation: { mode: { pin: "2026-07-28" } } } : options,
  );
}

/** The text of a tool's answer. */
export function textOf(answer: unknown): string {
  const { content = [] } = answer as { content?: { type: string; text?: string }[] };
  return content.map(({ text = "" }) => text).join("\n");
}
