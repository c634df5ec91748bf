import { chmod, mkdir, rm, rmdir, stat } from "node:fs/promises";
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import PQueue from "p-queue";
import { z } from "zod";
import { HeldDescriptors } from "../../isolation/disk/unnamed-files.ts";
import type { PlannedSource } from "../../isolation/plan/mounts.ts";
import { boundedText, examine, firstFaults, OpenBytes, parseJson } from "../../json/parse-json.ts";
import { bugText } from "../../platform/errno.ts";
import { createServer } from "../../platform/http.ts";
import { StateDirError } from "../../state/state-dir.ts";
import { present } from "../../text/present.ts";
import type { ToolResult } from "../../tools/tool.ts";
import type { CallRequest } from "../calls/call.ts";
import { type AccessAnswer, type AccessRequest, parseAccessBody } from "../grants/access-request.ts";
import { inTurn } from "../model/grantee.ts";
import type { RunResult } from "../model/result.ts";

const MAX_ATTACHMENTS = 256;

const path = z.string().min(1).max(4096);
const callBody = z.strictObject({
  worker: z.string().min(1).max(256),
  input: z.unknown().optional(),
  attachments: z
    .array(z.union([path, z.strictObject({ path, name: z.string().min(1).max(255).nullish() })]))
    .max(MAX_ATTACHMENTS)
    .nullish(),
  narrow: z
    .strictObject({
      allow_read: z.union([path, z.array(path).max(MAX_ATTACHMENTS)]).optional(),
      allow_write: z.union([path, z.array(path).max(MAX_ATTACHMENTS)]).optional(),
      readonly: z.boolean().optional(),
    })
    .nullish(),
});

/** A call as the socket takes it, or what is wrong with it. */
export function parseCallBody(raw: unknown): CallRequest | string {
  const parsed = examine(callBody, raw);
  if (!parsed.success) return `The request is not a call: ${firstFaults(parsed.error)}`;
  const { worker, input, attachments, narrow } = parsed.data;
  return {
    worker,
    input,
    attachments: (attachments ?? []).map(attachmentOf),
    narrow: narrow ? narrowOf(narrow) : null,
  };
}

function attachmentOf(
  raw: string | { path: string; name?: string | null | undefined },
): CallRequest["attachments"][number] {
  if (typeof raw === "string") return { path: raw };
  return { path: raw.path, ...(raw.name ? { name: raw.name } : {}) };
}

function narrowOf(raw: NonNullable<z.infer<typeof callBody>["narrow"]>): NonNullable<CallRequest["narrow"]> {
  return {
    ...(raw.allow_read === undefined ? {} : { allowRead: [raw.allow_read].flat() }),
    ...(raw.allow_write === undefined ? {} : { allowWrite: [raw.allow_write].flat() }),
    ...present({ readonly: raw.readonly }),
  };
}

const MAX_BODY_BYTES = 4 * 1024 * 1024;
/** A worker may send many requests at once, and each value takes time. */
const MAX_BODY_VALUES = 100_000;
/** How much of a request that is too large is still read, so that its sender can read the answer. */
const MAX_DROPPED_BYTES = 256 * 1024 * 1024;

/** The JSON body of a request, or what is wrong with it. */
async function jsonBody(
  request: IncomingMessage,
  take: (bytes: number) => boolean,
): Promise<{ ok: true; value: unknown } | { ok: false; problem: string }> {
  const limits = { maxBytes: MAX_BODY_BYTES, maxDroppedBytes: MAX_DROPPED_BYTES, take };
  const text = await boundedText(request, limits);
  if (text === null) {
    const problem = `The request is larger than ${MAX_BODY_BYTES} bytes, or too many large requests are open at once. Pass large data as an attachment.`;
    return { ok: false, problem };
  }
  const parsed = parseJson(text, MAX_BODY_VALUES);
  return parsed.ok ? parsed : { ok: false, problem: `The request is not JSON: ${parsed.problem}` };
}

/** What a run can ask of Corral. Its socket is only in that run's cell, so the socket identifies the caller. */
export interface BrokerService {
  /** Aborted if the worker closes the connection before it has its answer. */
  call(request: CallRequest, signal: AbortSignal): Promise<RunResult>;
  /** One of the tools, by name, under this run's sandbox. */
  tool(name: string, rawInput: unknown, signal: AbortSignal): Promise<ToolResult>;
  /** Asks for a directory beyond the run's sandbox, for the rest of the run. */
  access(request: AccessRequest, signal: AbortSignal): Promise<AccessAnswer>;
  /** What this run may do, in virtual paths. */
  sandbox(): unknown;
  /** Reports to the user what the worker must not know. */
  trouble(detail: string): void;
}

