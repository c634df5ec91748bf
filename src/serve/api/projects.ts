import { explainWorker, listWorkers, workerNamed } from "../../operations/workers.ts";
import type { Handlers } from "../http/router.ts";
import type { Served } from "./owned.ts";

export function projectHandlers(
  { projects, stateDir }: Served,
  engineEnv: Readonly<Record<string, string | undefined>>,
): Handlers<"projects" | "workers"> {
  return {
    "projects.list": async () => ({ projects: projects.all.map(({ name }) => ({ name })) }),
    async "workers.list"({ params }) {
      const { workers, problems } = await listWorkers(projects.named(params.project).dir, engineEnv);
      return { workers: workers.map(({ file: _, ...one }) => one), problems };
    },
    async "workers.explain"({ params }) {
      const project = await projects.named(params.project).load();
      const how = { project, policy: null, stateDir, engineEnv };
      return withoutHostPaths(await explainWorker(workerNamed(params.worker, project), how));
    },
  };
}

/** What a mount shows, and where its project is, is the host's business: a client knows it by its path in the cell. */
function withoutHostPaths<Shown>(shown: Shown): Shown {
  const isHostPath = (key: string, value: unknown): boolean =>
    ["host", "origin", "project", "viewOf"].includes(key) && typeof value === "string" && value.startsWith("/");
  return JSON.parse(JSON.stringify(shown, (key, value) => (isHostPath(key, value) ? undefined : value)));
}
