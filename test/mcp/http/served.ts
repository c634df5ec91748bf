import { type Client, type ClientOptions, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { nobodyAsks, QuestionRoutes } from "../../../src/mcp/connection/client-approver.ts";
import { McpConnection } from "../../../src/mcp/connection/connection.ts";
import { type McpHttpServer, type PresenceTimes, serveOnHttp } from "../../../src/mcp/http/server.ts";
import { openProject, type ProjectFixture } from "../../run/project-fixture.ts";
import { clientOf, HANDY } from "../mcp-project.ts";

const SHELL_RULES = { default: "pre_approved", rules: [{ pattern: "printf **", approval: "ask" }] };

export const TOKEN = "a-token-of-the-test";

/** A server in this process, for what takes too long with the times of the real one. */
export interface Served extends AsyncDisposable {
  readonly project: ProjectFixture;
  readonly server: McpHttpServer;
  readonly troubles: string[];
  cells(): Promise<number>;
}

/** `asking`: further zones that the worker may write in where somebody agrees. */
export async function served(times: PresenceTimes, asking: readonly string[] = []): Promise<Served> {
  const zones = [...HANDY.sandbox.zones, ...asking.map((name) => ({ name, mode: "rw" }))];
  const routes = new QuestionRoutes(nobodyAsks);
  const project = await openProject(
    {
      workers: { w: { ...HANDY, sandbox: { zones }, calls: [], shell_rules: SHELL_RULES } },
      zones: { docs: "ro", out: "rw", ...Object.fromEntries(asking.map((name) => [name, "rw" as const])) },
      files: { "docs/a.txt": "a document\n" },
    },
    { person: routes },
  );
  const worker = project.corral.project.workers.get("w");
  if (worker === undefined) throw new Error("the fixture has no worker w");
  const troubles: string[] = [];
  const server = await serveOnHttp({
    port: 0,
    token: TOKEN,
    times,
    onTrouble: ({ message }) => void troubles.push(message),
    connect: (isShared) =>
      new McpConnection({
        worker,
        workers: project.corral.project.workers,
        environment: project.corral.environment,
        routes,
        otherwise: nobodyAsks,
        isShared,
        honoursRoots: true,
        approvalTimeoutMs: 60_000,
        tell: (line) => void troubles.push(line),
        report: (error) => void troubles.push(String(error)),
      }),
  });
  return {
    project,
    server,
    troubles,
    cells: async () => (await project.corral.environment.driver.list()).length,
    async [Symbol.asyncDispose]() {
      await server[Symbol.asyncDispose]();
      await project[Symbol.asyncDispose]();
    },
  };
}

export async function connectedTo(
  url: string,
  token: string,
  modern = false,
  { prepare, ...options }: ClientOptions & { readonly prepare?: (client: Client) => void } = {},
): Promise<HttpClient> {
  const client = clientOf(options, modern);
  prepare?.(client);
  const requestInit = { headers: { authorization: `Bearer ${token}` } };
  const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit });
  await client.connect(transport);
  return { client, transport };
}

export interface HttpClient {
  readonly client: Client;
  readonly transport: StreamableHTTPClientTransport;
}
