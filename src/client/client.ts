import { type OperationName, ROUTES, type RouteRow } from "../operations/contract/routes.ts";
import type { Answering, AnswerOf, AskOf, EventOf } from "../operations/contract/table.ts";

/** An error of the service, or of the way to it: `UNREACHABLE`, `CUT` if an answer is not whole. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  /** Of HTTP; 0: there was no answer, or only a part of it. */
  readonly status: number;
  readonly code: string;
  readonly violations: readonly { readonly message: string }[];

  constructor(
    status: number,
    code: string,
    message: string,
    { violations = [], cause }: { readonly violations?: ApiError["violations"]; readonly cause?: unknown } = {},
  ) {
    super(message, cause === undefined ? {} : { cause });
    this.status = status;
    this.code = code;
    this.violations = violations;
  }
}

/** A file that goes up with a request. */
export interface SentFile {
  readonly name: string;
  readonly content: Blob | AsyncIterable<Uint8Array>;
}

/** A request as it goes to the service. `path`: of the URL, with its query. */
export interface ServiceRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** JSON; null: none. */
  readonly json: string | null;
  /** Absent: none. What `json` has is null then. */
  readonly bytes?: Uint8Array | Blob | AsyncIterable<Uint8Array> | undefined;
  /** If there are any, the request is a form whose first part, `request`, is the JSON. */
  readonly files: readonly SentFile[];
  readonly signal: AbortSignal | undefined;
}

export interface ServiceResponse {
  readonly status: number;
  /** Of a header; null if there is none. Absent: headers cannot be read. */
  readonly header?: (name: string) => string | null;
  /** Throws if they end before the answer does. */
  readonly pieces: AsyncIterable<Uint8Array>;
  /** False: nothing says where the answer ends, so that one that was cut looks whole. */
  readonly hasEnd: boolean;
}

/** Brings requests to the service: `client/node.ts` from Node, and the page by what its browser has. @throws ApiError, or what the signal is aborted with */
export type ServiceTransport = (request: ServiceRequest) => Promise<ServiceResponse>;

export interface Asking {
  readonly signal?: AbortSignal | undefined;
}

export interface Following extends Asking {
  /** The id of the last event that was seen. Absent: from the first. */
  readonly after?: string;
  /** How often in a row the connection may break, or not be there. Absent: 10 times, which takes about a minute. */
  readonly retries?: number;
  readonly onConnected?: (isConnected: boolean) => void;
}

/** An event, and the id to continue after it. */
export interface FollowedEvent<Name extends Answering<"events">> {
  readonly id: string;
  readonly event: EventOf<Name>;
}

const MAX_JSON_BYTES = 256 * 1024 ** 2;
const MAX_FAULT_BYTES = 1024 ** 2;
const RETRIES = 10;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;

/** The operations of a service, over HTTP. It checks nothing of an answer but that it is whole: the service is trusted by those who have a token of it. */
export class ServiceClient {
  readonly #transport: ServiceTransport;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #onSignedOut: () => void;

  /** `token`: null for a Unix socket. `onSignedOut`: the service does not know the token, or knows it no more. */
  constructor(transport: ServiceTransport, token: string | null, onSignedOut: () => void = () => {}) {
    this.#transport = transport;
    this.#headers = token === null ? {} : { authorization: `Bearer ${token}` };
    this.#onSignedOut = onSignedOut;
  }

  /** Does what answers with JSON. `files`: for `runs.start`. @throws ApiError */
  async call<Name extends Answering<"output">>(
    name: Name,
    ask: AskOf<Name>,
    { signal, files = [] }: Asking & { readonly files?: readonly SentFile[] } = {},
  ): Promise<AnswerOf<Name>> {
    const { pieces } = await this.#send(name, ask, { signal, files });
    return JSON.parse(await textOf(pieces, MAX_JSON_BYTES)) as AnswerOf<Name>;
  }

