import { Readable, type Writable } from "node:stream";
import {
  type ClientCapabilities,
  inputRequired,
  type JSONRPCMessage,
  type ListResourcesResult,
  ProtocolError,
  ProtocolErrorCode,
  type ReadResourceResult,
  type Resource,
  ResourceNotFoundError,
  Server,
  type ServerContext,
} from "@modelcontextprotocol/server";
import { StdioServerTransport, serveStdio } from "@modelcontextprotocol/server/stdio";
import { packageVersion } from "../declarations/place/package-root.ts";
import type { ListEntry, Listing } from "../files/model/files.ts";
import { MAX_CHARS } from "../files/read/read-text.ts";
import { shapeProblem } from "../json/parse-json.ts";
import { MAX_PATH_BYTES, parseVirtualPath, type VirtualPath } from "../sandbox/virtual-path.ts";
import type { ToolResult } from "../tools/tool.ts";
import { type ClientExchange, exchangeOf, type WhenRead } from "./connection/call.ts";
import type { McpConnection } from "./connection/connection.ts";
import { isTooLong, toolAnswer, toolDescription } from "./connection/started-tools.ts";

/** Of a message, on stdio and over HTTP. */
export const MAX_MESSAGE_BYTES = 16 * 1024 ** 2;

/** The protocol checks every value of a message against its schemas, several times. */
export const MAX_MESSAGE_VALUES = 50_000;

/** `legacy`: revisions until 2025-11-25, where a connection begins with a handshake. `modern`: from 2026-07-28 on. */
type Era = "legacy" | "modern";

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

const PREFIX = "corral:///";
/** Every byte may be written as three characters. */
const MAX_URI_CHARS = PREFIX.length + 3 * MAX_PATH_BYTES;

/** RFC 6570: `+` keeps the slashes of a path. */
const URI_TEMPLATE = `${PREFIX}{+path}`;

type ResourcePath = { readonly ok: true; readonly path: VirtualPath } | { readonly ok: false; readonly reason: string };

export function resourceUri(path: VirtualPath): string {
  return PREFIX + path.slice(1).split("/").map(encodeURIComponent).join("/");
}

/**
 * The virtual path that a URI means. Read by hand: a parser of URLs would quietly work out `..`, and drop what is behind
 * a `#`. Each component is decoded once, and by itself.
 */
