import { z } from "zod";
import { type Route, route } from "../http/route.ts";
import { approvalRoutes } from "./approvals.ts";
import { auditRoutes } from "./audit.ts";
import { callerRoutes } from "./caller.ts";
import { changesetRoutes } from "./changesets.ts";
import { fleetRoutes } from "./fleets.ts";
import { grantRoutes } from "./grants.ts";
import { machineRoutes } from "./machine.ts";
import { metricsRoutes } from "./metrics.ts";
import { openApi } from "./openapi.ts";
import { projectRoutes } from "./projects.ts";
import { machinesRoutes } from "./queue-machines.ts";
import { runRoutes } from "./runs.ts";
import type { Served } from "./service.ts";
import { sessionRoutes } from "./sessions.ts";

type Env = Readonly<Record<string, string | undefined>>;

/** All routes of the service, and the one that describes them. */
export function routesOf(served: Served, engineEnv: Env, version: string): Route[] {
  const routes = [
    ...callerRoutes(version),
    ...projectRoutes(served, engineEnv),
    ...runRoutes(served),
    ...fleetRoutes(served),
    ...changesetRoutes(served),
    ...approvalRoutes(served),
    ...grantRoutes(served),
    ...sessionRoutes(served),
    ...auditRoutes(served),
    ...machineRoutes(served, engineEnv),
    ...machinesRoutes(served),
    ...metricsRoutes(served),
  ];
  const description = route(
    {
      method: "GET",
      path: "/openapi.json",
      role: "read",
      summary: "Describe the service, as OpenAPI 3.1.",
      answers: { 200: z.looseObject({ openapi: z.string(), paths: z.record(z.string(), z.unknown()) }) },
    },
    async () => ({ status: 200, json: document }),
  );
  const document = openApi([...routes, description], version);
  return [...routes, description];
}
