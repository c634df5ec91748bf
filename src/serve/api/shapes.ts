import { z } from "zod";
import { nameFault } from "../../declarations/terms/names.ts";
import type { RunStatus } from "../../run/model/result.ts";

/* Forms that several routes share. Those of answers are open: a later Corral may add fields. */

export const runId = z
  .string()
  .regex(/^[0-9a-f]{12}$/, "12 hexadecimal digits")
  .describe("The id of a run");
export const fleetId = z
  .string()
  .regex(/^[0-9a-f]{12}$/, "12 hexadecimal digits")
  .describe("The id of a fleet");
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

const violation = z.looseObject({ code: z.string(), message: z.string() }).meta({ id: "Violation" });

export const fault = z.object({
  error: z
    .object({
      code: z.string().describe("docs/troubleshooting.md has all"),
      message: z.string(),
      problems: z.array(z.looseObject({ message: z.string() }).meta({ id: "Problem" })).optional(),
      violations: z.array(violation).optional(),
    })
    .meta({ id: "FaultBody" }),
});

export const runError = z.looseObject({ code: z.string(), message: z.string() }).meta({ id: "RunError" }).nullable();

export const changeset = z
  .looseObject({ id: changesetId.nullable(), counts: z.record(z.string(), z.int()) })
  .meta({ id: "ReportedChangeset" })
  .nullable()
  .describe("What it wrote in staged mounts; null if nothing");

/** The outcome of one change when a run or a session ended. */
export const settledChange = z
  .looseObject({ path: z.string(), outcome: z.string(), reason: z.string().nullable().optional() })
  .meta({ id: "SettledChange" });

const streams = z.object({ bytes: z.int(), keptBytes: z.int() }).meta({ id: "StreamSize" });

const STATUSES = [
  "succeeded",
  "failed",
  "signaled",
  "oom_killed",
  "refused",
  "denied",
  "lost",
  "timed_out",
  "cancelled",
  "output_limit",
  "disk_limit",
] as const satisfies readonly RunStatus[];

/* Known values for those who generate a client; a later Corral may have more. */
const resultStatus = z.union([z.enum(STATUSES), z.string()]);
const runStatus = z.union([z.enum([...STATUSES, "running", "interrupted", "closed"]), z.string()]);

const held = z
  .looseObject({
    mounts: z.array(z.object({ path: z.string(), mode: z.enum(["ro", "rw"]) })),
    network: z.union([z.literal("open"), z.array(z.string())]).nullable(),
    secrets: z.array(z.string()),
    tools: z.array(z.string()).nullable(),
  })
  .meta({ id: "Held" })
  .nullable()
  .describe("What it could see and reach, in the paths of its container; null before it started");

/** What is recorded of a run, whether it was called or not. */
const recorded = {
  worker: z.string(),
  status: runStatus.describe("That of its result; running, interrupted or closed"),
  queuedAt: time,
  startedAt: time.nullable(),
  endedAt: time.nullable(),
  exitCode: z.int().nullable(),
  signal: z.string().nullable(),
  error: runError,
  durationMs: z.number().nullable(),
  policy: z.string().nullable(),
  image: z.string().nullable(),
  model: z.string().nullable().describe("Of an agent"),
  limits: z.record(z.string(), z.number()).nullable(),
  held,
  usage: z
    .object({ cpuMs: z.number().nullable(), memoryBytesPeak: z.number().nullable() })
    .meta({ id: "Usage" })
    .nullable(),
  truncated: z.boolean().describe("It printed more than its limit"),
  changeset,
};

const calledRun = z
  .looseObject({
    run: runId,
    ...recorded,
    attachments: z.array(z.string()),
    calls: z.array(z.lazy((): z.ZodType => calledRun)),
  })
  .meta({ id: "CalledRun" });

/** A run of the history, without the folder of its project and the process. */
export const run = z
  .looseObject({
    id: runId,
    project: projectName,
    kind: z.enum(["run", "session"]),
    ...recorded,
    input: z.object({ bytes: z.int(), sha256: z.string() }).nullable(),
    arguments: z.array(z.string()),
    continues: runId.nullable(),
    attachments: z.array(
      z.object({ name: z.string(), bytes: z.int().nullable(), sha256: z.string().nullable() }).meta({ id: "Attached" }),
    ),
    stdout: streams,
    stderr: streams,
    leftOut: z.int().describe("Calls that are not in the record"),
    callCount: z.int().describe("Calls of the whole tree that are in the record"),
    calls: z.array(calledRun),
  })
  .meta({ id: "Run" });

export const result = z
  .looseObject({
    run: runId,
    worker: z.string(),
    status: resultStatus,
    exitCode: z.int().nullable(),
    output: z.unknown(),
    stdout: z.string(),
    stderr: z.string(),
    truncated: z.boolean(),
    violations: z.array(violation),
    changes: z.array(settledChange),
    changeset,
    durationMs: z.number(),
    error: runError,
  })
  .meta({ id: "RunResult" });

export const EVENTS = {
  contentType: "text/event-stream",
  description:
    "Server-sent events; data is JSON with the fields type and at. Send the id of the last one as Last-Event-ID to continue; 204: all were sent",
};
