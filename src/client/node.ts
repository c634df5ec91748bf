import { once } from "node:events";
import type { ClientRequest, IncomingMessage, RequestOptions } from "node:http";
import { type Duplex, Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { request as httpRequest } from "../platform/http.ts";
import { ApiError, errorIn, requestOf, type SentFile, type ServiceResponse, type ServiceTransport } from "./client.ts";

/**
 * To a service at `http://…` or `https://…`, whose path comes before those of the operations, or at `unix:/PATH`. It follows no redirect: a token is
 * for one place.
 *
 * @throws RangeError for another address
 */
export function transportTo(address: string): ServiceTransport {
  const { options, isSecure, prefix } = placeOf(address);
  return async ({ method, path, headers, json, files, signal, bytes }) => {
    const send = isSecure ? (await import("node:https")).request : httpRequest;
    const form = files.length === 0 ? null : formOf(json ?? "", files);
    const sent = send({
      ...options,
      method,
      path: `${prefix}${path}`,
      headers: { ...options.headers, ...headers, ...bodyHeaders(json, form) },
      agent: false,
      // A variable of Node's turns it off for all that does not say so itself.
      rejectUnauthorized: true,
      signal,
    });
    const answered = once(sent, "response");
    const content = form?.pieces ?? bytes;
    if (content === undefined || content instanceof Uint8Array) sent.end(content ?? json ?? undefined);
    else
      upload(
        content instanceof Blob ? content.stream() : content,
        sent,
        Number(headers["content-length"] ?? Number.NaN),
      );
    const [response] = (await answered.catch((cause: unknown) => {
      signal?.throwIfAborted();
      if (cause instanceof ApiError) throw cause;
      throw new ApiError(0, "UNREACHABLE", "The service does not answer. Is `corral serve` running?", { cause });
    })) as [IncomingMessage];
    // From here on, the answer says how the request went.
    sent.on("error", () => {});
    const { statusCode = 0, headers: about } = response;
    const hasEnd = about["content-length"] !== undefined || about["transfer-encoding"] === "chunked";
    const header = (name: string): string | null => String(about[name] ?? "") || null;
    return { status: statusCode, hasEnd, header, pieces: piecesOf(response, signal) } satisfies ServiceResponse;
  };
}

/**
 * A connection to a port of a session, through the service at an address as above. `token`: null for a Unix socket.
 *
 * @throws ApiError, RangeError
 */
export async function connectToPort(
  address: string,
  token: string | null,
  ask: { readonly session: string; readonly port: number },
  signal?: AbortSignal,
): Promise<Duplex> {
  const { options, isSecure, prefix } = placeOf(address);
  const { method, path } = requestOf("ports.connect", ask);
  const send = isSecure ? (await import("node:https")).request : httpRequest;
  const authorization = token === null ? {} : { authorization: `Bearer ${token}` };
  const headers = { ...options.headers, ...authorization, connection: "upgrade", upgrade: "corral-port" };
  const sent = send({
    ...options,
    method,
    path: `${prefix}${path}`,
    headers,
    agent: false,
    rejectUnauthorized: true,
    signal,
  });
  const { promise, resolve, reject } = Promise.withResolvers<Duplex>();
  sent.once("upgrade", (_, connection, first) => {
    if (first.length > 0) connection.unshift(first);
    // It ends as any connection does: its reader or its writer is told.
    resolve(connection.on("error", () => {}));
  });
  sent.once("response", (response) => {
    void errorIn({ status: response.statusCode ?? 0, pieces: piecesOf(response, signal) }).then(reject);
  });
  sent.once("error", (cause) =>
    reject(new ApiError(0, "UNREACHABLE", "The service does not answer. Is `corral serve` running?", { cause })),
  );
  sent.end();
  return await promise;
}

interface Place {
  readonly options: RequestOptions;
  readonly isSecure: boolean;
  /** Of every path; without a slash at its end. */
  readonly prefix: string;
}

function placeOf(address: string): Place {
  const wrong = (why: string): RangeError =>
    new RangeError(`${why}: name http://HOST:PORT, https://HOST or unix:/PATH`);
  if (address.startsWith("unix:")) {
    const socketPath = address.slice("unix:".length);
    if (!socketPath.startsWith("/")) throw wrong("the path of a socket is absolute");
    return { options: { socketPath, headers: { host: "localhost" } }, isSecure: false, prefix: "" };
  }
  if (!URL.canParse(address)) throw wrong("this is no address of a service");
  const { protocol, hostname, port, pathname, search, hash, username, password } = new URL(address);
  if (protocol !== "http:" && protocol !== "https:") throw wrong("a service is reached by http or https");
  if (`${search}${hash}${username}${password}` !== "") throw wrong("an address has no query, fragment or user");
  const prefix = pathname.replace(/\/$/, "");
  if (prefix.includes("//")) throw wrong("a part of the address's path is empty");
  const host = hostname.replace(/^\[(.*)\]$/, "$1");
  return { options: { host, ...(port === "" ? {} : { port }) }, isSecure: protocol === "https:", prefix };
}

function bodyHeaders(json: string | null, form: SentForm | null): Record<string, string> {
  if (form !== null) return { "content-type": `multipart/form-data; boundary=${form.boundary}` };
  if (json === null) return {};
  return { "content-type": "application/json", "content-length": String(Buffer.byteLength(json)) };
}

interface SentForm {
  readonly boundary: string;
  readonly pieces: AsyncIterable<Uint8Array | string>;
}

function formOf(json: string, files: readonly SentFile[]): SentForm {
  const boundary = `corral-${crypto.randomUUID()}`;
  const quoted = (name: string): string => name.replaceAll(/["\\]/g, "\\$&");
  const pieces = async function* (): AsyncGenerator<Uint8Array | string> {
    yield `--${boundary}\r\ncontent-disposition: form-data; name="request"\r\n\r\n${json}\r\n`;
    for (const { name, content } of files) {
      if (/[\r\n\0]/.test(name)) throw new RangeError("a file name has no line break");
      yield `--${boundary}\r\ncontent-disposition: form-data; name="file"; filename="${quoted(name)}"\r\n\r\n`;
      yield* content instanceof Blob ? content.stream() : content;
      yield "\r\n";
    }
    yield `--${boundary}--\r\n`;
  };
  return { boundary, pieces: pieces() };
}

/** A file that cannot be read ends the request. That a service which refuses it reads no further is no error here: its answer says why. */
function upload(pieces: AsyncIterable<Uint8Array | string>, sent: ClientRequest, bytes: number): void {
  const whole = Number.isNaN(bytes) ? pieces : wholeOf(pieces, bytes);
  pipeline(Readable.from(whole), sent).catch((error: Error) => sent.destroy(error));
}

/** As many bytes as were said: the service waits for them. */
async function* wholeOf(
  pieces: AsyncIterable<Uint8Array | string>,
  bytes: number,
): AsyncGenerator<Uint8Array | string> {
  let left = bytes;
  for await (const piece of pieces) {
    left -= piece.length;
    yield piece;
  }
  if (left !== 0)
    throw new ApiError(0, "CUT", `what was sent has ${bytes - left} bytes, and not the ${bytes} that were said`);
}

async function* piecesOf(response: IncomingMessage, signal: AbortSignal | undefined): AsyncGenerator<Uint8Array> {
  try {
    for await (const piece of response) yield piece as Uint8Array;
  } catch (cause) {
    signal?.throwIfAborted();
    throw new ApiError(0, "CUT", "the answer of the service ended in the middle", { cause });
  }
  if (!response.complete) throw new ApiError(0, "CUT", "the answer of the service ended in the middle");
}
