import { z } from "zod";
import { RUN_STATUSES } from "../../run/model/result.ts";
import {
  answer,
  changeset,
  count,
  flag,
  inProject,
  more,
  ofLog,
  operation,
  policyName,
  projectName,
  runError,
  runId,
  type Shown,
  settledChange,
  time,
  violation,
  workerName,
} from "./operation.ts";

const MAX_INPUT_BYTES = 8 * 1024 ** 2;
const MAX_LISTED = 500;
export const MAX_WAIT_S = 60;

/* Known values for those who generate a client; a later Corral may have more. */
export const resultStatus = z.union([z.enum(RUN_STATUSES), z.string()]);
const runStatus = z.union([z.enum([...RUN_STATUSES, "running", "interrupted", "closed"]), z.string()]);

const streamSize = z.object({ bytes: z.int(), keptBytes: z.int() }).meta({ id: "StreamSize" });
const held = answer({
  mounts: z.array(z.object({ path: z.string(), mode: z.enum(["ro", "rw"]) })),
  network: z.union([z.literal("open"), z.array(z.string())]).nullable(),
  secrets: z.array(z.string()),
  tools: z.array(z.string()).nullable(),
})
  .meta({ id: "Held" })
  .nullable()
  .describe("What it could see and reach, in the paths of its container; null before it started");
const usage = { cpuMs: z.number().nullable(), memoryBytesPeak: z.number().nullable() };

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
  usage: z.object(usage).meta({ id: "Usage" }).nullable(),
  truncated: z.boolean().describe("It printed more than its limit"),
  changeset,
  network: z
    .record(z.string(), z.unknown())
    .nullable()
    .describe("What it did on its network, as in its result; null without an allow list"),
  agent: z.record(z.string(), z.unknown()).nullable().describe("What an agent used, as in its result"),
};

const service = z.string().nullable().describe("The service of its caller that it is; null: it was called");
const called = { run: runId, service, ...recorded, attachments: z.array(z.string()) };
/** A run that another one called, or a service that ran beside it. */
export interface CalledRun extends Shown<z.output<z.ZodObject<typeof called>>> {
  readonly calls: readonly CalledRun[];
}
const calledRun = answer({
  ...called,
  calls: z.array(z.lazy((): z.ZodType<CalledRun> => calledRun as unknown as z.ZodType<CalledRun>)),
}).meta({ id: "CalledRun" });

/** A run of the history, without the folder of its project and the process. */
const run = answer({
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
  stdout: streamSize,
  stderr: streamSize,
  leftOut: z.int().describe("Calls that are not in the record"),
  callCount: z.int().describe("Calls of the whole tree that are in the record"),
  hasEvents: z.boolean().describe("The service has its events, and its result if it has ended: it started the run"),
  calls: z.array(calledRun),
}).meta({ id: "Run" });

const denied = answer({ to: z.string(), count: z.int(), reason: z.string(), detail: z.string() })
  .meta({ id: "DeniedTraffic" })
  .describe("What did not leave the container");
const network = answer({
  allowed: z.array(
    answer({ to: z.string(), connections: z.int(), requests: z.int(), up: z.int(), down: z.int() })
      .meta({ id: "AllowedTraffic" })
      .describe("Up and down: bytes to the host and from it"),
  ),
  denied: z.array(denied),
  unlisted: z.int().describe("Further hosts that are in none of the lists"),
}).meta({ id: "NetworkReport" });
const agent = answer({
  model: z.string(),
  steps: z.int(),
  tokens: z.object({ input: z.number(), output: z.number(), estimated: z.boolean() }),
  costUsd: z.number().nullable().describe("Null: the project gives no price for some of it"),
  continues: runId.optional(),
}).meta({ id: "AgentReport" });
const lines = z.record(z.string(), z.string());
const enforcement = answer({
  driver: z.string(),
  requested: lines,
  actual: lines,
  socketMemory: z.string().optional(),
  kernel: z.string().optional(),
})
  .meta({ id: "Enforcement" })
  .nullable()
  .describe("What its plan requested, and what its container reported before it began");

const ended = {
  run: runId,
  worker: z.string(),
  status: resultStatus,
  exitCode: z.int().nullable(),
  signal: z.string().nullable(),
  output: z.unknown(),
  stdout: z.string(),
  stderr: z.string(),
  truncated: z.boolean(),
  violations: z.array(violation),
  changes: z.array(settledChange),
  changeset,
  durationMs: z.number(),
  usage: answer({ ...usage, outOfMemory: z.boolean().nullable() }).meta({ id: "ResultUsage" }),
  network: network.optional(),
  agent: agent.optional(),
  enforcement,
  error: runError,
};
/** The result of a run, and of those that it called. */
export interface ShownResult extends Shown<z.output<z.ZodObject<typeof ended>>> {
  readonly calls: readonly ShownResult[];
}
const result = answer({
  ...ended,
  calls: z.array(z.lazy((): z.ZodType<ShownResult> => result as unknown as z.ZodType<ShownResult>)),
}).meta({ id: "RunResult" });