  /** Does what takes bytes, of any number. @throws ApiError */
  async upload<Name extends Answering<"output">>(
    name: Name,
    ask: AskOf<Name>,
    bytes: Uint8Array | Blob | AsyncIterable<Uint8Array>,
    { signal, length }: Asking & { readonly length?: number | undefined } = {},
  ): Promise<AnswerOf<Name>> {
    const said = length === undefined ? {} : { "content-length": String(length) };
    const headers = { "content-type": "application/octet-stream", ...said };
    const { pieces } = await this.#send(name, ask, { signal, bytes, headers });
    return JSON.parse(await textOf(pieces, MAX_JSON_BYTES)) as AnswerOf<Name>;
  }

  /** The events of one request, which is not repeated: they throw if they are not whole. @throws ApiError */
  async *stream<Name extends Answering<"events">>(
    name: Name,
    ask: AskOf<Name>,
    asking: Asking = {},
  ): AsyncGenerator<EventOf<Name>, void, undefined> {
    const { pieces } = await this.#send(name, ask, asking);
    const [parser, decoder] = [new EventParser(), new TextDecoder()];
    for await (const piece of pieces)
      for (const { data } of parser.push(decoder.decode(piece, { stream: true })))
        yield JSON.parse(data) as EventOf<Name>;
  }

  /** The same as {@link download}, with a header of the answer. */
  async downloadWith<Name extends Answering<"bytes">>(
    name: Name,
    ask: AskOf<Name>,
    header: string,
    asking: Asking = {},
  ): Promise<{ readonly header: string | null; readonly pieces: AsyncIterable<Uint8Array> }> {
    const { pieces, hasEnd, header: headerOf } = await this.#send(name, ask, asking);
    if (hasEnd) return { header: headerOf?.(header) ?? null, pieces };
    throw new ApiError(0, "CUT", "what is between here and the service does not pass on where an answer ends");
  }

  /** What answers with bytes. They throw if they are not whole. @throws ApiError */
  async download<Name extends Answering<"bytes">>(
    name: Name,
    ask: AskOf<Name>,
    asking: Asking = {},
  ): Promise<AsyncIterable<Uint8Array>> {
    return (await this.downloadWith(name, ask, "", asking)).pieces;
  }

  /**
   * The events from the first, or after another one, to the last, also over connections that break: none is missed, and none comes twice. It ends
   * only when the service says that there are no more.
   *
   * @throws ApiError, and what the signal is aborted with
   */
  async *follow<Name extends Answering<"events">>(
    name: Name,
    ask: AskOf<Name>,
    { signal, after = "", retries = RETRIES, onConnected = () => {} }: Following = {},
  ): AsyncGenerator<FollowedEvent<Name>, void, undefined> {
    let last = after;
    for (let failures = 0; ; ) {
      let why: unknown = new ApiError(0, "CUT", "the events ended before their end");
      failures += 1;
      try {
        const headers = last === "" ? {} : { "last-event-id": last };
        const { status, pieces } = await this.#send(name, ask, { signal, headers });
        if (status === 204) return;
        onConnected(true);
        const [parser, decoder] = [new EventParser(), new TextDecoder()];
        for await (const piece of pieces)
          for (const { id, data } of parser.push(decoder.decode(piece, { stream: true }))) {
            failures = 0;
            last = id === "" ? last : id;
            yield { id, event: JSON.parse(data) as EventOf<Name> };
          }
      } catch (error) {
        if (signal?.aborted || !isTemporary(error)) throw error;
        why = error;
      }
      onConnected(false);
      if (failures > retries) throw why;
      if (failures > 0) await pause(Math.min(FIRST_PAUSE_MS * 2 ** (failures - 1), LONGEST_PAUSE_MS), signal);
    }
  }

