import { z } from "zod";
import { nameFault } from "../../declarations/terms/names.ts";
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
  /** Its body is no JSON. The handler reads it itself. */
  readonly takesBytes?: OtherContent;
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

/* What several rooms of the contract share. */

const hexId = z.string().regex(/^[0-9a-f]{12}$/, "12 hexadecimal digits");
export const snapshotNamed = z
  .string()
  .min(1)
  .max(64)
  .describe("The id or the name of a snapshot, or the session whose last one it is");
export const runId = hexId.describe("The id of a run");
export const fleetId = hexId.describe("The id of a fleet");
export const approvalId = hexId.describe("The id of a question");
export const grantId = hexId;
export const changesetId = z
  .string()
  .regex(/^[0-9a-f]{12}(\.\d{1,6})?$/, "the id of a run, and a number for a later one of the same session")
  .describe("The id of a changeset");
export const digest = z
  .string()
  .regex(/^[0-9a-f]{64}$/, "64 hexadecimal digits")
  .describe("SHA-256 of what was shown");
export const projectName = z
  .string()
  .min(1)
  .max(80)
  .regex(/^[\w.-]+$/)
  .describe("A name of /v1/projects");
export const workerName = z
  .string()
  .superRefine((name, context) => {
    const fault = nameFault(name);
    if (fault !== null) context.addIssue({ code: "custom", message: fault });
  })
  .describe("The name of a worker");
export const policyName = workerName.describe("A policy in place of the project's; needs the role admin");
export const time = z.iso.datetime().describe("ISO 8601, UTC");

/** A number in a query. */
export const count = (least: number, most: number) =>
  z
    .string()
    .regex(/^\d{1,15}$/, "a whole number")
    .transform(Number)
    .refine((number) => number >= least && number <= most, `from ${least} to ${most}`)
    .meta({ type: "integer", minimum: least, maximum: most, pattern: undefined });

export const flag = z.enum(["true", "false"]).transform((text) => text === "true");

/** Of lists that have no pages. */
export const more = z
  .boolean()
  .describe("Whether there are more, which this list leaves out: ask with a filter, or a larger limit");

export const inProject = { project: projectName.optional().describe("Absent: the only one, or for lists all") };

/** Its further members depend on its code. */
export const violation = answerInPart({ code: z.string(), message: z.string() }).meta({ id: "Violation" });

/** The body of every error: `{"error": …}`. */
export const fault = z.object({
  error: z
    .object({
      code: z.string().describe("docs/troubleshooting.md has all"),
      message: z.string(),
      problems: z.array(answerInPart({ message: z.string() }).meta({ id: "Problem" })).optional(),
      violations: z.array(violation).optional(),
    })
    .meta({ id: "FaultBody" }),
});

export const runError = answer({ code: z.string(), message: z.string() }).meta({ id: "RunError" }).nullable();

export const counts = z.record(z.string(), z.int());

export const changeset = answer({ id: changesetId.nullable(), counts })
  .meta({ id: "ReportedChangeset" })
  .nullable()
  .describe("What it wrote in staged mounts; null if nothing");

/** What a change does, and to what. */
export const changedPath = {
  path: z.string(),
  kind: z.enum(["create", "modify", "delete"]),
  type: z.enum(["file", "directory", "link"]),
};

/** The outcome of one change when a run or a session ended. */
export const settledChange = answer({
  ...changedPath,
  bytes: z.int().nullable().describe("Of a file that was written"),
  outcome: z.string(),
  reason: z.string().nullable(),
}).meta({ id: "SettledChange" });

/** `id` of the events that the log itself adds. */
export const ofLog = [
  z.object({ type: z.literal("interrupted") }).describe("The service was killed"),
  z.object({ type: z.literal("left_out"), maxBytes: z.int() }).describe("The log is full"),
  z.object({ type: z.literal("broken") }).describe("A line of the log cannot be read"),
] as const;
