import { z } from "zod";
import { nameFault } from "../../declarations/terms/names.ts";
import { answer, answerInPart } from "./operation.ts";

/* What several rooms of the contract share. */

const hexId = z.string().regex(/^[0-9a-f]{12}$/, "12 hexadecimal digits");
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
    .regex(/^\d{1,9}$/, "a whole number")
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