  /** @throws ApiError for an answer that is an error */
  async #send(
    name: OperationName,
    ask: unknown,
    { signal, headers = {}, files = [], bytes }: Asking & Partial<Pick<ServiceRequest, "headers" | "files" | "bytes">>,
  ): Promise<ServiceResponse> {
    const request = { ...requestOf(name, ask), headers: { ...this.#headers, ...headers }, files, signal, bytes };
    const response = await this.#transport(request);
    if (response.status >= 200 && response.status < 300) return response;
    if (response.status === 401) this.#onSignedOut();
    throw await errorIn(response);
  }
}

/** What the service says in an answer that is an error. */
export async function errorIn({ status, pieces }: Pick<ServiceResponse, "status" | "pieces">): Promise<ApiError> {
  const fault = faultIn(await textOf(pieces, MAX_FAULT_BYTES).catch(() => ""));
  const { code = "UNKNOWN", message = `The service answered with ${status}.`, violations = [] } = fault;
  return new ApiError(status, code, message, { violations });
}

type Fault = Partial<Pick<ApiError, "code" | "message" | "violations">>;

/** Empty for what is no fault of the service, such as the page of a proxy. */
function faultIn(text: string): Fault {
  try {
    return (JSON.parse(text) as { readonly error?: Fault } | null)?.error ?? {};
  } catch {
    return {};
  }
}

/** What the members of `ask` become. @throws RangeError for a part of the path that would lead elsewhere */
export function requestOf(name: OperationName, ask: unknown): Pick<ServiceRequest, "method" | "path" | "json"> {
  const [method, pattern, , whole]: RouteRow = ROUTES[name];
  const rest = new Map(Object.entries(ask as object).filter(([, value]) => value !== undefined));
  const path = pattern.replaceAll(/\{(\w+)\}/g, (_, member: string) => {
    const part = String(rest.get(member) ?? "");
    rest.delete(member);
    if (part === "" || part === "." || part === "..") throw new RangeError(`${name}: ${member} is ${part || "empty"}`);
    return encodeURIComponent(part);
  });
  if (method === "POST" && whole !== "bytes") {
    if (whole !== undefined) return { method, path, json: JSON.stringify(rest.get(whole)) };
    return { method, path, json: rest.size === 0 ? null : JSON.stringify(Object.fromEntries(rest)) };
  }
  const query = new URLSearchParams([...rest].map(([member, value]): [string, string] => [member, String(value)]));
  return { method, path: query.size === 0 ? path : `${path}?${query}`, json: null };
}

async function textOf(pieces: AsyncIterable<Uint8Array>, maxBytes: number): Promise<string> {
  const decoder = new TextDecoder();
  let [text, bytes] = ["", 0];
  for await (const piece of pieces) {
    bytes += piece.length;
    if (bytes > maxBytes) throw new ApiError(0, "TOO_LARGE", `the answer has more than ${maxBytes} bytes`);
    text += decoder.decode(piece, { stream: true });
  }
  return text + decoder.decode();
}

/** The service, or what is before it, may be there again soon. */
export function isTemporary(error: unknown): boolean {
  return error instanceof ApiError && [0, 502, 503, 504].includes(error.status) && error.code !== "TOO_LARGE";
}

function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", end);
      resolve();
    }, ms);
    if (signal?.aborted) end();
    else signal?.addEventListener("abort", end, { once: true });
  });
}

/** One server-sent event. */
interface StreamEvent {
  readonly id: string;
  readonly type: string;
  readonly data: string;
}

/** A worker's text is in JSON on one line, which is bounded by the log of the service. */
const MAX_PENDING_CHARS = 16 * 1024 ** 2;

/** Takes server-sent events out of a text that comes in pieces. */
export class EventParser {
  #pending = "";

  /** The events that are whole after this piece. @throws RangeError for one that is too long */
  push(piece: string): StreamEvent[] {
    this.#pending += piece;
    const blocks = this.#pending.split("\n\n");
    this.#pending = blocks.pop() ?? "";
    if (this.#pending.length > MAX_PENDING_CHARS) throw new RangeError("an event is too long");
    return blocks.flatMap((block) => eventIn(block) ?? []);
  }
}

/** Null for a comment. */
function eventIn(block: string): StreamEvent | null {
  const fields = { id: "", event: "message", data: "" };
  for (const line of block.split("\n")) {
    const [, name, value = ""] = /^(id|event|data): ?(.*)$/s.exec(line) ?? [];
    if (name !== undefined) fields[name as keyof typeof fields] = value;
  }
  return fields.data === "" ? null : { id: fields.id, type: fields.event, data: fields.data };
}
