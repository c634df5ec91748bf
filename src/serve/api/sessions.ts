import { z } from "zod";
import { type Route, route } from "../http/route.ts";
import { refusePolicy, refuseStopping, type Served } from "./owned.ts";
import { changeset, policyName, projectName, runError, runId, settledChange, time, workerName } from "./shapes.ts";

const MAX_INPUT_BYTES = 8 * 1024 ** 2;

const session = z
  .looseObject({
    id: runId,
    project: projectName,
    worker: z.string(),
    tools: z.array(z.string()),
    openedAt: time,
  })
  .meta({ id: "Session" });
const tool = z
  .looseObject({
    name: z.string(),
    title: z.string(),
    description: z.string(),
    inputSchema: z.record(z.string(), z.unknown()).describe("JSON Schema"),
    readOnly: z.boolean(),
  })
  .meta({ id: "SessionTool" });
const toolResult = z.union([
  z
    .looseObject({ ok: z.literal(true), text: z.string(), data: z.record(z.string(), z.unknown()) })
    .meta({ id: "ToolAnswer" }),
  z
    .looseObject({
      ok: z.literal(false),
      code: z.string(),
      message: z.string(),
      data: z.record(z.string(), z.unknown()),
    })
    .meta({ id: "ToolRefusal" }),
]);
const settled = z
  .looseObject({
    id: runId,
    changes: z.array(settledChange),
    changeset,
    error: runError,
  })
  .meta({ id: "SettledSession" });
const inSession = z.strictObject({ session: runId });

export function sessionRoutes({ projects, sessions, over }: Served): Route[] {
  return [
    route(
      {
        method: "POST",
        path: "/v1/sessions",
        role: "run",
        summary: "Open the sandbox of a worker, to use its tools. It ends after 30 minutes without a call.",
        body: z.strictObject({ project: projectName.optional(), worker: workerName, policy: policyName.optional() }),
        answers: { 201: session },
        faults: [404, 415, 422, 503],
      },
      async ({ body: { project, worker, policy }, caller }) => {
        refuseStopping(over);
        refusePolicy(policy, caller);
        return { status: 201, json: await sessions.open(projects.named(project), worker, policy ?? null) };
      },
    ),
    route(
      {
        method: "GET",
        path: "/v1/sessions",
        role: "read",
        summary: "List the open sessions of the service.",
        answers: { 200: z.object({ sessions: z.array(session) }) },
      },
      async () => ({ status: 200, json: { sessions: sessions.all } }),
    ),
    route(
      {
        method: "GET",
        path: "/v1/sessions/{session}",
        role: "read",
        summary: "Show an open session.",
        params: inSession,
        answers: { 200: session },
        faults: [404],
      },
      async ({ params }) => ({ status: 200, json: sessions.find(params.session) }),
    ),
    route(
      {
        method: "GET",
        path: "/v1/sessions/{session}/tools",
        role: "read",
        summary: "Describe the tools of a session, with the schema of each input, to give them to a model.",
        params: inSession,
        answers: { 200: z.object({ tools: z.array(tool) }) },
        faults: [404],
      },
      async ({ params }) => ({ status: 200, json: { tools: sessions.toolsOf(params.session) } }),
    ),
    route(
      {
        method: "POST",
        path: "/v1/sessions/{session}/tools/{tool}",
        role: "run",
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
        answers: { 200: toolResult },
        faults: [404, 413, 415, 503],
      },
      async ({ params, body, gone }) => {
        const signal = AbortSignal.any([gone, over]);
        return { status: 200, json: await sessions.runTool(params.session, params.tool, body, signal) };
      },
    ),
    route(
      {
        method: "DELETE",
        path: "/v1/sessions/{session}",
        role: "run",
        summary: "End a session, and apply the changes for which there is consent.",
        params: inSession,
        answers: {
          200: settled,
        },
        faults: [404],
      },
      async ({ params: { session: id } }) => {
        const settled = await sessions.finish(id);
        const { changes = [], changeset: kept = null, failure = null } = settled ?? {};
        return { status: 200, json: { id, changes, changeset: kept, error: failure?.error ?? null } };
      },
    ),
  ];
}
