import { z } from "zod";
import {
  answer,
  changesetId,
  count,
  counts,
  flag,
  fleetId,
  inProject,
  more,
  ofLog,
  operation,
  policyName,
  projectName,
  runError,
  time,
  workerName,
} from "./operation.ts";

const MAX_ITEMS_BYTES = 64 * 1024 ** 2;
const MAX_PAGE = 1000;

/** From a request, paths come from items alone: these are judged as a stranger's, and a literal path of a template is not. */
const attach = z.string().max(4096).regex(/^\{/, "must begin with a field in braces, such as {path}");
const template = z.string().min(1).max(4096);

/** Which machines an order of a fleet asks for: as `machines` in corral.yaml. */
const machinesOrder = z
  .union([
    z.boolean(),
    z
      .strictObject({
        needs: z.array(workerName.describe("A label")).max(20).optional().describe("Labels that a machine must have"),
        priority: z.int().min(-100).max(100).optional().describe("Items of fleets with a higher one are claimed first"),
        weight: z.int().min(1).max(100).optional().describe("The share beside fleets of the same priority"),
      })
      .meta({ id: "MachineNeeds" }),
  ])
  .describe("Which other machines may run items (corral work): true for all of them, or their labels");

/** The body of a request that starts a fleet. */
const order = z
  .strictObject({
    project: projectName.optional(),
    fleet: workerName
      .optional()
      .describe("The name of a file in fleets/, which declares all; in place of worker and items"),
    worker: workerName.optional(),
    items: z
      .array(z.union([z.string(), z.record(z.string(), z.unknown())]))
      .max(1_000_000)
      .optional()
      .describe("One run for each: fields, or the path of a file below the project's folder"),
    over: z
      .string()
      .min(1)
      .max(4096)
      .refine((pattern) => !pattern.startsWith("/") && !pattern.split("/").includes(".."), {
        message: "must be a pattern below the project's folder",
      })
      .optional()
      .describe("In place of items: one run for each file below the project's folder that matches"),
    manifest: z
      .strictObject({
        text: z.string().describe("Its paths are below the project's folder"),
        format: z.enum(["jsonl", "csv", "paths"]).optional().describe("Absent: the suffix of the name says it"),
        name: z.string().min(1).max(4096).describe("For errors"),
      })
      .optional()
      .describe("In place of items: one run for each line"),
    template: z
      .strictObject({
        key: template.optional(),
        attach: z.array(attach).max(100).optional(),
        allowRead: z.array(template).max(100).optional(),
        allowWrite: z.array(template).max(100).optional(),
        input: z.unknown().optional().describe("JSON in which every text is a template"),
      })
      .default({}),
    concurrency: z
      .union([z.literal("auto"), z.int().min(0).max(1024)])
      .optional()
      .describe("Items that the service itself runs at once; 0 leaves all to machines"),
    reuse: z.enum(["fresh", "scrubbed"]).optional(),
    retries: z.int().min(0).max(100).optional(),
    maxFailures: z.int().min(0).max(1_000_000_000).nullable().optional(),
    timeoutMs: z.int().min(1).max(1_000_000_000).nullable().optional(),
    cache: z.boolean().optional(),
    allowEmpty: z.boolean().optional().describe("That there is no item is no error"),
    policy: policyName.optional(),
    machines: machinesOrder.optional(),
  })
  .meta({ id: "FleetOrder" });

/** What is shown of a machine everywhere. */
export const knownMachine = {
  id: z.string().describe("Differs for machines with the same name"),
  name: z.string().describe("The name that it was started with"),
  labels: z.array(z.string()),
  slots: z.int().describe("Items that it runs at the same time"),
  version: z.string(),
  seenAt: time.describe("When its lease was last renewed"),
  recentRate: z.number().nullable().describe("Items that it delivered per second in the last minute; null if none"),
};
export const whyNone = z
  .string()
  .nullable()
  .describe("Why it takes none of this fleet; null: it does, or has not checked yet");

/** A machine as a fleet has it. */
const fleetMachine = answer({
  ...knownMachine,
  running: z.int().describe("Items of this fleet that it runs"),
  runningInAll: z.int().describe("Items of all fleets that it runs"),
  why: whyNone,
}).meta({ id: "FleetMachine" });

const known = {
  id: fleetId,
  project: projectName,
  state: z.string().describe("loading, running, paused, interrupted, pending, done or cancelled"),
  createdAt: time,
  endedAt: time.nullable(),
  why: z.string().nullable(),
  counts: answer({
    total: z.int(),
    queued: z.int(),
    running: z.int(),
    done: z.int(),
    failed: z.int(),
    pending: z.int().describe("Their changes wait for a decision"),
  }).meta({ id: "FleetCounts" }),
  spec: answer({
    version: z.literal(1),
    worker: z.string(),
    source: z.string().describe("Where its items come from, for people"),
    policy: z.string().nullable(),
    concurrency: z.union([z.int(), z.literal("auto")]),
    reuse: z.string(),
    retries: z.int(),
    maxFailures: z.int().nullable(),
    timeoutMs: z.int().nullable(),
    cache: z.boolean(),
    machines: answer({ needs: z.array(z.string()), priority: z.int(), weight: z.int() })
      .nullable()
      .optional()
      .describe("Which other machines may run its items; null: none"),
  }).meta({ id: "FleetSpec" }),
};
const listedFleet = answer(known).meta({ id: "Fleet" });

const failureGroup = answer({
  count: z.int(),
  status: z.string(),
  code: z.string(),
  text: z.string().describe("The last words of one of them"),
  example: z.string().describe("The key of that one"),
}).meta({ id: "FailureGroup" });
const failures = z.array(failureGroup).describe("Failed items by their last words; the 20 largest groups");

const attempt = {
  attempt: z.int(),
  status: z.string(),
  run: z.string().nullable(),
  machine: z.string().optional().describe("That ran it; absent: the process that owned the fleet"),
  exitCode: z.int().nullable(),
  error: runError,
  stderrLine: z.string().nullable().describe("The last line of its standard error that is not empty"),
  startedAt: time.nullable(),
  endedAt: time,
  durationMs: z.number(),
};
const itemChangeset = answer({ id: changesetId.nullable(), counts });
const itemResult = answer({
  index: z.int(),
  key: z.string(),
  ...attempt,
  output: z.unknown(),
  fields: z.record(z.string(), z.unknown()).describe("Its own: those of its line, or `path`"),
  memoryBytesPeak: z.number().nullable(),
  changeset: itemChangeset.optional(),
}).meta({ id: "ItemResult" });

/** A fleet with the outcomes of its items. */
const shownFleet = answer({
  ...known,
  summary: z.array(answer({ status: z.string(), code: z.string().nullable(), count: z.int() })),
  failures,
  slowest: z.array(itemResult).describe("The ten that took longest"),
  lastFailures: z.array(itemResult).describe("The last ten that failed, the newest first"),
  recentRate: z.number().nullable().describe("Items per second, of late; null: it does not run, or none ended"),
  leftMs: z.number().nullable(),
  machines: z
    .array(fleetMachine)
    .describe("Those of the queue; empty if no other machine may run its items, or if it has ended"),
}).meta({ id: "ShownFleet" });

const onMachine = z
  .string()
  .nullable()
  .describe("The machine that runs it, or ran its last attempt; null: the process that owns the fleet, or none");
const listedItem = answer({
  index: z.int(),
  key: z.string(),
  state: z.enum(["queued", "running", "done"]),
  status: z.string().nullable(),
  code: z.string().nullable(),
  attempt: z.int(),
  run: z.string().nullable(),
  machine: onMachine,
  endedAt: time.nullable(),
  durationMs: z.number().nullable(),
}).meta({ id: "FleetItem" });

/** An item with its result, its request and its earlier attempts. */
const shownItem = answer({
  fleet: fleetId,
  key: z.string(),
  state: z.enum(["queued", "running", "done"]),
  machine: onMachine,
  request: answer({
    input: z.unknown().optional(),
    attachments: z.array(z.string()),
    fields: z.record(z.string(), z.unknown()).optional(),
  }),
  result: itemResult.nullable(),
  streams: z.object({ stdout: z.string(), stderr: z.string() }),
  attempts: z
    .array(answer(attempt).meta({ id: "EarlierAttempt" }))
    .describe("Before it was retried in place; the newest first"),
}).meta({ id: "ShownItem" });

const numbers = z.record(z.string(), z.int());
const summary = answer({
  fleet: fleetId,
  state: z.enum(["running", "done", "pending", "paused", "cancelled"]),
  why: z.string().nullable(),
  items: z.int(),
  done: z.int(),
  byStatus: numbers,
  byReason: numbers,
  failures,
  durationMs: z.number(),
});
const event = z.discriminatedUnion("type", [
  z.object({
    type: z.literal("loaded"),
    at: time,
    fleet: fleetId,
    items: z.int(),
    done: z.int(),
    failed: z.int().optional().describe("Of those that are done"),
  }),
  z.object({
    type: z.literal("started"),
    at: time,
    index: z.int(),
    key: z.string(),
    attempt: z.int(),
    machine: z.string().optional(),
  }),
  z.object({
    type: z.literal("settled"),
    at: time,
    index: z.int(),
    key: z.string(),
    status: z.string(),
    run: z.string().nullable(),
    attempt: z.int(),
    exitCode: z.int().nullable(),
    error: runError,
    durationMs: z.number(),
    changeset: itemChangeset.nullable(),
    machine: z.string().optional(),
    retryInMs: z.number().nullable().describe("It is retried, and this result does not count; null: it counts"),
  }),
  z.object({ type: z.literal("elsewhere"), at: time, running: z.int() }),
  z.object({
    type: z.literal("machines"),
    at: time,
    machines: z.array(z.object({ name: z.string(), running: z.int() })),
  }),
  z
    .object({ type: z.literal("reading"), at: time, key: z.string() })
    .describe("The files of an item are read for long, before it can start"),
  z.object({ type: z.literal("trouble"), at: time, detail: z.string() }),
  z.object({ type: z.literal("waiting"), at: time, for: z.literal("queue"), why: z.string() }),
  z.object({ type: z.literal("continued"), at: time }),
  z.object({ type: z.literal("draining"), at: time, why: z.string() }),
  z.object({ type: z.literal("ended"), at: time, summary }),
  ...ofLog,
]);

const started = answer({
  fleet: fleetId,
  project: projectName,
  after: z.string().describe("The `Last-Event-ID` after which its events begin"),
  notes: z
    .array(z.string())
    .describe("What may not have been meant: files that were left out, items that are all the same"),
}).meta({ id: "StartedFleet" });
const inFleet = z.strictObject({ fleet: fleetId });

export const fleetOperations = {
  "fleets.start": operation("fleets.start", {
    summary: "Run a worker over many items, each in a sandbox of its own.",
    body: order,
    maxBodyBytes: MAX_ITEMS_BYTES,
    status: 202,
    output: started,
    faults: [404, 413, 415, 422, 503],
  }),
  "fleets.list": operation("fleets.list", {
    summary: "List fleets, the newest first.",
    query: z.strictObject({ ...inProject, limit: count(1, 500).optional() }),
    output: z.object({ fleets: z.array(listedFleet), more }).meta({ id: "FleetList" }),
  }),
  "fleets.show": operation("fleets.show", {
    summary: "Show a fleet: items by status, groups of failures, the slowest.",
    params: inFleet,
    output: shownFleet,
    faults: [404],
  }),
  "fleets.items": operation("fleets.items", {
    summary: "List items in the order of the manifest. `cursor` is `next` of the page before.",
    params: inFleet,
    query: z.strictObject({
      state: z.enum(["queued", "running", "done"]).optional(),
      status: z.string().max(40).optional(),
      failed: flag.optional(),
      search: z.string().min(1).max(1000).optional().describe("A part of the key"),
      alike: z.string().min(1).max(4096).optional().describe("The key of an item: only those that failed as it did"),
      cursor: count(0, 999_999_999).optional(),
      limit: count(1, MAX_PAGE).optional(),
    }),
    output: z.object({ items: z.array(listedItem), next: z.int().nullable() }).meta({ id: "ItemPage" }),
    faults: [404],
  }),
  "fleets.item": operation("fleets.item", {
    summary: "Show one item: its result, its request, what it printed, earlier attempts.",
    params: inFleet,
    query: z.strictObject({ key: z.string().min(1).max(4096) }),
    output: shownItem,
    faults: [404],
  }),
  "fleets.results": operation("fleets.results", {
    summary: "Read the results of the items that have ended, in the order of the manifest, or a report of them.",
    params: inFleet,
    query: z.strictObject({
      form: z.enum(["jsonl", "csv", "html", "junit"]).optional(),
      status: z.string().max(40).optional().describe("Of jsonl and csv: only items with this status"),
    }),
    isLasting: true,
    bytes: { contentType: "application/octet-stream", description: "UTF-8; of jsonl, an ItemResult a line" },
    faults: [404],
  }),
  "fleets.logs": operation("fleets.logs", {
    summary: "Read what items printed, in the order of the manifest.",
    params: inFleet,
    query: z.strictObject({ failed: flag.optional() }),
    isLasting: true,
    bytes: {
      contentType: "application/octet-stream",
      description: "A line of JSON for each item that printed something: key, status, exitCode, stdout, stderr",
    },
    faults: [404],
  }),
  "fleets.events": operation("fleets.events", {
    summary: "Follow the events of a fleet that the service has started.",
    params: inFleet,
    isLasting: true,
    events: event,
    faults: [404, 409],
  }),
  "fleets.resume": operation("fleets.resume", {
    summary: "Continue a fleet that no process runs any more.",
    params: inFleet,
    status: 202,
    output: started,
    faults: [404, 422, 503],
  }),
  "fleets.retry": operation("fleets.retry", {
    summary: "Run the failed items of a fleet again, in place.",
    params: inFleet,
    status: 202,
    output: started,
    faults: [404, 422, 503],
  }),
  "fleets.pause": operation("fleets.pause", {
    summary:
      "Start no further items of a fleet that the service runs. `now`: those that run are ended too. It can be resumed.",
    params: inFleet,
    body: z.strictObject({ now: z.boolean().optional() }),
    output: answer({ fleet: fleetId, outcome: z.enum(["pausing", "not_running"]) }),
    faults: [404, 415],
  }),
  "fleets.cancel": operation("fleets.cancel", {
    summary: "Cancel the waiting items of a fleet. Those that run end.",
    params: inFleet,
    output: answer({
      fleet: fleetId,
      outcome: z.enum(["ended", "removed", "cancelled"]),
      state: z.string().optional().describe("In which it had ended before"),
      items: z.int().optional().describe("How many will not run"),
    }),
    faults: [404, 503],
  }),
} as const;