const inRun = z.strictObject({ run: runId });

/** The body of a request that starts a run. */
const order = z
  .strictObject({
    project: projectName.optional(),
    worker: workerName,
    input: z.unknown().optional().describe("JSON for its standard input, or for an agent to read"),
    arguments: z.array(z.string().max(100_000)).max(1000).default([]),
    continues: runId.optional().describe("The run of an agent whose conversation is continued"),
    policy: policyName.optional(),
  })
  .meta({ id: "RunOrder" });

const about = { at: time, run: z.string(), parent: z.string().nullable(), worker: z.string() };
const event = z.discriminatedUnion("type", [
  z.object({ type: z.literal("requested"), ...about, attachments: z.array(z.string()) }),
  z.object({
    type: z.literal("started"),
    ...about,
    policy: z.string(),
    image: z.object({ name: z.string(), id: z.string() }),
  }),
  z.object({
    type: z.literal("agent_started"),
    ...about,
    model: z.string(),
    tools: z.array(z.string()),
    policy: z.string(),
  }),
  z.object({
    type: z.literal("agent"),
    ...about,
    act: z.discriminatedUnion("kind", [
      z.object({ kind: z.literal("step"), step: z.int() }),
      z.object({ kind: z.literal("text"), piece: z.string() }),
      z.object({ kind: z.literal("retry"), reason: z.string(), waitMs: z.number() }),
      z.object({ kind: z.literal("call"), id: z.string(), tool: z.string(), input: z.unknown() }),
      z.object({ kind: z.literal("called"), id: z.string(), tool: z.string(), code: z.string().nullable() }),
    ]),
  }),
  z.object({ type: z.literal("output"), ...about, stream: z.enum(["stdout", "stderr"]), text: z.string() }),
  z.object({ type: z.literal("network_denied"), ...about, denied }),
  z.object({ type: z.literal("network_used"), ...about, report: network }),
  z.object({
    type: z.literal("image"),
    ...about,
    progress: z.object({ image: z.string(), step: z.string().optional(), text: z.string() }),
  }),
  z.object({ type: z.literal("trouble"), ...about, detail: z.string() }),
  z.object({
    type: z.literal("ended"),
    ...about,
    status: resultStatus,
    exitCode: z.int().nullable(),
    signal: z.string().nullable(),
    error: runError,
    durationMs: z.number(),
    changeset,
  }),
  z.object({ type: z.literal("failed"), at: time, run: z.string() }).describe("Corral has a bug, or the host failed"),
  ...ofLog,
]);

export const runOperations = {
  "runs.start": operation("runs.start", {
    summary: "Start a run. Attachments come as the files of a form, whose part `request` is the JSON.",
    body: order,
    maxBodyBytes: MAX_INPUT_BYTES,
    takesForm: true,
    status: 202,
    output: z.object({ run: runId, project: projectName }).meta({ id: "StartedRun" }),
    faults: [404, 409, 413, 415, 422, 503],
  }),
  "runs.list": operation("runs.list", {
    summary: "List runs, the newest first, also those that were not started by the service.",
    query: z.strictObject({
      ...inProject,
      worker: workerName.optional(),
      status: z.string().max(40).optional(),
      limit: count(1, MAX_LISTED).optional(),
      calls: flag.default(true).describe("false: without the calls of each run, which may be many"),
    }),
    output: z.object({ runs: z.array(run), unreadable: z.int(), more }).meta({ id: "RunList" }),
  }),
  "runs.show": operation("runs.show", {
    summary: "Show a run and the runs that it called.",
    params: inRun,
    output: run,
    faults: [404],
  }),
  "runs.result": operation("runs.result", {
    summary: "Show the result of a run that the service has started, and wait for it for `wait` seconds.",
    params: inRun,
    query: z.strictObject({ wait: count(0, MAX_WAIT_S).optional() }),
    isLasting: true,
    output: result,
    faults: [404, 409],
  }),
  "runs.stop": operation("runs.stop", {
    summary: "Stop a run. It ends as cancelled, and what it wrote waits.",
    params: inRun,
    output: z
      .object({ run: runId, outcome: z.enum(["ended", "stopped", "asked"]), status: z.string() })
      .meta({ id: "StoppedRun" }),
    faults: [404],
  }),
  "runs.events": operation("runs.events", {
    summary: "Follow the events of a run that the service has started, and of all runs below it.",
    params: inRun,
    isLasting: true,
    events: event,
    faults: [404, 409],
  }),
  "runs.output": operation("runs.output", {
    summary: "Send what a run printed, as bytes; with `follow` until it has ended.",
    params: inRun,
    query: z.strictObject({
      stream: z.enum(["stdout", "stderr"]).default("stdout"),
      service: z
        .string()
        .max(63)
        .optional()
        .describe("What this service of it printed; absent: what the run itself did"),
      lines: count(0, 1_000_000).optional(),
      follow: flag.default(false),
    }),
    isLasting: true,
    bytes: { contentType: "application/octet-stream", description: "The bytes of one stream" },
    faults: [404],
  }),
} as const;
