import { chmod, mkdir, rm, stat } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { join } from "node:path";
import { z } from "zod";
import type { PlannedSource } from "../isolation/mounts.ts";
import type { CallRequest } from "./call.ts";
import type { RunResult } from "./result.ts";

/** What a run can ask of Corral. Its socket is in that run's cell alone, so who asks is never in doubt. */
export interface BrokerService {
  /** Aborted where the worker hangs up before it has its answer. */
  call(request: CallRequest, signal: AbortSignal): Promise<RunResult>;
  /** What this run may do, in virtual paths. */
  sandbox(): unknown;
}

export interface Broker extends AsyncDisposable {
  readonly socketPath: string;
  readonly source: PlannedSource;
  /** From now on calls are answered; until then a connection waits. */
  serve(service: BrokerService): void;
}

const MAX_BODY_BYTES = 4 * 1024 * 1024;
const MAX_ATTACHMENTS = 256;
const MAX_CONNECTIONS = 128;
/** The kernel's limit for the path of a Unix socket, with its closing zero. */
const MAX_SOCKET_PATH_BYTES = 107;

/** A Unix socket that speaks HTTP and JSON, for one run (design section 5). */
export async function openBroker(ownerDir: string, run: string): Promise<Broker> {
  const dir = join(ownerDir, run);
  const socketPath = join(dir, "s");
  if (Buffer.byteLength(socketPath) > MAX_SOCKET_PATH_BYTES) {
    throw new Error(
      `the state directory's path is too long for a Unix socket (${socketPath}); set CORRAL_STATE_DIR to a shorter one`,
    );
  }
  await mkdir(dir, { mode: 0o755 });
  const { promise: service, resolve: serve } = Promise.withResolvers<BrokerService>();
  const server = createServer((request, response) => void respond(request, response, service));
  server.maxConnections = MAX_CONNECTIONS;
  await listen(server, socketPath);
  // Connecting needs write permission, and the cell's user is another one; the directories above keep the host's users out.
  await chmod(socketPath, 0o666);
  const { dev, ino, uid, gid } = await stat(socketPath, { bigint: true });
  return {
    socketPath,
    source: { device: String(dev), inode: String(ino), uid: Number(uid), gid: Number(gid), kind: "socket" },
    serve,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await rm(dir, { recursive: true, force: true });
    },
  };
}

function listen(server: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject).listen(path, resolve);
  });
}

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

async function respond(
  request: IncomingMessage,
  response: ServerResponse,
  pending: Promise<BrokerService>,
): Promise<void> {
  const hangUp = new AbortController();
  response.once("close", () => hangUp.abort(new Error("the caller hung up")));
  const answer = await answerTo(request, pending, hangUp.signal).catch(
    // A bug must not take the orchestrator down, nor tell a worker about the host.
    (): Answer => ({ status: 500, body: { code: "INTERNAL", message: "Corral could not answer this request." } }),
  );
  if (response.destroyed) return;
  response.writeHead(answer.status, { "content-type": "application/json" });
  response.end(`${JSON.stringify(answer.body)}\n`);
}

interface Answer {
  readonly status: number;
  readonly body: unknown;
}

async function answerTo(
  request: IncomingMessage,
  pending: Promise<BrokerService>,
  signal: AbortSignal,
): Promise<Answer> {
  const route = `${request.method} ${request.url}`;
  if (route === "GET /v1/sandbox") return { status: 200, body: (await pending).sandbox() };
  if (route !== "POST /v1/calls") {
    return {
      status: 404,
      body: { code: "NO_SUCH_ROUTE", message: `There is no ${route}. There are POST /v1/calls and GET /v1/sandbox.` },
    };
  }
  const body = await bodyOf(request);
  if (typeof body === "string") return { status: 400, body: { code: "BAD_REQUEST", message: body } };
  const result = await (await pending).call(body, signal);
  return result.status === "refused" || result.status === "denied" ? refusal(result) : { status: 200, body: result };
}

function refusal(result: RunResult): Answer {
  const { code, message } = result.error ?? { code: "REFUSED", message: "The call was refused." };
  return { status: 403, body: { code, message, violations: result.violations, run: result.run } };
}

/** The checked request, or what is wrong with it. */
async function bodyOf(request: IncomingMessage): Promise<CallRequest | string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MAX_BODY_BYTES)
      return `The request is larger than ${MAX_BODY_BYTES} bytes; hand large data over as an attachment.`;
    chunks.push(chunk);
  }
  const text = Buffer.concat(chunks).toString("utf8");
  let raw: unknown;
  try {
    raw = JSON.parse(text);
  } catch (error) {
    return `The request is not JSON: ${(error as Error).message}`;
  }
  const parsed = callBody.safeParse(raw);
  if (!parsed.success) return `The request is not a call: ${z.prettifyError(parsed.error)}`;
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
    ...(raw.readonly === undefined ? {} : { readonly: raw.readonly }),
  };
}
