import { z } from "zod";
import { answer, operation, runId, snapshotNamed, time } from "./operation.ts";

const ofSnapshot = z.strictObject({ session: runId, snapshot: snapshotNamed });
const paths = z.array(z.string());
const snapshot = answer({
  id: z.string(),
  name: z.string().nullable().describe("null: it goes with its session"),
  worker: z.string(),
  session: runId,
  sessionName: z.string().nullable(),
  createdAt: time,
  isLast: z.boolean().describe("Made at the end of its session, which can go on from it"),
  has: paths.describe("The directories that are in it"),
  lacks: paths.describe("Directories that the session wrote directly, which are not"),
}).meta({ id: "Snapshot" });
const difference = answer({
  path: z.string(),
  kind: z.enum(["create", "modify", "delete"]),
  type: z.enum(["file", "directory", "link", "other"]),
  bytes: z.int().nullable(),
}).meta({ id: "SnapshotDifference" });

/** In one answer. */
export const MAX_DIFFERENCES = 1000;

export const snapshotOperations = {
  "snapshots.list": operation("snapshots.list", {
    summary: "List the snapshots of the worker of a session, the oldest first, also those of other sessions of it.",
    params: z.strictObject({ session: runId }),
    output: z.object({ snapshots: z.array(snapshot) }),
    faults: [404, 422],
  }),
  "snapshots.take": operation("snapshots.take", {
    summary:
      "Take a snapshot of what a session wrote in staged directories. What runs in it ends. `sessions.open` with `from` begins from it.",
    params: z.strictObject({ session: runId }),
    body: z.strictObject({
      name: z.string().max(64).nullish().describe("It stays when the session has ended; null: it goes with it"),
    }),
    status: 201,
    output: snapshot,
    faults: [404, 415, 422, 503],
  }),
  "snapshots.remove": operation("snapshots.remove", {
    summary: "Remove a snapshot. Sessions that began from it stay as they are.",
    params: ofSnapshot,
    output: snapshot,
    faults: [404, 422],
  }),
  "snapshots.restore": operation("snapshots.restore", {
    summary: "Show in a session what a snapshot has, in place of all that was written since. What runs in it ends.",
    params: ofSnapshot,
    output: snapshot,
    faults: [404, 422, 503],
  }),
  "snapshots.diff": operation("snapshots.diff", {
    summary: "List what a session has that a snapshot has not, and the other way round.",
    params: ofSnapshot,
    output: z.object({
      differences: z.array(difference),
      more: z.boolean().describe(`True: there are more than these ${MAX_DIFFERENCES}`),
    }),
    isLasting: true,
    faults: [404, 422, 503],
  }),
} as const;
