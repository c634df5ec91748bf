import { z } from "zod";
import { type Route, route } from "../http/route.ts";
import { listedMachine } from "./queue-machine-shapes.ts";
import type { Served } from "./service.ts";
import { count, inProject } from "./shapes.ts";

export function machinesRoutes({ projects, machines: queues }: Pick<Served, "projects" | "machines">): Route[] {
  return [
    route(
      {
        method: "GET",
        path: "/v1/machines",
        role: "read",
        summary: "List the machines that take part in the queues of the projects, and what each runs.",
        query: z.strictObject({ ...inProject, limit: count(1, 1000).optional() }),
        answers: {
          200: z
            .object({
              machines: z.array(listedMachine),
              more: z
                .boolean()
                .describe(
                  "Whether there are more: a list has at most 1000 machines, and there is no second part of it",
                ),
              hasQueue: z.boolean().describe("Whether one of the projects has a queue that machines can reach"),
            })
            .meta({ id: "MachineList" }),
        },
        faults: [404, 503],
      },
      async ({ query: { project, limit = 200 } }) => {
        const all = await queues.list(projects.chosen(project).map(({ dir }) => dir));
        const machines = (all ?? []).slice(0, limit).map(({ fleets, ...one }) => ({
          ...one,
          fleets: fleets.map(({ projectDir, ...fleet }) => ({ ...fleet, project: projects.nameOf(projectDir) ?? "" })),
        }));
        return { status: 200, json: { machines, more: (all?.length ?? 0) > limit, hasQueue: all !== null } };
      },
    ),
  ];
}