export function resourcePath(uri: string): ResourcePath {
  if (uri.length > MAX_URI_CHARS) return refuse("it is too long");
  if (!uri.startsWith(PREFIX)) return refuse(`it does not begin with ${PREFIX}`);
  const rest = uri.slice(PREFIX.length);
  if (/[?#]/.test(rest)) return refuse("it has a query or a fragment; write `?` as %3F and `#` as %23");
  const parts: string[] = [];
  for (const written of rest.split("/").filter((part) => part !== "")) {
    const part = decoded(written);
    if (part === null) return refuse("it has a `%` that begins no character of UTF-8");
    if (part === "." || part === "..") return refuse("it has a component `.` or `..`");
    if (part.includes("/")) return refuse("it has a slash that is encoded");
    parts.push(part);
  }
  return parseVirtualPath(`/${parts.join("/")}`);
}

function decoded(part: string): string | null {
  try {
    return decodeURIComponent(part);
  } catch {
    return null;
  }
}

function refuse(reason: string): ResourcePath {
  return { ok: false, reason };
}

/** Of each depth; what lies deeper is read by the template. */
const MAX_LISTED = 1000;
const PAGE = 100;
/** What is at the top, and what is in that. */
const DEPTHS = ["*", "*/*"];

/** The tools that resources are read with: who may not use these has no resources. */
const NEEDED = ["list_files", "file_info", "read_file"] as const;

/** A client's connection, as far as resources need it. */
interface ResourceConnection {
  readonly tools: ReadonlyMap<string, unknown>;
  /** Uses a tool that asks no person. */
  look(name: string, input: unknown, exchange: ClientExchange): Promise<ToolResult>;
}

function hasResources({ tools }: Pick<ResourceConnection, "tools">): boolean {
  return NEEDED.every((name) => tools.has(name));
}

/** The directories and files at the top, page by page. A cursor is where the last page ended. */
async function listResources(
  connection: ResourceConnection,
  cursor: string | undefined,
  exchange: ClientExchange,
): Promise<ListResourcesResult> {
  const begin = cursor === undefined ? 0 : Number(/^\d{1,5}$/.exec(cursor)?.[0] ?? Number.NaN);
  if (Number.isNaN(begin)) throw new ProtocolError(ProtocolErrorCode.InvalidParams, "there is no such page");
  const listings: ListEntry[][] = [];
  for (const pattern of DEPTHS) {
    const listed = await connection.look("list_files", { path: "/", pattern, limit: MAX_LISTED }, exchange);
    listings.push([...(dataOf(listed, "corral:///") as unknown as Listing).entries]);
  }
  const entries = listings.flat().sort((a, b) => (a.path < b.path ? -1 : 1));
  const all = entries.filter(({ type }) => type === "directory" || type === "file");
  const page = all.slice(begin, begin + PAGE).map(described);
  return all.length > begin + PAGE ? { resources: page, nextCursor: String(begin + PAGE) } : { resources: page };
}

/** A text, an image, or what is in a directory. Whatever else there is cannot be read so, and says why. */
async function readResource(
  connection: ResourceConnection,
  uri: string,
  exchange: ClientExchange,
): Promise<ReadResourceResult> {
  const parsed = resourcePath(uri);
  if (!parsed.ok) throw new ProtocolError(ProtocolErrorCode.InvalidParams, `The URI names no file: ${parsed.reason}.`);
  const { path } = parsed;
  const { type } = dataOf(await connection.look("file_info", { path }, exchange), uri);
  if (type === "directory") {
    const listed = await connection.look("list_files", { path, limit: MAX_LISTED }, exchange);
    const { entries } = dataOf(listed, uri) as unknown as Listing;
    const text = entries
      .map((entry) => `${resourceUri(entry.path)}${entry.type === "directory" ? "/" : ""}`)
      .join("\n");
    return { contents: [{ uri, mimeType: "text/uri-list", text }] };
  }
  const read = await connection.look("read_file", { path, max_chars: MAX_CHARS }, exchange);
  const data = dataOf(read, uri);
  if (read.ok && read.image !== undefined) {
    const { mimeType, base64 } = read.image;
    return sendable({ contents: [{ uri, mimeType, blob: base64 }] }, uri);
  }
  const contents = [{ uri, mimeType: "text/plain", text: String(data.content) }];
  return sendable(data.truncated === true ? null : { contents }, uri);
}

function sendable(result: ReadResourceResult | null, uri: string): ReadResourceResult {
  if (result !== null && !isTooLong(result)) return result;
  throw new ProtocolError(ProtocolErrorCode.InvalidParams, `The content is too long: ${TOO_LONG}`, { uri });
}

const TOO_LONG = `the limit is about 6 MB for an image and ${MAX_CHARS} characters for a text. The tool read_file reads a text in pieces.`;

function described({ path, type, size }: ListEntry): Resource {
  const about = type === "directory" ? { mimeType: "inode/directory" } : size === null ? {} : { size };
  return { uri: resourceUri(path as VirtualPath), name: path.slice(1), ...about };
}

/** A refusal is an error here. A hidden path and a missing path give the same error. */
function dataOf(result: ToolResult, uri: string): Readonly<Record<string, unknown>> {
  if (result.ok) return result.data;
  const { code, message } = result;
  if (code === "NOT_FOUND" || code === "PATH_NOT_IN_SANDBOX") throw new ResourceNotFoundError(uri, message);
  const bugs = code === "SERVER_TROUBLE" ? ProtocolErrorCode.InternalError : ProtocolErrorCode.InvalidParams;
  throw new ProtocolError(bugs, message, { code });
}

const NEWLINE = 0x0a;

/**
 * The lines of a stream, each with its newline. A line that is nested too deeply or has too many values is given to
 * `refuse` instead. Nothing more is read until that has settled. Throws for a line that is too long, because the start
 * of the next one is unknown. What follows the last newline is dropped.
 */
async function* messageLines(
  input: Readable,
  refuse: (line: string, problem: string) => Promise<void>,
): AsyncGenerator<Buffer, void, undefined> {
  let parts: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of input as AsyncIterable<Buffer>) {
    let from = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, from)) {
      const line = Buffer.concat([...parts, chunk.subarray(from, end + 1)]);
      [parts, bytes, from] = [[], 0, end + 1];
      // Quicker than UTF-8, and the same for the characters that make the shape.
      const text = line.toString("latin1");
      const problem = shapeProblem(text, MAX_MESSAGE_VALUES);
      if (problem === null) yield line;
      else await refuse(text, problem);
    }
    parts.push(chunk.subarray(from));
    bytes += chunk.length - from;
    if (bytes > MAX_MESSAGE_BYTES) throw new Error(`a message has at most ${MAX_MESSAGE_BYTES} bytes`);
  }
}

