import { z } from "zod";
import { ROLES } from "../../state/service/tokens.ts";
import { knownMachine, whyNone } from "./fleets.ts";
import {
  answer,
  answerInPart,
  count,
  fleetId,
  inProject,
  operation,
  projectName,
  runId,
  type Shown,
  time,
  violation,
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

const checked = answer({
  ok: z.boolean().describe("Whether every call path would run"),
  problems: z.array(z.string()).describe("Mistakes in files. If there are any, no path is checked"),
  failing: z.array(
    answer({
      path: z.array(z.string()).describe("From the worker that is run to the one that would not run"),
      outcome: z.enum(["refused", "denied"]),
      violations: z.array(violation),
      message: z.string(),
    }).meta({ id: "FailingPath" }),
  ),
  warnings: z.array(z.string()),
  workers: z.int(),
  paths: z.int().describe("Call paths that were checked"),
  cut: z.boolean().describe("Whether there are more paths than were checked"),
  inherits: z.record(z.string(), z.array(z.string())).describe("Of policies that extend others: these"),
}).meta({ id: "CheckReport" });

const image = answer({
  name: z.string(),
  kind: z.string(),
  state: z.enum(["present", "stale", "missing"]),
  tag: z.string().nullable(),
  id: z.string().nullable(),
  sizeBytes: z.number().nullable(),
  usedBy: z.array(z.string()).describe("Workers"),
}).meta({ id: "ListedImage" });

export const projectOperations = {
  "projects.list": operation("projects.list", {
    summary: "List the projects of the service.",
    output: z.object({ projects: z.array(project) }).meta({ id: "ProjectList" }),
  }),
  "projects.check": operation("projects.check", {
    summary: "Check every call path of a project, and its files, as `corral check` does. Runs nothing.",
    params: z.strictObject({ project: projectName }),
    output: checked,
    faults: [404],
  }),
  "projects.images": operation("projects.images", {
    summary: "List the images of Corral and of a project's workers, and whether each is there and up to date.",
    params: z.strictObject({ project: projectName }),
    output: z
      .object({
        images: z.array(image),
        problems: z.array(z.string()).describe("Mistakes in the project's files: only Corral's own images are listed"),
      })
      .meta({ id: "ImageList" }),
    faults: [404, 503],
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

const MAX_PAGE = 1000;

/** Its further members depend on its type. */
const record = answerInPart({
  seq: z.int(),
  at: time,
  type: z.string(),
  run: z.string().optional(),
  root: z.string().optional(),
  worker: z.string().optional(),
  ok: z.boolean().optional().describe("Of a tool that was used"),
}).meta({ id: "AuditRecord" });

const finding = answer({
  what: z.string(),
  state: z.enum(["ok", "warning", "missing"]),
  detail: z.string(),
}).meta({ id: "Finding" });

/** A machine in a list. */
const machine = answer({
  ...knownMachine,
  joinedAt: time,
  running: z.int().describe("Items that it runs, those of projects that the service does not have included"),
  fleets: z.array(
    answer({ fleet: fleetId, project: projectName, running: z.int(), why: whyNone }).meta({ id: "MachineFleet" }),
  ),
}).meta({ id: "QueueMachine" });

const cell = answer({
  id: z.string(),
  run: z.string(),
  root: z.string(),
  parent: z.string().nullable(),
  worker: z.string(),
  driver: z.string(),
  state: z.string(),
  createdAt: time,
  owner: answer({ pid: z.int() }),
  ownerAlive: z.boolean(),
  cpuMs: z.number().nullable(),
  memoryBytes: z.number().nullable(),
  memoryBytesPeak: z.number().nullable(),
}).meta({ id: "Cell" });

const storedKind = answer({
  name: z.string(),
  unit: z.string(),
  one: z.string(),
  rule: z.string().describe("What `corral gc` removes of it, and what removes the rest"),
  measured: answer({ bytes: z.number(), count: z.int(), complete: z.boolean() }).nullable(),
  trouble: z.string().nullable().describe("Why it was not measured"),
}).meta({ id: "StoredKind" });

export const hostOperations = {
  "host.health": operation("host.health", {
    summary: "Say that the service answers. Needs no token.",
    output: z.object({ status: z.enum(["ok", "stopping"]) }),
  }),
  "host.caller": operation("host.caller", {
    summary: "Say which token asks, what it may do, and which version answers.",
    output: z.object({ name: z.string(), roles: z.array(z.enum(ROLES)), version: z.string() }).meta({ id: "Caller" }),
  }),
  "host.machine": operation("host.machine", {
    summary: "Examine this machine as `corral doctor` does. Only the role admin is shown paths of the host.",
    output: z.object({ ok: z.boolean(), findings: z.array(finding) }).meta({ id: "Machine" }),
  }),
  "host.machines": operation("host.machines", {
    summary: "List the machines that take part in the queues of the projects, and what each runs.",
    query: z.strictObject({ ...inProject, limit: count(1, 1000).optional() }),
    output: z
      .object({
        machines: z.array(machine),
        more: z
          .boolean()
          .describe("Whether there are more: a list has at most 1000 machines, and there is no second part of it"),
        hasQueue: z.boolean().describe("Whether one of the projects has a queue that machines can reach"),
      })
      .meta({ id: "MachineList" }),
    faults: [404, 503],
  }),
  "host.cells": operation("host.cells", {
    summary: "List the containers of this machine's state directory, those of projects that are not served included.",
    output: z.object({ cells: z.array(cell) }).meta({ id: "CellList" }),
    faults: [503],
  }),
  "host.stored": operation("host.stored", {
    summary: "Measure what Corral keeps on this machine, by kind, as `corral du` does.",
    output: z.object({ kinds: z.array(storedKind) }).meta({ id: "Stored" }),
  }),
  "host.metrics": operation("host.metrics", {
    summary: "Read the metrics, in the text format of Prometheus.",
    bytes: { contentType: "text/plain", description: "Metrics of this service since its start" },
  }),
  "host.openapi": operation("host.openapi", {
    summary: "Describe the service, as OpenAPI 3.1.",
    output: answerInPart({ openapi: z.string(), paths: z.record(z.string(), z.unknown()) }),
  }),
  "audit.page": operation("audit.page", {
    summary:
      "Read the audit trail of a project, the newest records first. `cursor` is `next` of the page before; with a filter, a page may have few records although there are more.",
    query: z.strictObject({
      project: projectName.optional(),
      run: runId.optional().describe("Of this run, or of the tree below it"),
      type: z.string().max(60).optional(),
      since: time.optional(),
      cursor: count(1, Number.MAX_SAFE_INTEGER).optional(),
      limit: count(1, MAX_PAGE).optional(),
    }),
    output: z
      .object({ records: z.array(record), foreign: z.int(), next: z.int().nullable() })
      .meta({ id: "AuditPage" }),
    faults: [404],
  }),
} as const;
