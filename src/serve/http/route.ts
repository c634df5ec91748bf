import type { IncomingMessage } from "node:http";
import type { z } from "zod";
import type { Role, Token } from "../../state/service/tokens.ts";
import type { RouteAnswer } from "./answer.ts";
import type { Status } from "./fault.ts";

/** Who asks. */
export interface ServiceCaller {
  /** For the audit trail and the log: the token's name, or `socket`. */
  readonly name: string;
  readonly roles: readonly Role[];
  /** Null for the Unix socket. */
  readonly token: Token["id"] | null;
}

/** A request of a route, checked. */
export interface RouteCall<Params, Query, Body> {
  readonly params: Params;
  readonly query: Query;
  readonly body: Body;
  readonly caller: ServiceCaller;
  /** Aborted if the client has gone. */
  readonly gone: AbortSignal;
  /** For what only some routes read: a form, and `Last-Event-ID`. */
  readonly request: IncomingMessage;
  /** For bytes of the request that are kept in memory. @throws ServiceFault if the caller has its share of it */
  readonly take: (bytes: number) => void;
}

/** A body in another form than JSON, for the description. */
export interface OtherContent {
  readonly contentType: string;
  readonly description: string;
}

export interface RouteSpec<
  Params extends z.ZodObject = z.ZodObject,
  Query extends z.ZodObject = z.ZodObject,
  Body extends z.ZodType = z.ZodType,
> {
  readonly method: "GET" | "POST" | "DELETE";
  /** `/v1/runs/{run}` */
  readonly path: string;
  /** Null: also without a token. */
  readonly role: Role | null;
  /** Begins with a verb. */
  readonly summary: string;
  readonly params?: Params;
  readonly query?: Query;
  /** JSON. */
  readonly body?: Body;
  readonly maxBodyBytes?: number;
  /** The same JSON as the part `request` of a form, with files. The route reads it itself. */
  readonly takesForm?: boolean;
  /** It waits for something, or its answer is a stream: a token has half of its connections for these. */
  readonly isLasting?: boolean;
  /** By status. Null: nothing. */
  readonly answers: Readonly<Record<number, z.ZodType | OtherContent | null>>;
  /** Errors that the route has beside those of all. */
  readonly faults?: readonly Status[];
}

/** One route with what it does, whatever the types of its parts. */
export interface Route extends RouteSpec {
  handle(call: RouteCall<unknown, unknown, unknown>): Promise<RouteAnswer>;
}

/** Keeps the types of the parts together. */
export function route<
  Params extends z.ZodObject = z.ZodObject<Record<never, never>>,
  Query extends z.ZodObject = z.ZodObject<Record<never, never>>,
  Body extends z.ZodType = z.ZodUndefined,
>(
  spec: RouteSpec<Params, Query, Body>,
  handle: (call: RouteCall<z.output<Params>, z.output<Query>, z.output<Body>>) => Promise<RouteAnswer>,
): Route {
  return { ...spec, handle: handle as Route["handle"] };
}
