import { z } from "zod";
import { ANY_MACHINE, type MachineNeeds } from "../../declarations/fleet-yaml.ts";
import { changesetId, fleetId, projectName, runError, time, workerName } from "./shapes.ts";

/** Which machines an order of a fleet asks for: as `machines` in corral.yaml. */
export const machinesOrder = z
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

/** Absent: as the project declares it. */
export function machinesOf(
  order: z.output<typeof machinesOrder> | undefined,
  otherwise: MachineNeeds | null,
): MachineNeeds | null {
  if (order === undefined) return otherwise;
  if (order === false) return null;
  const { needs, priority, weight } = order === true ? {} : order;
  const declared = otherwise ?? ANY_MACHINE;
  return {
    needs: needs === undefined ? declared.needs : [...new Set(needs)].toSorted(),
    priority: priority ?? declared.priority,
    weight: weight ?? declared.weight,
  };
}

const knownMachine = {
  id: z.string().describe("Differs for machines with the same name"),
  name: z.string().describe("The name that it was started with"),
  labels: z.array(z.string()),
  slots: z.int().describe("Items that it runs at the same time"),
  version: z.string(),
  seenAt: time.describe("When its lease was last renewed"),
  recentRate: z.number().nullable().describe("Items that it delivered per second in the last minute; null if none"),
};
const why = z.string().nullable().describe("Why it takes none of this fleet; null: it does, or has not checked yet");

/** A machine as a fleet has it. */
const fleetMachine = z
  .looseObject({
    ...knownMachine,
    running: z.int().describe("Items of this fleet that it runs"),
    runningInAll: z.int().describe("Items of all fleets that it runs"),
    why,
  })
  .meta({ id: "FleetMachine" });

/** A machine in a list. */
export const listedMachine = z
  .looseObject({
    ...knownMachine,
    joinedAt: time,
    running: z.int().describe("Items that it runs, those of projects that the service does not have included"),
    fleets: z.array(
      z.looseObject({ fleet: fleetId, project: projectName, running: z.int(), why }).meta({ id: "MachineFleet" }),
    ),
  })
  .meta({ id: "QueueMachine" });

const counts = z
  .looseObject({
    total: z.int(),
    queued: z.int(),
    running: z.int(),
    done: z.int(),
    failed: z.int(),
    pending: z.int().describe("Their changes wait for a decision"),
  })
  .meta({ id: "FleetCounts" });
const known = {
  id: fleetId,
  project: projectName,
  state: z.string().describe("loading, running, paused, interrupted, pending, done or cancelled"),
  createdAt: time,
  endedAt: time.nullable(),
  why: z.string().nullable(),
  counts,
  spec: z
    .looseObject({
      worker: z.string(),
      source: z.string().describe("Where its items come from, for people"),
      policy: z.string().nullable(),
      concurrency: z.union([z.int(), z.literal("auto")]),
      reuse: z.string(),
      retries: z.int(),
      machines: z
        .looseObject({ needs: z.array(z.string()), priority: z.int(), weight: z.int() })
        .nullable()
        .optional()
        .describe("Which other machines may run its items; null: none"),
    })
    .meta({ id: "FleetSpec" }),
};
/** A fleet in a list. */
export const listedFleet = z.looseObject(known).meta({ id: "Fleet" });
/** A fleet with the outcomes of its items. */
export const shownFleet = z
  .looseObject({
    ...known,
    summary: z.array(z.looseObject({ status: z.string(), code: z.string().nullable(), count: z.int() })),
    failures: z
      .array(
        z
          .looseObject({
            count: z.int(),
            status: z.string(),
            code: z.string(),
            text: z.string().describe("The last words of one of them"),
            example: z.string().describe("The key of that one"),
          })
          .meta({ id: "FailureGroup" }),
      )
      .describe("Failed items by their last words; the 20 largest groups"),
    recentRate: z.number().nullable().describe("Items per second, of late; null: it does not run, or none ended"),
    leftMs: z.number().nullable(),
    machines: z
      .array(fleetMachine)
      .describe("Those of the queue; empty if no other machine may run its items, or if it has ended"),
  })
  .meta({ id: "ShownFleet" });
const onMachine = z
  .string()
  .nullable()
  .describe("The machine that runs it, or ran its last attempt; null: the process that owns the fleet, or none");
/** An item in a list. */
export const listedItem = z
  .looseObject({
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
  })
  .meta({ id: "FleetItem" });
const attempt = {
  attempt: z.int(),
  status: z.string(),
  run: z.string().nullable(),
  machine: z.string().optional().describe("That ran it; absent: the process that owned the fleet"),
  exitCode: z.int().nullable(),
  error: runError,
  endedAt: time,
  durationMs: z.number(),
};
/** An item with its result, its request and its earlier attempts. */
export const shownItem = z
  .looseObject({
    fleet: fleetId,
    key: z.string(),
    state: z.enum(["queued", "running", "done"]),
    machine: onMachine,
    request: z.looseObject({
      input: z.unknown().optional(),
      attachments: z.array(z.string()),
      fields: z.record(z.string(), z.unknown()).optional(),
    }),
    result: z
      .looseObject({
        ...attempt,
        output: z.unknown(),
        memoryBytesPeak: z.number().nullable(),
        changeset: z.looseObject({ id: changesetId.nullable() }).optional(),
      })
      .meta({ id: "ItemResult" })
      .nullable(),
    streams: z.object({ stdout: z.string(), stderr: z.string() }),
    attempts: z
      .array(z.looseObject(attempt).meta({ id: "EarlierAttempt" }))
      .describe("Before it was retried in place; the newest first"),
  })
  .meta({ id: "ShownItem" });
