import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { z } from "zod";
import type { CarriableContent } from "../../isolation/port/cell.ts";
import { examine, firstFaults } from "../../json/parse-json.ts";
import type { Offered } from "../../operations/contract/operation.ts";
import type { OperationName } from "../../operations/contract/routes.ts";
import type { Answering, AnswerOf, Given } from "../../operations/contract/table.ts";
import type { Role, Token } from "../../state/service/tokens.ts";
import type { RouteAnswer } from "./answer.ts";
import type { Carriage } from "./carriage.ts";
import { ServiceFault } from "./fault.ts";
import { contentTypeOf, hasBody, readJson } from "./multipart.ts";

const MAX_BODY_BYTES = 1024 ** 2;

/** A route that fits a request, and the parts of the path that are parameters. */
export interface FoundRoute {
  readonly route: Route;
  readonly params: Readonly<Record<string, string>>;
}

/** Finds the route of a request, checks all that it brings, and runs it (docs/facts.md, fact: own-router). */
export class Router {
  readonly #routes: readonly { readonly route: Route; readonly parts: readonly string[] }[];

  constructor(routes: readonly Route[]) {
    this.#routes = routes.map((route) => ({ route, parts: route.path.split("/") }));
  }

  /** @throws ServiceFault */
  find(method: string, path: string): FoundRoute {
    const asked = path.split("/");
    const allowed: string[] = [];
    for (const { route, parts } of this.#routes) {
      const params = parts.length === asked.length ? paramsIn(parts, asked) : null;
      if (params === null) continue;
      if (route.method === method) return { route, params };
      allowed.push(route.method);
    }
    if (allowed.length > 0)
      throw new ServiceFault(405, "METHOD_NOT_ALLOWED", `this takes ${[...new Set(allowed)].join(", ")}`);
    throw new ServiceFault(404, "NOT_FOUND", "there is no such resource; /openapi.json lists all");
  }

  /** @throws ServiceFault, and whatever the route throws */
  async run(
    { route, params: rawParams }: FoundRoute,
    query: URLSearchParams,
    asking: Pick<RouteCall<unknown, unknown, unknown>, "caller" | "gone" | "request" | "take" | "carriage">,
  ): Promise<RouteAnswer> {
    const { caller, request, take } = asking;
    const { role } = route;
    if (role !== null && !permits(caller, role))
      throw new ServiceFault(403, "FORBIDDEN", `this needs a token with the role ${role}`);
    const params = checkedInput(route.params ?? NOTHING, decoded(rawParams), "path");
    const asked = checkedInput(route.query ?? NOTHING, single(query), "query");
    const body = await bodyOf(route, request, take);
    return answerOf(route, await route.handle({ ...asking, params, query: asked, body }));
  }
}

/** `admin` may do all, every role may read the metrics, and each but `metrics` may read the rest. */
export function permits({ roles }: Pick<ServiceCaller, "roles">, role: string): boolean {
  if (role === "metrics") return roles.length > 0;
  if (role === "read") return roles.some((own) => own !== "metrics");
  return roles.some((own) => own === "admin" || own === role);
}

const NOTHING = z.strictObject({});

/** In the form that the contract promises. */
function answerOf({ status = 200, output, bytes }: Route, value: unknown): RouteAnswer {
  if (output !== undefined) return { status, json: value };
  if (value === null) return { status: 204 };
  return { status: 200, contentType: bytes?.contentType ?? "text/event-stream; charset=utf-8", ...(value as Sent) };
}

async function bodyOf(route: Route, request: IncomingMessage, take: (bytes: number) => void): Promise<unknown> {
  const { body, maxBodyBytes = MAX_BODY_BYTES, takesForm = false, takesBytes } = route;
  if (takesBytes !== undefined) {
    const { contentType } = takesBytes;
    if (contentTypeOf(request) === contentType) return undefined;
    throw new ServiceFault(415, "WRONG_CONTENT_TYPE", `send bytes, with \`content-type: ${contentType}\``);
  }
  if (takesForm && contentTypeOf(request) === "multipart/form-data") return undefined;
  if (body !== undefined) return checkedInput(body, await readJson(request, maxBodyBytes, take), "body");
  if (hasBody(request)) throw new ServiceFault(400, "WRONG_REQUEST", "this takes no body");
  return undefined;
}

