import type { z } from "zod";
import { approvalOperations, changesetOperations } from "./approvals.ts";
import { ciOperations } from "./ci.ts";
import { conversionOperations } from "./conversions.ts";
import { fleetOperations } from "./fleets.ts";
import type { Offered, Shown } from "./operation.ts";
import { hostOperations, projectOperations } from "./projects.ts";
import type { OperationName, ROUTES } from "./routes.ts";
import { runOperations } from "./runs.ts";
import { portOperations, sessionOperations, snapshotOperations } from "./sessions.ts";

/** What each operation takes and gives. A row of `ROUTES` without an entry here, or the other way around, does not compile. */
export const CONTRACT = {
  ...hostOperations,
  ...projectOperations,
  ...runOperations,
  ...fleetOperations,
  ...conversionOperations,
  ...ciOperations,
  ...changesetOperations,
  ...approvalOperations,
  ...sessionOperations,
  ...portOperations,
  ...snapshotOperations,
} as const satisfies Readonly<Record<OperationName, Offered>>;

type Operations = typeof CONTRACT;

type Schema<Name extends OperationName, Part extends keyof Offered> = Operations[Name] extends {
  readonly [P in Part]: infer S extends z.ZodType;
}
  ? S
  : z.ZodUndefined;

/** What a handler is given, checked. */
export type Given<Name extends OperationName, Part extends "params" | "query" | "body"> = z.output<Schema<Name, Part>>;

/** What the operation answers with, as JSON. */
export type AnswerOf<Name extends OperationName> = Shown<z.output<Schema<Name, "output">>>;

/** One event of the stream that it answers with. */
export type EventOf<Name extends OperationName> = Shown<z.output<Schema<Name, "events">>>;

/** The operations that answer with JSON, with events, or with bytes. */
export type Answering<Kind extends "output" | "events" | "bytes"> = {
  [Name in OperationName]: Operations[Name] extends { readonly [K in Kind]: unknown } ? Name : never;
}[OperationName];

/** Numbers and booleans of a query may be given as what they are. */
type AskedParts<S extends z.ZodType> = {
  readonly [Member in keyof z.input<S>]: z.input<S>[Member] | QueryOutput<S, Member>;
};
type QueryOutput<S extends z.ZodType, Member> = Member extends keyof z.output<S> ? z.output<S>[Member] : never;

type Members<S extends z.ZodType> = S extends z.ZodUndefined ? unknown : AskedParts<S>;
type Body<Name extends OperationName> = (typeof ROUTES)[Name] extends readonly [
  unknown,
  unknown,
  unknown,
  infer Member extends string,
]
  ? Member extends "bytes"
    ? unknown
    : { readonly [M in Member]: z.input<Schema<Name, "body">> }
  : Members<Schema<Name, "body">>;

/** What a client asks with: what is in the path, in the query and in the body, as one object. */
export type AskOf<Name extends OperationName> = Members<Schema<Name, "params">> &
  Members<Schema<Name, "query">> &
  Body<Name>;
