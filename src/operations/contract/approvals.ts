import { z } from "zod";
import { APPROVAL_CURSOR } from "../../inbox/inbox-folder.ts";
import {
  answer,
  approvalId,
  changedPath,
  changesetId,
  count,
  counts,
  digest,
  grantId,
  inProject,
  more,
  operation,
  projectName,
  runId,
  time,
  workerName,
} from "./operation.ts";

const MAX_LISTED = 500;

const question = answer({
  run: z.string(),
  root: z.string(),
  worker: z.string(),
  through: z.array(z.string()).optional().describe("The workers from the root run down to this one"),
  operations: z.array(z.string()),
  paths: z.array(z.string()),
  directory: z.string().optional().describe("Of a grant: what is requested"),
  wider: z.array(z.string()).optional().describe("Of a grant: what may be granted instead, the nearest first"),
  to: z.string().optional().describe("Of a grant: the host and port that are requested"),
  reaches: z.array(z.string()).optional().describe("Of such a grant: what it reaches already"),
  callee: z.string().optional(),
  input: z.string().optional().describe("Of a call: its input as JSON, cut if it is long"),
  command: z.string().optional(),
  line: z.string().optional().describe("The command line alone, if `command` shows more than it"),
  machine: z.string().optional().describe("The run is on this machine of the queue, which has written the texts"),
  hostExecuted: z
    .array(answer({ path: z.string(), why: z.string() }).meta({ id: "HostExecuted" }))
    .optional()
    .describe("What programs of the host would act on by themselves: to be shown first. Only `once` covers it"),
  why: z.string().optional().describe("Often written by the worker, so it may be false"),
  diff: z.string().optional().describe("A unified diff"),
  lastingOnly: z.boolean().optional().describe("Nothing is done with the answer now"),
  runs: z.int().optional().describe("How many runs wait for the answer, which is for all of them"),
  waiting: z
    .array(answer({ run: z.string(), root: z.string() }).meta({ id: "WaitingRun" }))
    .optional()
    .describe("Those runs, `run` first, each with the root of its tree"),
})
  .meta({ id: "Question" })
  .describe("What is asked, by whom and why, with the diff; its texts may come from a worker");

const approval = answer({
  id: approvalId,
  project: projectName,
  state: z.enum(["waiting", "decided"]),
  digest,
  askedAt: time,
  question,
  lookAlike: z.array(z.string()).describe("What of its names may be taken for something else, in words"),
  decidedAt: time.nullable(),
  outcome: z.enum(["approved", "denied", "timed_out", "withdrawn"]).nullable(),
  scope: z.enum(["once", "tree", "session"]).nullable(),
  answers: z.array(z.enum(["once", "tree", "no"])).describe("What may be answered"),
  timeoutMs: z.int().nullable().describe("Without an answer for so long, it is denied and its run goes on"),
  at: z.enum(["terminal", "client", "program", "board"]).describe("Where else it is asked; board: nowhere"),
  directory: z.string().nullable().describe("Of a grant: what was chosen in place of the requested one"),
  by: z.string().nullable().describe("Who decided: the name of a token or of a user"),
  via: z
    .enum(["terminal", "client", "program", "command", "service"])
    .nullable()
    .describe("Where it was decided: where it was asked, with `corral approvals`, or here"),
}).meta({ id: "Approval" });
const inApproval = z.strictObject({ approval: approvalId });

const grant = answer({
  id: grantId,
  project: projectName,
  run: runId,
  root: runId.describe("The root of its tree of runs"),
  worker: z.string(),
  through: z.array(z.string()),
  grantedAt: time,
  scope: z.string(),
  directory: z.string().optional().describe("What was granted, as the worker knows it"),
  mode: z.enum(["read", "write"]).optional().describe("Of a directory"),
  to: z.string().optional().describe("The host and port that were granted"),
}).meta({ id: "Grant" });

export const approvalOperations = {
  "approvals.list": operation("approvals.list", {
    summary:
      "List the questions that wait for a decision, the oldest first; or those that were decided, the newest first. Also those of other processes. `cursor` is `next` of the page before.",
    query: z.strictObject({
      ...inProject,
      root: z.string().max(100).optional().describe("Only those that a run of this tree waits for"),
      state: z.enum(["waiting", "decided"]).default("waiting"),
      cursor: z.string().regex(APPROVAL_CURSOR, "must be `next` of a list of questions").optional(),
      limit: count(1, MAX_LISTED).optional(),
    }),
    output: z
      .object({ approvals: z.array(approval), next: z.string().nullable().describe("Null: there are no more") })
      .meta({ id: "ApprovalPage" }),
  }),
  "approvals.show": operation("approvals.show", {
    summary: "Show a question, and how it was decided.",
    params: inApproval,
    output: approval,
    faults: [404],
  }),
  "approvals.decide": operation("approvals.decide", {
    summary: "Decide on a question as it was shown. 409: another was faster, or it is not what was shown.",
    params: inApproval,
    body: z.strictObject({
      answer: z.enum(["once", "tree", "no"]).describe("tree: until this tree of runs ends"),
      digest,
      directory: z.string().max(4096).optional().describe("Of a grant: one of wider, in place of the requested one"),
    }),
    output: approval,
    faults: [404, 409, 415],
  }),
  "grants.list": operation("grants.list", {
    summary: "List what running workers were granted beyond their files.",
    output: z.object({ grants: z.array(grant) }),
  }),
  "grants.add": operation("grants.add", {
    summary:
      "Grant a directory to a running worker with `dynamic` that has not asked for it, by the rules for those that ask.",
    params: z.strictObject({ run: runId }),
    body: z.strictObject({
      path: z
        .string()
        .min(1)
        .max(4096)
        .describe("As the worker would ask for it: a name of the project, or a directory of the host"),
      mode: z.enum(["read", "write"]).default("read"),
    }),
    output: answer({
      run: runId,
      id: grantId.nullable().describe("Null: the worker already had it"),
      directory: z.string(),
      mode: z.enum(["read", "write"]),
    }).meta({ id: "AddedGrant" }),
    faults: [404, 415, 422],
  }),
  "grants.revoke": operation("grants.revoke", {
    summary: "Revoke a grant. Tools lose it at once, and containers that have it are replaced.",
    params: z.strictObject({ grant: grantId }),
    output: z.object({ id: grantId, outcome: z.literal("revoked") }),
    faults: [404],
  }),
} as const;

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
