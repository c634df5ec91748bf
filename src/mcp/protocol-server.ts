import {
  type ClientCapabilities,
  inputRequired,
  ProtocolError,
  ProtocolErrorCode,
  Server,
  type ServerContext,
} from "@modelcontextprotocol/server";
import { packageVersion } from "../operations/package-version.ts";
import { type ClientExchange, exchangeOf, type WhenRead } from "./connection/call.ts";
import type { McpConnection } from "./connection/connection.ts";
import { hasResources, listResources, readResource, URI_TEMPLATE } from "./connection/sandbox-resources.ts";
import { toolAnswer, toolDescription } from "./connection/tool-answer.ts";

/** Of a message, on stdio and over HTTP. */
export const MAX_MESSAGE_BYTES = 16 * 1024 ** 2;

/** The protocol checks every value of a message against its schemas, several times. */
export const MAX_MESSAGE_VALUES = 50_000;

/** `legacy`: revisions until 2025-11-25, where a connection begins with a handshake. `modern`: from 2026-07-28 on. */
export type Era = "legacy" | "modern";

/** How long a client may take to say its new roots before the next request asks for them. */
const ROOTS_MS = 5000;

/**
 * The protocol's side of a connection: what its messages mean. The SDK frames them, and pairs requests and answers. `whenRead`:
 * for a client that asks and does not read; absent if its server handles that.
 */
export function protocolServer(connection: McpConnection, era: Era, whenRead: WhenRead = async () => {}): Server {
  const { worker, workers, tools } = connection;
  const withResources = hasResources(connection);
  const server = new Server(
    { name: "corral", title: `Corral: ${worker.name}`, version: packageVersion() },
    {
      capabilities: { tools: {}, ...(withResources ? { resources: {} } : {}) },
      instructions: instructionsOf(connection),
    },
  );
  const exchange = (context: ServerContext): ClientExchange => exchangeOf(context, initialOf(server, era), whenRead);

  server.setRequestHandler("tools/list", async () => ({
    tools: [...tools.values()].map((tool) => toolDescription(tool, worker, workers)),
  }));
  server.setRequestHandler("tools/call", async ({ params }, context) => {
    const { name, arguments: input = {} } = params;
    if (!tools.has(name))
      throw new ProtocolError(
        ProtocolErrorCode.InvalidParams,
        `There is no tool ${JSON.stringify(name.slice(0, 100))}. There are: ${[...tools.keys()].join(", ")}.`,
      );
    const { round, notes } = await connection.use(name, input, exchange(context));
    if (round.kind === "done") return toolAnswer(round.result, notes);
    const forms = [...round.forms].map(([id, form]) => [id, inputRequired.elicit(form)] as const);
    return inputRequired({ inputRequests: Object.fromEntries(forms), requestState: round.state });
  });
  if (era === "legacy")
    server.setNotificationHandler("notifications/roots/list_changed", () => rootsChanged(server, connection));
  if (!withResources) return server;

  server.setRequestHandler("resources/list", ({ params }, context) =>
    listResources(connection, params?.cursor, exchange(context)),
  );
  server.setRequestHandler("resources/templates/list", async () => ({
    resourceTemplates: [{ uriTemplate: URI_TEMPLATE, name: "file", title: "A file or directory", description: FILE }],
  }));
  server.setRequestHandler("resources/read", ({ params }, context) =>
    readResource(connection, params.uri, exchange(context)),
  );
  return server;
}

function initialOf(server: Server, era: Era): ClientCapabilities | undefined | null {
  return era === "modern" ? null : server.getClientCapabilities();
}

async function rootsChanged(server: Server, connection: McpConnection): Promise<void> {
  const ask = async (): Promise<readonly string[]> => {
    const { roots } = await server.listRoots(undefined, { timeout: ROOTS_MS });
    return roots.map(({ uri }) => uri);
  };
  await connection.rootsChanged(ask);
}

/** For a model: what this is, and how to begin. */
function instructionsOf({ worker, tools }: McpConnection): string {
  const what = worker.description === "" ? [] : [worker.description];
  const begin = tools.has("list_files") ? ["Begin with `list_files` on `/` to see the directories."] : [];
  const commit = tools.has("commit_changes") ? [COMMIT] : [];
  return [...what, ...begin, "Paths are those of a container, not of the user's machine.", ...commit].join("\n");
}

const COMMIT =
  "If changes wait for approval, `commit_changes` applies them. What is not applied when the connection ends is kept for the user.";
const FILE = "A text or an image by its path, such as corral:///notes/a.md, or the entries of a directory.";
