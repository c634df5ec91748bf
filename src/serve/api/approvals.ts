import { z } from "zod";
import type { Answered, DecidedQuestion, OpenQuestion } from "../../approval/inbox.ts";
import { ServiceFault } from "../http/fault.ts";
import { type Route, route } from "../http/route.ts";
import type { Served } from "./service.ts";
import { digest, inProject, projectName, time } from "./shapes.ts";

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
        operations: z.array(z.string()),
        paths: z.array(z.string()),
      })
      .meta({ id: "Question" })
      .describe("What is asked, by whom and why, with the diff; its texts may come from a worker"),
    decidedAt: time.nullable(),
    outcome: z.enum(["approved", "denied", "timed_out", "withdrawn"]).nullable(),
    scope: z.enum(["once", "tree", "session"]).nullable(),
    by: z.string().nullable().describe("The name of the token that decided"),
  })
  .meta({ id: "Approval" });

export function approvalRoutes({ inbox, projects }: Served): Route[] {
  const found = (id: string): OpenQuestion | DecidedQuestion => {
    const one = inbox.find(id);
    if (one === null) throw new ServiceFault(404, "UNKNOWN_APPROVAL", "there is no such question");
    return one;
  };
  return [
    route(
      {
        method: "GET",
        path: "/v1/approvals",
        role: "read",
        summary: "List the questions that wait for a decision, the oldest first; or those that were decided.",
        query: z.strictObject({ ...inProject, state: z.enum(["waiting", "decided"]).default("waiting") }),
        answers: { 200: z.object({ approvals: z.array(approval) }) },
      },
      async ({ query: { project, state } }) => {
        const names = new Set(projects.chosen(project).map(({ name }) => name));
        const all = state === "waiting" ? inbox.open : inbox.decided;
        return { status: 200, json: { approvals: all.filter((one) => names.has(one.project)).map(shown) } };
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
      async ({ params }) => ({ status: 200, json: shown(found(params.approval)) }),
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
        found(id);
        const more = directory === undefined ? {} : { directory };
        refuse(inbox.decide(id, { answer, digest: seen, by: caller.name, ...more }));
        return { status: 200, json: shown(found(id)) };
      },
    ),
  ];
}

function refuse(answered: Answered): void {
  const fault = FAULTS[answered];
  if (fault !== null) throw new ServiceFault(...fault);
}

const FAULTS: Readonly<Record<Answered, ConstructorParameters<typeof ServiceFault> | null>> = {
  ok: null,
  unknown: [404, "UNKNOWN_APPROVAL", "there is no such question"],
  decided: [409, "ALREADY_DECIDED", "the question was decided already, or is not asked any more; look at it again"],
  changed: [409, "QUESTION_CHANGED", "the digest is not that of this question; look at it again"],
  lasting: [
    400,
    "WRONG_REQUEST",
    "`once` would have no effect: nothing is done with the answer now; use `tree` or `no`",
  ],
  directory: [400, "WRONG_REQUEST", "`directory` is none of `wider`"],
};

function shown(one: OpenQuestion | DecidedQuestion) {
  const isDecided = "decidedAt" in one;
  const { decidedAt = null, outcome = null, scope = null, by = null } = isDecided ? one : {};
  return { ...one, state: isDecided ? "decided" : "waiting", decidedAt, outcome, scope, by };
}
