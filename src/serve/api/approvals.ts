import { z } from "zod";
import { present } from "../../declarations/terms/present.ts";
import {
  APPROVAL_CURSOR,
  type Approval,
  decideApproval,
  pageOfApprovals,
  showApproval,
} from "../../operations/approvals.ts";
import { type Route, route } from "../http/route.ts";
import type { Served } from "./owned.ts";
import { count, digest, inProject, projectName, time } from "./shapes.ts";

const MAX_LISTED = 500;
const DEFAULT_LISTED = 100;

const approvalId = z
  .string()
  .regex(/^[0-9a-f]{12}$/, "12 hexadecimal digits")
  .describe("The id of a question");
const approval = z
  .looseObject({
    id: approvalId,
    project: projectName,
    state: z.enum(["waiting", "decided"]),
    digest,
    askedAt: time,
    question: z
      .looseObject({
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
        machine: z.string().optional().describe("The run is on this machine of the queue, which has written the texts"),
        hostExecuted: z
          .array(z.looseObject({ path: z.string(), why: z.string() }).meta({ id: "HostExecuted" }))
          .optional()
          .describe("What programs of the host would act on by themselves: to be shown first. Only `once` covers it"),
        why: z.string().optional().describe("Often written by the worker, so it may be false"),
        diff: z.string().optional().describe("A unified diff"),
        lastingOnly: z.boolean().optional().describe("Nothing is done with the answer now"),
        runs: z.int().optional().describe("How many runs wait for the answer, which is for all of them"),
        waiting: z
          .array(z.looseObject({ run: z.string(), root: z.string() }).meta({ id: "WaitingRun" }))
          .optional()
          .describe("Those runs, `run` first, each with the root of its tree"),
      })
      .meta({ id: "Question" })
      .describe("What is asked, by whom and why, with the diff; its texts may come from a worker"),
    lookAlike: z.array(z.string()).describe("What of its names may be taken for something else, in words"),
    decidedAt: time.nullable(),
    outcome: z.enum(["approved", "denied", "timed_out", "withdrawn"]).nullable(),
    scope: z.enum(["once", "tree", "session"]).nullable(),
    answers: z.array(z.enum(["once", "tree", "no"])).describe("What may be answered"),
    at: z.enum(["terminal", "client", "program", "board"]).describe("Where else it is asked; board: nowhere"),
    directory: z.string().nullable().describe("Of a grant: what was chosen in place of the requested one"),
    by: z.string().nullable().describe("Who decided: the name of a token or of a user"),
    via: z
      .enum(["terminal", "client", "program", "command", "service"])
      .nullable()
      .describe("Where it was decided: where it was asked, with `corral approvals`, or here"),
  })
  .meta({ id: "Approval" });

export function approvalRoutes({ stateDir, projects }: Served): Route[] {
  const dirs = (): string[] => projects.all.map(({ dir }) => dir);
  const shown = (one: Approval) => ({ ...one, project: projects.nameOf(one.project) });
  return [
    route(
      {
        method: "GET",
        path: "/v1/approvals",
        role: "read",
        summary:
          "List the questions that wait for a decision, the oldest first; or those that were decided, the newest first. Also those of other processes. `cursor` is `next` of the page before.",
        query: z.strictObject({
          ...inProject,
          root: z.string().max(100).optional().describe("Only those that a run of this tree waits for"),
          state: z.enum(["waiting", "decided"]).default("waiting"),
          cursor: z.string().regex(APPROVAL_CURSOR, "must be `next` of a list of questions").optional(),
          limit: count(1, MAX_LISTED).optional(),
        }),
        answers: {
          200: z
            .object({
              approvals: z.array(approval),
              next: z.string().nullable().describe("Null: there are no more"),
            })
            .meta({ id: "ApprovalPage" }),
        },
      },
      async ({ query: { project, root, state, cursor, limit = DEFAULT_LISTED } }) => {
        const chosen = projects.chosen(project).map(({ dir }) => dir);
        const which = { state, projects: chosen, limit, ...present({ root, after: cursor }) };
        const { approvals, next } = await pageOfApprovals(stateDir, which);
        return { status: 200, json: { approvals: approvals.map(shown), next } };
      },
    ),
    route(
      {
        method: "GET",
        path: "/v1/approvals/{approval}",
        role: "read",
        summary: "Show a question, and how it was decided.",
        params: z.strictObject({ approval: approvalId }),
        answers: { 200: approval },
        faults: [404],
      },
      async ({ params }) => ({ status: 200, json: shown(await showApproval(stateDir, params.approval, dirs())) }),
    ),
    route(
      {
        method: "POST",
        path: "/v1/approvals/{approval}/decision",
        role: "decide",
        summary: "Decide on a question as it was shown. 409: another was faster, or it is not what was shown.",
        params: z.strictObject({ approval: approvalId }),
        body: z.strictObject({
          answer: z.enum(["once", "tree", "no"]).describe("tree: until this tree of runs ends"),
          digest,
          directory: z
            .string()
            .max(4096)
            .optional()
            .describe("Of a grant: one of wider, in place of the requested one"),
        }),
        answers: { 200: approval },
        faults: [404, 409, 415],
      },
      async ({ params: { approval: id }, body: { answer, digest: seen, directory }, caller }) => {
        const more = directory === undefined ? {} : { directory };
        const how = { answer, digest: seen, by: caller.name, via: "service", ...more } as const;
        return { status: 200, json: shown(await decideApproval(stateDir, id, how, dirs())) };
      },
    ),
  ];
}
