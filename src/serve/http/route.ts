import type { IncomingMessage } from "node:http";
import type { Offered } from "../../operations/contract/operation.ts";
import type { OperationName } from "../../operations/contract/routes.ts";
import type { Answering, AnswerOf, Given } from "../../operations/contract/table.ts";
import type { Role } from "../../state/service/roles.ts";
import type { Token } from "../../state/service/tokens.ts";

/** Who asks. */
export interface ServiceCaller {
  /** For the audit trail and the log: the token's name, or `socket`. */
  readonly name: string;
  readonly roles: readonly Role[];
  /** Null for the Unix socket. */
  readonly token: Token["id"] | null;
}

/** A request of an operation, checked. */
export interface RouteCall<Params, Query, Body> {
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
}

/** Bytes, as the contract describes them. */
export interface Sent {
  readonly pieces: AsyncIterable<Uint8Array | string>;
  readonly headers?: Readonly<Record<string, string>>;
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
