import { z } from "zod";
import { type OperationName, ROUTES, type RouteRow } from "./routes.ts";

/** A body in another form than JSON, for the description. */
export interface OtherContent {
  readonly contentType: string;
  readonly description: string;
}

/** The status of an answer that is an error, beside those that every operation has. */
type FaultStatus = 400 | 401 | 403 | 404 | 409 | 413 | 415 | 422 | 500 | 503;

/** What an operation takes and gives. It answers with `output`, or with `events`, or with `bytes`. */
export interface Promised {
  /** Begins with a verb. */
  readonly summary: string;
  readonly params?: z.ZodObject;
  readonly query?: z.ZodObject;
  readonly body?: z.ZodType;
  /** The same JSON as the part `request` of a form, with files. The handler reads it itself. */
  readonly takesForm?: boolean;
  readonly maxBodyBytes?: number;
  /** It waits for something, or its answer is a stream: a token has half of its connections for these. */
  readonly isLasting?: boolean;
  /** Absent: 200. */
  readonly status?: 200 | 201 | 202;
  readonly output?: z.ZodType;
  /** One event of a stream. */
  readonly events?: z.ZodType;
  readonly bytes?: OtherContent;
  readonly faults?: readonly FaultStatus[];
}

/** An operation of the table, whatever it takes and gives. */
export interface Offered extends Promised {
  readonly name: OperationName;
  readonly method: RouteRow[0];
  /** `/v1/runs/{run}` */
  readonly path: string;
  readonly role: RouteRow[2];
}

/** One operation, with the types of what it takes and gives. */
export function operation<const P extends Promised>(
  name: OperationName,
  promised: P,
): P & Omit<Offered, keyof Promised> {
  const [method, path, role] = ROUTES[name];
  return { ...promised, name, method, path, role };
}

/**
 * An object of an answer. Clients have to accept members that a later Corral adds, so its schema is open; but today's Corral answers with these
 * alone, so its type is not, and tests refuse any other.
 */
export function answer<Members extends z.ZodRawShape>(members: Members): z.ZodObject<Members> {
  return z.looseObject(members) as unknown as z.ZodObject<Members>;
}

/** The same for what has more members than these, on which no client should rely. */
export function answerInPart<Members extends z.ZodRawShape>(members: Members): z.ZodObject<Members> {
  return answer(members).meta({ "x-corral-in-part": true });
}

/** What a schema describes, for those who only read it. */
export type Shown<Value> = Value extends readonly (infer Entry)[]
  ? readonly Shown<Entry>[]
  : Value extends object
    ? { readonly [Member in keyof Value]: Shown<Value[Member]> }
    : Value;