export interface Broker extends AsyncDisposable {
  readonly socket: { readonly path: string; readonly source: PlannedSource };
  /** From now on calls are answered; until then a connection waits. */
  serve(service: BrokerService): void;
  /** Ends the connections in which the run's programs left descriptors. True if there was any. */
  endHolding(): boolean;
}

const MAX_CONNECTIONS = 512;
/** One connection can send many requests before it reads an answer; one that is not read yet is open still. */
const MAX_OPEN_REQUESTS = 256;
/** Bodies of one run. Parsed JSON can take twenty times its length in memory. */
const MAX_OPEN_BYTES = 16 * 1024 * 1024;
/** Each may hold as much as a tool reads, and until the worker has read that. */
const MAX_TOOLS_AT_ONCE = 8;
/** The kernel's limit for the path of a Unix socket, with its closing zero. */
const MAX_SOCKET_PATH_BYTES = 107;

/** A Unix socket that speaks HTTP and JSON, for one run; its routes are in docs/formats/inside-a-cell.md. */
export async function openBroker(ownerDir: string, run: string): Promise<Broker> {
  const dir = join(ownerDir, run);
  const socketPath = join(dir, "s");
  if (Buffer.byteLength(socketPath) > MAX_SOCKET_PATH_BYTES) {
    throw new StateDirError(
      `the state directory's path is too long for a Unix socket (${socketPath}); set CORRAL_STATE_DIR to a shorter one`,
    );
  }
  await mkdir(dir, { mode: 0o755 });
  const { promise: service, resolve: serve } = Promise.withResolvers<BrokerService>();
  let open = 0;
  const room: Room = { bodies: new OpenBytes(MAX_OPEN_BYTES), tools: new PQueue({ concurrency: MAX_TOOLS_AT_ONCE }) };
  // An answer can have tens of megabytes: other work has a turn between two of them.
  const answers = new PQueue({ concurrency: 1 });
  const server = createServer((request, response) => {
    const answer = open < MAX_OPEN_REQUESTS ? answerTo(request, response, service, room) : Promise.resolve(TOO_MANY);
    open += 1;
    response.once("close", () => {
      open -= 1;
    });
    void answer.then((answered) => answers.add(() => sent(response, answered)));
  });
  const held = new HeldDescriptors(server);
  server.maxConnections = MAX_CONNECTIONS;
  await listen(server, socketPath);
  // Connecting needs write permission, and the cell's user is another one; the directories above keep the host's users out.
  await chmod(socketPath, 0o666);
  const { dev, ino, uid, gid } = await stat(socketPath, { bigint: true });
  return {
    socket: {
      path: socketPath,
      source: { device: String(dev), inode: String(ino), uid: Number(uid), gid: Number(gid), kind: "socket" },
    },
    serve,
    endHolding: () => held.end(),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      // The socket is removed with the server.
      await rmdir(dir).catch(() => rm(dir, { recursive: true, force: true }));
    },
  };
}

function listen(server: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject).listen(path, resolve);
  });
}

interface BrokerAnswer {
  readonly status: number;
  readonly body: unknown;
}

const TOO_MANY: BrokerAnswer = {
  status: 503,
  body: {
    code: "TOO_MANY_REQUESTS",
    message: `At most ${MAX_OPEN_REQUESTS} requests can be open at once. Retry later.`,
  },
};

/** A bug must not end the orchestrator, nor reveal anything about the host to a worker. */
const INTERNAL: BrokerAnswer = {
  status: 500,
  body: { code: "INTERNAL", message: "Corral could not answer this request." },
};

async function sent(response: ServerResponse, answer: BrokerAnswer): Promise<void> {
  await nextTurn();
  if (response.destroyed) return;
  const { status, text } = written(answer);
  response.writeHead(status, { "content-type": "application/json" });
  response.end(text);
}

/** What a worker printed can be too long to be written as JSON: one byte may take six characters. */
function written({ status, body }: BrokerAnswer): { status: number; text: string } {
  try {
    return { status, text: `${JSON.stringify(body)}\n` };
  } catch {
    const message = "The answer is too large to be sent.";
    return { status: 500, text: `${JSON.stringify({ code: "INTERNAL", message })}\n` };
  }
}

/** What all requests of one run share. */
interface Room {
  readonly bodies: OpenBytes;
  readonly tools: PQueue;
}

