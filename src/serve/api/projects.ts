import { z } from "zod";
import { explainWorker } from "../../operations/explained-worker.ts";
import { listWorkers } from "../../operations/listed-workers.ts";
import { workerNamed } from "../../operations/named-worker.ts";
import { type Route, route } from "../http/route.ts";
import { explanation } from "./explained.ts";
import type { Served } from "./service.ts";
import { projectName, workerName } from "./shapes.ts";

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

/** What a mount shows is the host's business: a client knows it by its path in the cell. */
function withoutHostPaths<Shown>(shown: Shown): Shown {
  const isHostPath = (key: string, value: unknown): boolean =>
    (key === "host" || key === "origin") && typeof value === "string" && value.startsWith("/");
  return JSON.parse(JSON.stringify(shown, (key, value) => (isHostPath(key, value) ? undefined : value)));
}
