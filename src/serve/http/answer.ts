import { once } from "node:events";
import type { ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import tar from "tar-stream";
import type { CarriableContent } from "../../isolation/port/cell.ts";
import { written } from "../../platform/byte-streams.ts";
import type { EventLine } from "../../state/service/event-log.ts";
import { type Carriage, isWorthCarrying } from "./carriage.ts";
import { faultOf } from "./fault.ts";

/** A comment on an idle stream, so that proxies and clients know that it is alive. */
export const HEARTBEAT_MS = 15_000;

/** The lines as server-sent events. A line is JSON, in which a line break is escaped: no content can end an event. */
export async function* eventStream(
  lines: AsyncIterable<readonly EventLine[]>,
): AsyncGenerator<string, void, undefined> {
  yield ": events\n\n";
  for await (const some of lines) {
    if (some.length === 0) yield ": idle\n\n";
    for (const { id, json } of some) yield `id: ${id}\nevent: ${typeOf(json)}\ndata: ${json}\n\n`;
  }
}

/** Corral's own word for it, which the line has first. */
function typeOf(json: string): string {
  return /^\{"type":"([a-z_]{1,40})"/.exec(json)?.[1] ?? "message";
}

/** Where a client continues; 0: at the beginning. Null: no event has such an id. */
export function lastEventId(header: string | string[] | undefined): number | null {
  if (header === undefined || header === "") return 0;
  return typeof header === "string" && /^\d{1,15}$/.test(header) ? Number(header) : null;
}

export type HidePaths = (text: string) => string;

/** The placeholder of a host folder in texts for clients. */
export interface NamedFolder {
  readonly path: string;
  readonly name: string;
}

/**
 * Replaces folders of the host that the service knows in messages of Corral: they name what failed, and a client has no use for where it
 * is. What workers print is left as it is.
 */
export function hidingHostPaths(folders: readonly NamedFolder[]): HidePaths {
  const longestFirst = folders
    .filter(({ path }) => path.length > 1)
    .toSorted((a, b) => b.path.length - a.path.length)
    .map(
      ({ path, name }) =>
        [new RegExp(`(?<![\\w.-])${path.replaceAll(/[^\w/-]/g, "\\$&")}(?![\\w-])`, "g"), name] as const,
    );
  return (text) => longestFirst.reduce((shown, [pattern, name]) => shown.replaceAll(pattern, () => name), text);
}

/** The same in every text of a value, as it is in JSON, and in the names of its members. */
export function hiddenIn(value: unknown, hide: HidePaths): unknown {
  return JSON.parse(JSON.stringify(value), (_, one: unknown) => {
    if (typeof one === "string") return hide(one);
    if (typeof one !== "object" || one === null || Array.isArray(one)) return one;
    return Object.fromEntries(Object.entries(one).map(([name, member]) => [hide(name), member]));
  });
}

/**
 * An absolute path of the host, or the URL of a socket there, up to the next part of the sentence: a path may have blanks, so with it
 * goes what is said about it. A name such as `corral/base` is none.
 */
const HOST_PATH = /(?<![\w.-])(?:[a-z]+:\/\/)?\/[^,;]*?(?=[,;]|: | \(|$)/g;

/** A message without any path of the host. `known`: one that may be in it, whatever characters it has. */
export function withoutHostPaths(message: string, known: string): string {
  return message.replaceAll(known, () => "/").replaceAll(HOST_PATH, "…");
}

/** On every answer, errors included. Nothing that a browser gets from the service may run, be framed, be guessed or be kept. */
export const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
  "referrer-policy": "no-referrer",
  "cross-origin-resource-policy": "same-origin",
  "cross-origin-opener-policy": "same-origin",
  "cache-control": "no-store",
};

/** The bytes of an answer before any request was understood. */
export function bareAnswer(status: string, code: string, message: string): string {
  return bareJson(status, { error: { code, message } });
}

/** The bytes of an answer, after which the connection ends. */
export function bareJson(status: string, json: unknown): string {
  const body = JSON.stringify(json);
  const headers = { ...SECURITY_HEADERS, "content-type": "application/json", connection: "close" };
  const lines = Object.entries({ ...headers, "content-length": String(Buffer.byteLength(body)) });
  return `HTTP/1.1 ${status}\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join("")}\r\n${body}`;
}

/** What a route answers with. */
export type RouteAnswer =
  | { readonly status: number; readonly json: unknown }
  | { readonly status: 204 }
  | {
      readonly status: 200;
      readonly contentType: string;
      readonly headers?: Readonly<Record<string, string>>;
      readonly pieces: AsyncIterable<Uint8Array | string>;
      /** See `Sent`. */
      readonly connection?: Duplex;
      readonly carriable?: CarriableContent;
    };

/** How long a client may leave a piece of a stream unread. A whole answer has this time, and more for its length. */
const STALL_MS = 30_000;
/** The slowest client that reads. */
const LEAST_BYTES_PER_MS = 16;

/** What waits for a client: to wake up for each piece of a large answer costs more than to send it. */
const AHEAD_BYTES = 256 * 1024;

/** How long a client that is answered before it has sent all may go on. */
const LINGER_MS = 2000;

/** How long clients may take to read. */
export interface SlowClientLimits {
  readonly stallMs?: number;
  readonly leastBytesPerMs?: number;
  /** A client took longer: its connection was closed, and is free for others. */
  readonly onUnread?: () => void;
}

/** Sends an answer whole, at the pace of the client: few pieces are in memory. */
export async function send(
  response: ServerResponse,
  answer: RouteAnswer,
  patience: SlowClientLimits = {},
  carriage: Carriage | null = null,
): Promise<void> {
  if ("json" in answer) return sendJson(response, answer.status, answer.json, patience);
  if (!("pieces" in answer)) return void response.writeHead(answer.status, SECURITY_HEADERS).end();
  const { contentType, headers = {}, pieces, carriable } = answer;
  if (carriable !== undefined && carriage !== null && isWorthCarrying(carriable.bytes)) {
    const length = { "content-length": String(carriable.bytes), connection: "close" };
    response.writeHead(200, { ...SECURITY_HEADERS, "content-type": contentType, ...headers, ...length });
    await carriage.flushed();
    if (!response.destroyed) await carriable.through((pipe) => carriage.contentFrom(pipe, carriable.bytes));
    return;
  }
  response.writeHead(200, { ...SECURITY_HEADERS, "content-type": contentType, ...headers });
  response.flushHeaders();
  for await (const piece of pieces) {
    if (response.destroyed) return;
    const behind = written(response, piece, AHEAD_BYTES);
    if (behind === undefined) continue;
    using _ = closedAfter(response, patience);
    await behind;
  }
  endWith(response, undefined, patience);
}

/** The end of an answer. What is still unread of it must be read in time. */
export function endWith(
  response: ServerResponse,
  rest: string | Uint8Array | undefined,
  patience: SlowClientLimits,
): void {
  response.end(rest);
  if (response.writableFinished || response.destroyed) return;
  const timer = closedAfter(
    response,
    patience,
    Buffer.byteLength(rest ?? "") / (patience.leastBytesPerMs ?? LEAST_BYTES_PER_MS),
  );
  response.once("close", () => timer[Symbol.dispose]());
}

function closedAfter(
  response: ServerResponse,
  { stallMs = STALL_MS, onUnread = () => {} }: SlowClientLimits,
  moreMs = 0,
): Disposable {
  const timer = setTimeout(() => {
    response.destroy();
    onUnread();
  }, stallMs + moreMs);
  return { [Symbol.dispose]: () => clearTimeout(timer) };
}

export function sendFault(
  response: ServerResponse,
  error: unknown,
  hide: HidePaths,
  patience: SlowClientLimits = {},
): void {
  const { status, body } = faultOf(error);
  if (response.headersSent) return void response.destroy();
  const further = status === 401 ? { "www-authenticate": "Bearer" } : {};
  // What was not read of the request would be taken for the next one.
  sendJson(response, status, { error: hiddenIn(body, hide) }, patience, { connection: "close", ...further });
}

function sendJson(
  response: ServerResponse,
  status: number,
  json: unknown,
  patience: SlowClientLimits,
  headers: Record<string, string> = {},
): void {
  const text = `${JSON.stringify(json)}\n`;
  const length = String(Buffer.byteLength(text));
  response.writeHead(status, {
    ...SECURITY_HEADERS,
    "content-type": "application/json; charset=utf-8",
    "content-length": length,
    ...headers,
  });
  const { req: request } = response;
  if (request.complete || request.destroyed) {
    endWith(response, text, patience);
    return;
  }
  // A connection that is closed while the client still sends can take the answer with it: what is sent is read, and left.
  response.write(text);
  const end = (): void => {
    clearTimeout(timer);
    request.off("end", end);
    endWith(response, undefined, patience);
  };
  const timer = setTimeout(end, LINGER_MS);
  request.once("end", end).resume();
  response.once("close", () => clearTimeout(timer));
}

/** A regular file or a directory of an archive. */
interface TarEntry {
  readonly path: string;
  readonly type: "file" | "directory";
  readonly bytes: number;
  readonly mode: number;
  readonly content: AsyncIterable<Buffer>;
}

/** Packs entries as they are read. Paths are relative and none leads up; users, groups and times are left out. */
export async function* tarOf(entries: AsyncIterable<TarEntry>): AsyncGenerator<Buffer, void, undefined> {
  const pack = tar.pack();
  const packing = fill(pack, entries);
  // It is reported by the end of the pack, at the latest.
  packing.catch((error: Error) => pack.destroy(error));
  try {
    for await (const piece of pack) yield piece as Buffer;
    await packing;
  } finally {
    pack.destroy();
    await packing.catch(() => {});
  }
}

async function fill(pack: tar.Pack, entries: AsyncIterable<TarEntry>): Promise<void> {
  for await (const { path, type, bytes, mode, content } of entries) {
    const name = path
      .split("/")
      .filter((part) => part !== "" && part !== "." && part !== "..")
      .join("/");
    // Not even a setuid bit; what was executable stays it.
    const about = { name, mode: mode & 0o755, mtime: new Date(0), type, size: bytes };
    if (type === "directory") {
      pack.entry(about);
      continue;
    }
    const entry = pack.entry(about);
    for await (const piece of content) {
      if (pack.destroyed) return;
      if (!entry.write(piece)) await Promise.race([once(entry, "drain"), once(entry, "close"), once(pack, "close")]);
    }
    entry.end("");
  }
  pack.finalize();
}