/** The value as its schema has it. @throws ServiceFault */
export function checkedInput(schema: z.ZodType, raw: unknown, what: string): unknown {
  const parsed = examine(schema, raw);
  if (parsed.success) return parsed.data;
  const line = ({ path, message }: z.core.$ZodIssue): string => `${[what, ...path].map(String).join(".")}: ${message}`;
  throw new ServiceFault(
    400,
    "WRONG_REQUEST",
    firstFaults(parsed.error, (issues) => issues.map(line).join("\n")),
  );
}

function paramsIn(parts: readonly string[], asked: readonly string[]): Record<string, string> | null {
  const params: Record<string, string> = {};
  for (const [index, part] of parts.entries()) {
    const given = asked[index] ?? "";
    const name = /^\{(\w+)\}$/.exec(part)?.[1];
    if (name !== undefined && given !== "") params[name] = given;
    else if (part !== given) return null;
  }
  return params;
}

function decoded(params: Readonly<Record<string, string>>): Record<string, string> {
  try {
    return Object.fromEntries(Object.entries(params).map(([name, text]) => [name, decodeURIComponent(text)]));
  } catch {
    throw new ServiceFault(400, "WRONG_REQUEST", "the path is not valid UTF-8");
  }
}

/** A key that comes twice could mean one thing here and another one in a proxy. */
function single(query: URLSearchParams): Record<string, string> {
  const given: Record<string, string> = Object.create(null);
  for (const [name, value] of query) {
    if (name === "token" || name === "access_token")
      throw new ServiceFault(
        400,
        "WRONG_REQUEST",
        "a token in a URL ends up in logs: send it in the header Authorization",
      );
    if (name in given) throw new ServiceFault(400, "WRONG_REQUEST", "a field of the query comes twice");
    given[name] = value;
  }
  return { ...given };
}

/** Who asks. */
export interface ServiceCaller {
  /** For the audit trail and the log: the token's name, or `socket`. */
  readonly name: string;
  readonly roles: readonly Role[];
  /** Null for the Unix socket. */
  readonly token: Token["id"] | null;
}

/** A request of an operation, checked. */
interface RouteCall<Params, Query, Body> {
  readonly params: Params;
  readonly query: Query;
  readonly body: Body;
  readonly caller: ServiceCaller;
  /** Aborted if the client has gone. */
  readonly gone: AbortSignal;
  /** For what only some operations read: a form, and `Last-Event-ID`. */
  readonly request: IncomingMessage;
  /** For bytes of the request that are kept in memory. @throws ServiceFault if the caller has its share of it */
  readonly take: (bytes: number) => void;
  /** Of the request's own connection; null for one that is no request any more. */
  readonly carriage: Carriage | null;
}

/** Bytes, as the contract describes them. */
export interface Sent {
  readonly pieces: AsyncIterable<Uint8Array | string>;
  readonly headers?: Readonly<Record<string, string>>;
  /** The client asked for this, by an upgrade, in the place of an answer. */
  readonly connection?: Duplex;
  /** The same bytes for another process, which may move them in place of this one. */
  readonly carriable?: CarriableContent;
}

/** What a handler answers with. Null: all events were sent before. */
type Handled<Name extends OperationName> =
  Name extends Answering<"output"> ? AnswerOf<Name> : Name extends Answering<"events"> ? Sent | null : Sent;

type Handler<Name extends OperationName> = (
  call: RouteCall<Given<Name, "params">, Given<Name, "query">, Given<Name, "body">>,
) => Promise<Handled<Name>>;

/** What the operations of some rooms do: `Handlers<"runs">`. */
export type Handlers<Room extends string> = {
  readonly [Name in OperationName as Name extends `${Room}.${string}` ? Name : never]: Handler<Name>;
};

/** An operation with what it does, whatever the types of its parts. */
export interface Route extends Offered {
  handle(call: RouteCall<unknown, unknown, unknown>): Promise<unknown>;
}
