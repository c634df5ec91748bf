import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setImmediate as nextTurn } from "node:timers/promises";
import { awkwardPieces } from "./awkward-pieces.ts";
import { type Behaviour, eventsBefore, type ModelTurn } from "./behaviour.ts";
import { type ModelApi, resolveTurn, type SentEvent } from "./model-api.ts";
import { isJson, type Json, keyOf, type RecordedRequest } from "./recorded-request.ts";

/** A server on this host's loopback that plays a model. Disposing of it destroys every connection that is left. */
export interface ModelServer extends AsyncDisposable {
  /** What the providers take as `baseURL`, with `/v1` at its end. */
  url: string;
  /** Every request that was understood, in order of arrival. */
  requests: readonly RecordedRequest[];
}

/** What the server does: one behaviour per request in order, or as a function says. */
export type Behaviours = readonly Behaviour[] | ((request: RecordedRequest, index: number) => Behaviour);

/** The bytes of a request's body that are read; the real APIs refuse bodies of this size as well. */
const MAX_BODY_BYTES = 32 * 1024 * 1024;

/** Starts a server for these APIs, each at its own path. */
export async function startModelServer(apis: readonly ModelApi[], behaviours: Behaviours): Promise<ModelServer> {
  const requests: RecordedRequest[] = [];
  const server = createServer((incoming, response) => {
    // A client that leaves is no error of the server; `ended` tells the test that it left.
    answer(apis, behaviours, requests, incoming, response).catch(() => incoming.socket.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    requests,
    async [Symbol.asyncDispose]() {
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

async function answer(
  apis: readonly ModelApi[],
  behaviours: Behaviours,
  requests: RecordedRequest[],
  incoming: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const api = apis.find(({ path }) => path === incoming.url);
  const body = await readBody(incoming);
  if (api === undefined || incoming.method !== "POST") {
    return sendJson(response, 404, { error: { message: `Unknown request URL: ${incoming.method} ${incoming.url}.` } });
  }
  if (body === undefined) return sendJson(response, 400, api.errorBody(400, "The body is no object of JSON."));
  const index = requests.length;
  const request = record(api, incoming, response, body);
  requests.push(request);
  const objection = api.objection(body);
  const behaviour: Behaviour =
    objection === undefined
      ? behaviourFor(behaviours, request, index)
      : { type: "status", status: 400, body: api.errorBody(400, objection) };
  await behave({ api, request, response, index }, behaviour);
}

async function readBody(incoming: IncomingMessage): Promise<Json | undefined> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of incoming) {
    bytes += chunk.length;
    if (bytes > MAX_BODY_BYTES) return undefined;
    chunks.push(chunk);
  }
  try {
    const body: unknown = JSON.parse(Buffer.concat(chunks).toString("utf8"));
    return isJson(body) ? body : undefined;
  } catch {
    return undefined;
  }
}

function record(api: ModelApi, incoming: IncomingMessage, response: ServerResponse, body: Json): RecordedRequest {
  return {
    path: api.path,
    headers: incoming.headers,
    body,
    key: keyOf(incoming.headers),
    stream: body.stream === true,
    ...api.read(body),
    ended: once(response, "close").then(() => (response.writableFinished ? "answered" : "broken")),
  };
}

/** A request that the test has no answer to is refused with what no client tries again, so that the test ends soon. */
function behaviourFor(behaviours: Behaviours, request: RecordedRequest, index: number): Behaviour {
  try {
    const behaviour = typeof behaviours === "function" ? behaviours(request, index) : behaviours[index];
    return behaviour ?? refusal(`The test has no behaviour for request ${index + 1}.`);
  } catch (error) {
    return refusal(`The test's behaviour threw: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** Of a shape that every one of the APIs has for an error. */
function refusal(message: string): Behaviour {
  return { type: "status", status: 400, body: { type: "error", error: { type: "test", message } } };
}

/** One request and where its answer goes. */
interface Exchange {
  api: ModelApi;
  request: RecordedRequest;
  response: ServerResponse;
  index: number;
}

async function behave(exchange: Exchange, behaviour: Behaviour): Promise<void> {
  const { api, request, response, index } = exchange;
  const headers = api.headers(String(index));
  switch (behaviour.type) {
    case "hang":
      return;
    case "drop":
      response.destroy();
      return;
    case "status": {
      const body = behaviour.body ?? api.errorBody(behaviour.status, `The server answers ${behaviour.status}.`);
      return sendJson(response, behaviour.status, body, { ...headers, ...behaviour.headers });
    }
    case "garbage":
      return sendGarbage(response, behaviour.what ?? "events", request.stream);
    case "echo-key":
      if (behaviour.where === "error") {
        return sendJson(response, 401, api.errorBody(401, `Incorrect API key provided: ${request.key}.`), headers);
      }
      return sendTurn(exchange, { type: "turn", turn: echoOf(request, behaviour) });
    default:
      return sendTurn(exchange, behaviour);
  }
}

function echoOf(request: RecordedRequest, echo: Extract<Behaviour, { type: "echo-key" }>): ModelTurn {
  if (echo.where === "text") return { text: `The key is ${request.key}.` };
  const name = echo.tool ?? request.tools[0]?.name ?? "echo";
  return { calls: [{ name, input: { [echo.field ?? "text"]: request.key } }] };
}

type TurnBehaviour = Extract<Behaviour, { turn: ModelTurn }>;

async function sendTurn(exchange: Exchange, behaviour: TurnBehaviour): Promise<void> {
  const { api, request, response, index } = exchange;
  const id = String(index);
  const turn = resolveTurn(behaviour.turn, (at) => `call_${index}_${at}`);
  if (!request.stream) return sendWhole(response, api.whole(turn, request.body, id), behaviour, api.headers(id));
  response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8", ...api.headers(id) });
  response.flushHeaders();
  const events = api.events(turn, request.body, id).slice(0, eventsBefore(behaviour));
  if (behaviour.type === "stream-error") {
    events.push(api.errorEvent(behaviour.code, behaviour.message ?? "The server is overloaded."));
  }
  for (const piece of awkwardPieces(Buffer.from(events.map(wireText).join("")))) await write(response, piece);
  leave(response, behaviour);
}

function wireText({ name, data }: SentEvent): string {
  const text = data === "[DONE]" ? data : JSON.stringify(data);
  return `${name === undefined ? "" : `event: ${name}\n`}data: ${text}\n\n`;
}

/** Each piece is given to the network by itself: a later turn of the event loop writes the next. */
async function write(response: ServerResponse, piece: Uint8Array): Promise<void> {
  await new Promise<void>((done, fail) => response.write(piece, (error) => (error ? fail(error) : done())));
  await nextTurn();
}

function leave(response: ServerResponse, behaviour: TurnBehaviour): void {
  if (behaviour.type === "stall") return;
  if (behaviour.type === "cut") response.destroy();
  else response.end();
}

/** An answer in one piece has no events: what would end a stream in the middle ends it after half of its bytes. */
async function sendWhole(
  response: ServerResponse,
  body: Json,
  behaviour: TurnBehaviour,
  headers: Record<string, string>,
): Promise<void> {
  if (behaviour.type === "turn") return sendJson(response, 200, body, headers);
  const bytes = Buffer.from(JSON.stringify(body));
  response.writeHead(200, { "content-type": "application/json", ...headers });
  await write(response, bytes.subarray(0, bytes.length / 2));
  leave(response, behaviour);
}

function sendGarbage(response: ServerResponse, what: "events" | "shape" | "page", stream: boolean): void {
  const text = {
    events: '{"choices": [{"delta',
    shape: '{"weather":"fine"}',
    page: "<html><p>Sign in first</p></html>",
  }[what];
  const type = what === "page" ? "text/html" : stream ? "text/event-stream" : "application/json";
  response.writeHead(200, { "content-type": type });
  response.end(what === "page" || !stream ? text : `data: ${text}\n\n`);
}

function sendJson(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(body));
}
