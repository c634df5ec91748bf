import { z } from "zod";
import {
  answer,
  changedPath,
  changesetId,
  count,
  counts,
  digest,
  inProject,
  more,
  operation,
  projectName,
  time,
  workerName,
} from "./operation.ts";

export const MAX_CHANGESETS = 1000;

const whose = { id: changesetId, run: z.string(), worker: z.string(), project: projectName, createdAt: time };
const listed = answer({
  ...whose,
  applying: z.boolean(),
  counts,
  fleet: z.string().nullable().describe("The fleet of whose item this is"),
  item: z.string().nullable().describe("The key of the item"),
  why: z.string().nullable().describe("Why the first of its changes waits, or was not applied"),
}).meta({ id: "ListedChangeset" });
const outcome = { index: z.int(), ...changedPath, outcome: z.string(), reason: z.string().nullable() };
const hostExecuted = z
  .string()
  .nullish()
  .describe("Why a program of the host would act on it by itself, so that no general yes covers it");
const change = answer({
  ...outcome,
  bytes: z.int().nullish().describe("Of a file that was written"),
  hostExecuted,
}).meta({ id: "Change" });
const named = {
  commits: z
    .array(z.string())
    .describe("Commits of git that the worker made and that wait, in words, which are the worker's own"),
  lookAlike: z.array(z.string()).describe("What of its names may be taken for something else, in words"),
};
const shown = answer({
  ...whose,
  root: z.string().describe("The root of its tree of runs"),
  digest,
  changes: z.array(change),
  diff: z.string().describe("A unified diff with the files as they are now"),
  ...named,
}).meta({ id: "Changeset" });
const amount = { files: z.int(), added: z.int(), removed: z.int(), bytes: z.int() };
const review = answer({
  ...whose,
  digest,
  mode: z.string().describe("The project's approval mode"),
  waiting: z.int().describe("How many changes can still be applied"),
  total: z.object(amount),
  parts: z
    .array(
      answer({
        ...changedPath,
        ...amount,
        indexes: z.array(z.int()).describe("For `which` of apply"),
        hostExecuted: z
          .string()
          .nullable()
          .describe("Why a program of the host would act on it by itself: then `apply` has to name its path"),
        lines: z.array(z.string()).describe("A unified diff; no line has a control character"),
        ruled: answer({
          outcome: z.string(),
          reason: z.string(),
          scope: z.string(),
          unasked: z.boolean().optional().describe("Of a denial: a user can still approve it"),
        })
          .nullable()
          .describe("What the project's rules decide; null: a user decides"),
      }).meta({ id: "ReviewedPart" }),
    )
    .describe("What a user decides on: first what programs of the host would execute"),
  unfit: z
    .array(answer({ ...changedPath, index: z.int(), outcome: z.enum(["refused", "conflict"]), reason: z.string() }))
    .describe("What cannot be applied now"),
  notShown: z.int().describe("Changes beyond the limit of a diff"),
  ...named,
}).meta({ id: "Review" });
const inChangeset = z.strictObject({ changeset: changesetId });
const paths = z.array(z.string().max(4096)).max(10_000);

export const changesetOperations = {
  "changesets.list": operation("changesets.list", {
    summary: "List changes of runs that were not applied yet, the oldest first.",
    query: z.strictObject({
      ...inProject,
      worker: workerName.optional(),
      limit: count(1, MAX_CHANGESETS).optional(),
    }),
    output: z.object({ changesets: z.array(listed), more }).meta({ id: "ChangesetList" }),
  }),
  "changesets.show": operation("changesets.show", {
    summary: "Show a changeset with its diff, and the digest that a decision on it names.",
    params: inChangeset,
    output: shown,
    faults: [404, 409, 500],
  }),
  "changesets.review": operation("changesets.review", {
    summary:
      "Show what a changeset would do now, for a decision on each path: its diff, and what the project's rules decide.",
    params: inChangeset,
    output: review,
    faults: [404, 409, 422, 500],
  }),
  "changesets.files": operation("changesets.files", {
    summary: "Send the files that it would write as a tar archive, without links.",
    params: inChangeset,
    isLasting: true,
    bytes: { contentType: "application/x-tar", description: "Regular files and directories" },
    faults: [404, 409, 500],
  }),
  "changesets.apply": operation("changesets.apply", {
    summary:
      "Apply changes. Rules of the project that deny still deny; no conflict is overwritten. What has `hostExecuted` waits unless its path is named there too.",
    params: inChangeset,
    body: z.strictObject({
      digest,
      only: paths.optional().describe("Paths; absent: all, an empty list: none"),
      which: z.array(z.int().min(0)).max(100_000).optional().describe("Indexes, in place of only"),
      hostExecuted: paths
        .optional()
        .describe("Paths of changes with `hostExecuted` that a person has agreed to, each by itself"),
    }),
    output: answer({ id: changesetId, changes: z.array(change), left: z.int() }).meta({ id: "AppliedChangeset" }),
    faults: [404, 409, 415, 422, 500],
  }),
  "changesets.discard": operation("changesets.discard", {
    summary: "Discard a changeset. What was applied before stays.",
    params: inChangeset,
    body: z.strictObject({ digest }),
    output: z.object({ id: changesetId, outcome: z.literal("discarded") }),
    faults: [404, 409, 415, 500],
  }),
} as const;