async function answerTo(
  request: IncomingMessage,
  response: ServerResponse,
  pending: Promise<BrokerService>,
  { bodies, tools }: Room,
): Promise<BrokerAnswer> {
  let taken = 0;
  const take = (bytes: number): boolean => {
    if (!bodies.take(bytes)) return false;
    taken += bytes;
    return true;
  };
  const hangUp = new AbortController();
  response.once("close", () => hangUp.abort(new Error("the caller hung up")));
  try {
    return await routed(request, await pending, hangUp.signal, { take, tools });
  } catch (error) {
    // A caller that has hung up has ended what it asked for; that rejects too.
    if (!hangUp.signal.aborted)
      (await pending).trouble(`internal error at ${request.method} ${routeOf(request)}: ${bugText(error)}`);
    return INTERNAL;
  } finally {
    bodies.release(taken);
  }
}

/** A worker chooses the address of its request. */
function routeOf({ url = "" }: IncomingMessage): string {
  return /^\/v1\/[a-z_/]{1,80}$/.test(url) ? url : "another route";
}

const TOOL_ROUTE = /^POST \/v1\/tools\/([a-z_]{1,64})$/;

async function routed(
  request: IncomingMessage,
  service: BrokerService,
  signal: AbortSignal,
  { take, tools }: { readonly take: (bytes: number) => boolean; readonly tools: PQueue },
): Promise<BrokerAnswer> {
  const route = `${request.method} ${request.url}`;
  if (route === "GET /v1/sandbox") return { status: 200, body: service.sandbox() };
  const tool = TOOL_ROUTE.exec(route)?.[1];
  if (route !== "POST /v1/calls" && route !== "POST /v1/access" && tool === undefined) {
    const message = `There is no ${route}. There are POST /v1/calls, POST /v1/tools/NAME, POST /v1/access and GET /v1/sandbox.`;
    return { status: 404, body: { code: "NO_SUCH_ROUTE", message } };
  }
  const body = await jsonBody(request, take);
  if (!body.ok) return badRequest(body.problem);
  if (route === "POST /v1/access") return await accessed(body.value, service, signal);
  if (tool === undefined) return await called(body.value, service, signal);
  return await inPlace(tools, () => tooled(tool, body.value, service, signal), signal);
}

/** The place is taken until the answer has been read, or the connection is closed. `closed`: aborted then. */
async function inPlace(places: PQueue, act: () => Promise<BrokerAnswer>, closed: AbortSignal): Promise<BrokerAnswer> {
  const { promise, resolve, reject } = Promise.withResolvers<BrokerAnswer>();
  const untilRead = async (): Promise<void> => {
    await act().then(resolve, reject);
    if (!closed.aborted) await new Promise((read) => closed.addEventListener("abort", read, { once: true }));
  };
  inTurn(places, untilRead, closed).catch(reject);
  return await promise;
}

async function called(raw: unknown, service: BrokerService, signal: AbortSignal): Promise<BrokerAnswer> {
  const call = parseCallBody(raw);
  if (typeof call === "string") return badRequest(call);
  const result = await service.call(call, signal);
  return result.status === "refused" || result.status === "denied" ? refusal(result) : { status: 200, body: result };
}

async function accessed(raw: unknown, service: BrokerService, signal: AbortSignal): Promise<BrokerAnswer> {
  const request = parseAccessBody(raw);
  if (typeof request === "string") return badRequest(request);
  const { granted, ...answer } = await service.access(request, signal);
  return granted ? { status: 200, body: { granted, ...answer } } : { status: 403, body: answer };
}

async function tooled(name: string, raw: unknown, service: BrokerService, signal: AbortSignal): Promise<BrokerAnswer> {
  const result = await service.tool(name, raw, signal);
  if (result.ok || isEndedCall(result)) return { status: 200, body: result };
  const status = { NO_SUCH_TOOL: 404, BAD_INPUT: 400, INTERNAL: 500 }[result.code] ?? 403;
  return { status, body: { ...result.data, code: result.code, message: result.message } };
}

/** A called worker that ran and failed is an answer, as it is if it is called directly. */
function isEndedCall({ data }: ToolResult): boolean {
  return typeof data.status === "string" && data.status !== "refused" && data.status !== "denied";
}

function badRequest(message: string): BrokerAnswer {
  return { status: 400, body: { code: "BAD_REQUEST", message } };
}

function refusal(result: RunResult): BrokerAnswer {
  const { code, message } = result.error ?? { code: "REFUSED", message: "The call was refused." };
  return { status: 403, body: { code, message, violations: result.violations, run: result.run } };
}
