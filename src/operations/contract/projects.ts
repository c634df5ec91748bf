import { z } from "zod";
import {
  answer,
  answerInPart,
  changeset,
  operation,
  policyName,
  projectName,
  runError,
  runId,
  type Shown,
  settledChange,
  time,
  workerName,
} from "./operation.ts";

/* What `corral explain` answers with. It has more members: those that are named here stay. */

const mount = answerInPart({
  path: z.string(),
  mode: z.enum(["ro", "rw"]),
  suffixes: z.array(z.string()).optional().describe("Only such files; absent: all"),
  maxFileBytes: z.number().optional(),
  approval: answerInPart({ write: z.string(), delete: z.string() }).optional(),
  stage: z.literal(true).optional().describe("What is written waits as a changeset"),
  discard: z.literal(true).optional().describe("What is written is dropped"),
}).meta({ id: "Mount" });

const network = z
  .union([
    z.boolean(),
    answerInPart({
      allow: z.array(answerInPart({ to: z.string(), methods: z.array(z.string()).optional() })),
    }),
  ])
  .describe("true: every host; false: none");

const narrowing = answerInPart({
  by: z.string(),
  kind: z.string(),
  path: z.string().optional(),
  limit: z.string().optional(),
  from: z.unknown().optional(),
  to: z.unknown().optional(),
})
  .meta({ id: "Narrowing" })
  .describe("What was taken away, and by whom");

const sandbox = answerInPart({
  mounts: z.array(mount),
  withheld: z.array(mount).optional().describe("Shown only after an approval"),
  network,
  secrets: z.array(z.string()).optional(),
  limits: z.record(z.string(), z.number()),
  policy: answerInPart({ name: z.string(), description: z.string().optional() }),
}).meta({ id: "ExplainedSandbox" });

const explained = {
  worker: z.string(),
  path: z.array(z.string()).describe("From the worker that is run to this one"),
  sandbox: sandbox.nullable(),
  narrowings: z.array(narrowing),
  plan: answerInPart({ image: answerInPart({ name: z.string() }) }).nullable(),
  refused: z
    .array(answerInPart({ code: z.string(), message: z.string() }))
    .nullable()
    .describe("Null: it would run"),
  agent: answerInPart({ model: z.string(), tools: z.array(z.string()) }).nullable(),
  notes: z.array(z.string()),
};
/** A run as it would be, and those that it may call. */
export interface ShownRun extends Shown<z.output<z.ZodObject<typeof explained>>> {
  readonly calls: readonly ShownRun[];
}
const explainedRun = answerInPart({
  ...explained,
  calls: z.array(z.lazy((): z.ZodType<ShownRun> => explainedRun as unknown as z.ZodType<ShownRun>)),
}).meta({ id: "ExplainedRun" });

const explanation = answerInPart({ worker: z.string(), tree: explainedRun, notes: z.array(z.string()) }).meta({
  id: "Explanation",
});

const project = answer({ name: projectName }).meta({ id: "Project" });
const worker = answer({
  name: z.string(),
  description: z.string(),
  image: z.string(),
  model: z.string().nullable(),
  policy: z.string().nullable(),
  calls: z.array(z.string()),
}).meta({ id: "Worker" });

export const projectOperations = {
  "projects.list": operation("projects.list", {
    summary: "List the projects of the service.",
    output: z.object({ projects: z.array(project) }).meta({ id: "ProjectList" }),
  }),
  "workers.list": operation("workers.list", {
    summary: "List the workers of a project, and every mistake in its files.",
    params: z.strictObject({ project: projectName }),
    output: z.object({ workers: z.array(worker), problems: z.array(z.string()) }).meta({ id: "WorkerList" }),
  }),
  "workers.explain": operation("workers.explain", {
    summary: "Explain what a worker would get, and what took away the rest. Runs nothing.",
    params: z.strictObject({ project: projectName, worker: workerName }),
    output: explanation,
    faults: [404, 422],
  }),
} as const;

const MAX_INPUT_BYTES = 8 * 1024 ** 2;

const session = answer({
  id: runId,
  project: projectName,
  worker: z.string(),
  tools: z.array(z.string()),
  openedAt: time,
}).meta({ id: "Session" });
const tool = answer({
  name: z.string(),
  title: z.string(),
  description: z.string(),
  inputSchema: z.record(z.string(), z.unknown()).describe("JSON Schema"),
  readOnly: z.boolean(),
}).meta({ id: "SessionTool" });
const toolResult = z.union([
  answer({
    ok: z.literal(true),
    text: z.string(),
    data: z.record(z.string(), z.unknown()),
    image: z.object({ mimeType: z.string(), base64: z.string() }).optional(),
  }).meta({ id: "ToolAnswer" }),
  answer({
    ok: z.literal(false),
    code: z.string(),
    message: z.string(),
    data: z.record(z.string(), z.unknown()),
  }).meta({ id: "ToolRefusal" }),
]);
const settled = answer({ id: runId, changes: z.array(settledChange), changeset, error: runError }).meta({
  id: "SettledSession",
});
const inSession = z.strictObject({ session: runId });

export const sessionOperations = {
  "sessions.open": operation("sessions.open", {
    summary: "Open the sandbox of a worker, to use its tools. It ends after 30 minutes without a call.",
    body: z.strictObject({ project: projectName.optional(), worker: workerName, policy: policyName.optional() }),
    status: 201,
    output: session,
    faults: [404, 415, 422, 503],
  }),
  "sessions.list": operation("sessions.list", {
    summary: "List the open sessions of the service.",
    output: z.object({ sessions: z.array(session) }),
  }),
  "sessions.show": operation("sessions.show", {
    summary: "Show an open session.",
    params: inSession,
    output: session,
    faults: [404],
  }),
  "sessions.tools": operation("sessions.tools", {
    summary: "Describe the tools of a session, with the schema of each input, to give them to a model.",
    params: inSession,
    output: z.object({ tools: z.array(tool) }),
    faults: [404],
  }),
  "sessions.use": operation("sessions.use", {
    summary: "Use a tool in a session. A refusal is an answer too: `ok` is false then.",
    params: z.strictObject({
      session: runId,
      tool: z
        .string()
        .max(64)
        .regex(/^[a-z_]+$/),
    }),
    body: z.record(z.string(), z.unknown()).describe("The tool's input"),
    maxBodyBytes: MAX_INPUT_BYTES,
    output: toolResult,
    faults: [404, 413, 415, 503],
  }),
  "sessions.close": operation("sessions.close", {
    summary: "End a session, and apply the changes for which there is consent.",
    params: inSession,
    output: settled,
    faults: [404],
  }),
} as const;