/** At this number of messages that the client has not read, Corral reads nothing more from it. */
const MAX_UNREAD = 256;

export interface StdioOptions {
  readonly stdin: Readable;
  /** Nothing but the protocol may be written there. */
  readonly stdout: Writable;
  readonly connection: McpConnection;
  /** Ends it as if the client had left. */
  readonly signal: AbortSignal;
  /** Invalid messages and similar errors, which do not end the connection. */
  readonly onTrouble: (error: Error) => void;
}

/** Serves one client on a pair of streams until it leaves, vanishes or is disconnected. */
export async function serveOnStdio({ stdin, stdout, connection, signal, onTrouble }: StdioOptions): Promise<void> {
  const transport = new ClosingTransport(stdin, stdout);
  const serve = ({ era }: { readonly era: Era }) => protocolServer(connection, era, transport.whenRead);
  const handle = serveStdio(serve, { transport, onerror: onTrouble });
  const stop = (): void => void handle.close();
  signal.addEventListener("abort", stop, { once: true });
  if (signal.aborted) stop();
  try {
    await transport.closed;
  } finally {
    signal.removeEventListener("abort", stop);
    await handle.close();
  }
}

/**
 * Reports its end, whichever side ended it, even before the first message. Writes one message after another, because the
 * SDK adds a listener to the stream for each waiting message. If the client does not read, Corral reads no more from it.
 */
class ClosingTransport extends StdioServerTransport {
  readonly #stdin: Readable;
  readonly #lines: Readable;
  readonly #closed = Promise.withResolvers<void>();
  readonly #over = new AbortController();
  #sent: Promise<void> = Promise.resolve();
  #unread = 0;

  constructor(stdin: Readable, stdout: Writable) {
    const refuse = (line: string, problem: string): Promise<void> => this.#refuse(line, problem);
    const lines = Readable.from(messageLines(stdin, refuse), { objectMode: false });
    super(lines, stdout, { maxBufferSize: 2 * MAX_MESSAGE_BYTES });
    this.#stdin = stdin;
    this.#lines = lines;
  }

  get closed(): Promise<void> {
    return this.#closed.promise;
  }

  /** Settles when the client has read all messages so far. */
  readonly whenRead: WhenRead = async (signal) => {
    const stopped = AbortSignal.any([signal, this.#over.signal]);
    stopped.throwIfAborted();
    const { promise: given, reject: giveUp } = Promise.withResolvers<never>();
    const onAbort = (): void => giveUp(stopped.reason);
    stopped.addEventListener("abort", onAbort, { once: true });
    try {
      await Promise.race([this.#sent, given]);
    } finally {
      stopped.removeEventListener("abort", onAbort);
    }
  };

  override async send(message: JSONRPCMessage): Promise<void> {
    this.#unread += 1;
    if (this.#unread === MAX_UNREAD) this.#lines.pause();
    const sent = this.#sent.then(() => super.send(message));
    this.#sent = sent.catch(() => {});
    try {
      await sent;
    } finally {
      this.#unread -= 1;
      if (this.#unread === MAX_UNREAD / 2 && !this.#over.signal.aborted) this.#lines.resume();
    }
  }

  /** Answers a message that the protocol never sees. */
  async #refuse(line: string, problem: string): Promise<void> {
    const message = `this server does not accept the message: ${problem}`;
    // The protocol's types have no null, with which JSON-RPC answers if the request is not known.
    const answer = { jsonrpc: "2.0", id: requestId(line), error: { code: -32_600, message } } as JSONRPCMessage;
    await this.send(answer).catch(() => {});
  }

  override async close(): Promise<void> {
    await super.close();
    this.#lines.destroy();
    // Nothing else ends a read of it that waits.
    this.#stdin.destroy();
    this.#over.abort(new Error("the client is gone"));
    this.#closed.resolve();
  }
}

/**
 * The id of a request that is not parsed: if it is a number at the start or at the end of the line, as clients write it.
 * There it belongs to the message itself, and to nothing inside it. A client would wait long for an answer without it.
 */
function requestId(line: string): number | null {
  const [, id] =
    /^\{"jsonrpc":"2\.0","id":(\d{1,15}),/.exec(line.slice(0, 50)) ??
    /,"id":(\d{1,15})\}\s*$/.exec(line.slice(-50)) ??
    [];
  return id === undefined ? null : Number(id);
}
