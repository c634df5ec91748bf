import { z } from "zod";
import { explainWorker, listWorkers, workerNamed } from "../../operations/workers.ts";
import { type Route, route } from "../http/route.ts";
import type { Served } from "./owned.ts";
import { projectName, workerName } from "./shapes.ts";

/* What `corral explain` answers with. It has more fields: those that are named here stay. */

const mount = z
  .looseObject({
    path: z.string(),
    mode: z.enum(["ro", "rw"]),
    suffixes: z.array(z.string()).optional().describe("Only such files; absent: all"),
    maxFileBytes: z.number().optional(),
    approval: z.looseObject({ write: z.string(), delete: z.string() }).optional(),
    stage: z.literal(true).optional().describe("What is written waits as a changeset"),
    discard: z.literal(true).optional().describe("What is written is dropped"),
  })
  .meta({ id: "Mount" });

const network = z
  .union([
    z.boolean(),
    z.looseObject({
      allow: z.array(z.looseObject({ to: z.string(), methods: z.array(z.string()).optional() })),
    }),
  ])
  .describe("true: every host; false: none");

const narrowing = z
  .looseObject({
    by: z.string(),
    kind: z.string(),
    path: z.string().optional(),
    limit: z.string().optional(),
    from: z.unknown().optional(),
    to: z.unknown().optional(),
  })
  .meta({ id: "Narrowing" })
  .describe("What was taken away, and by whom");

const sandbox = z
  .looseObject({
    mounts: z.array(mount),
    withheld: z.array(mount).optional().describe("Shown only after an approval"),
    network,
    secrets: z.array(z.string()).optional(),
    limits: z.record(z.string(), z.number()),
    policy: z.looseObject({ name: z.string(), description: z.string().optional() }),
  })
  .meta({ id: "ExplainedSandbox" });

const explainedRun = z
  .looseObject({
    worker: z.string(),
    path: z.array(z.string()).describe("From the worker that is run to this one"),
    sandbox: sandbox.nullable(),
    narrowings: z.array(narrowing),
    plan: z.looseObject({ image: z.looseObject({ name: z.string() }) }).nullable(),
    refused: z
      .array(z.looseObject({ code: z.string(), message: z.string() }))
      .nullable()
      .describe("Null: it would run"),
    agent: z.looseObject({ model: z.string(), tools: z.array(z.string()) }).nullable(),
    notes: z.array(z.string()),
    calls: z.array(z.lazy((): z.ZodType => explainedRun)),
  })
  .meta({ id: "ExplainedRun" });

const explanation = z
  .looseObject({ worker: z.string(), tree: explainedRun, notes: z.array(z.string()) })
  .meta({ id: "Explanation" });

const project = z.looseObject({ name: projectName }).meta({ id: "Project" });
const worker = z
  .looseObject({
    name: z.string(),
    description: z.string(),
    image: z.string(),
    model: z.string().nullable(),
    policy: z.string().nullable(),
    calls: z.array(z.string()),
  })
  .meta({ id: "Worker" });
const inProject = z.strictObject({ project: projectName });

export function projectRoutes(served: Served, engineEnv: Readonly<Record<string, string | undefined>>): Route[] {
  const { projects, over, stateDir } = served;
  return [
    route(
      {
        method: "GET",
        path: "/v1/health",
        role: null,
        summary: "Say that the service answers. Needs no token.",
        answers: { 200: z.object({ status: z.enum(["ok", "stopping"]) }) },
      },
      async () => ({ status: 200, json: { status: over.aborted ? "stopping" : "ok" } }),
    ),
    route(
      {
        method: "GET",
        path: "/v1/projects",
        role: "read",
        summary: "List the projects of the service.",
        answers: { 200: z.object({ projects: z.array(project) }).meta({ id: "ProjectList" }) },
      },
      async () => ({ status: 200, json: { projects: projects.all.map(({ name }) => ({ name })) } }),
    ),
    route(
      {
        method: "GET",
        path: "/v1/projects/{project}/workers",
        role: "read",
        summary: "List the workers of a project, and every mistake in its files.",
        params: inProject,
        answers: {
          200: z.object({ workers: z.array(worker), problems: z.array(z.string()) }).meta({ id: "WorkerList" }),
        },
      },
      async ({ params }) => {
        const { workers, problems } = await listWorkers(projects.named(params.project).dir, engineEnv);
        return { status: 200, json: { workers: workers.map(({ file: _, ...one }) => one), problems } };
      },
    ),
    route(
      {
        method: "GET",
        path: "/v1/projects/{project}/workers/{worker}",
        role: "read",
        summary: "Explain what a worker would get, and what took away the rest. Runs nothing.",
        params: z.strictObject({ project: projectName, worker: workerName }),
        answers: { 200: explanation },
        faults: [404, 422],
      },
      async ({ params }) => {
        const project = await projects.named(params.project).load();
        const explained = await explainWorker(workerNamed(params.worker, project), {
          project,
          policy: null,
          stateDir,
          engineEnv,
        });
        return { status: 200, json: withoutHostPaths(explained) };
      },
    ),
  ];
}

/** What a mount shows, and where its project is, is the host's business: a client knows it by its path in the cell. */
function withoutHostPaths<Shown>(shown: Shown): Shown {
  const isHostPath = (key: string, value: unknown): boolean =>
    ["host", "origin", "project", "viewOf"].includes(key) && typeof value === "string" && value.startsWith("/");
  return JSON.parse(JSON.stringify(shown, (key, value) => (isHostPath(key, value) ? undefined : value)));
}
