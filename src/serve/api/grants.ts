import { z } from "zod";
import { listGrants, revokeGrant } from "../../operations/grants.ts";
import { RequestError } from "../../operations/request-error.ts";
import { showRun } from "../../operations/runs.ts";
import type { LiveGrant } from "../../state/live-grants.ts";
import { type Route, route } from "../http/route.ts";
import type { Served } from "./service.ts";
import { projectName, runId, time } from "./shapes.ts";

const grantId = z.string().regex(/^[0-9a-f]{12}$/, "12 hexadecimal digits");
const grant = z
  .looseObject({
    id: grantId,
    project: projectName,
    run: runId,
    worker: z.string(),
    through: z.array(z.string()),
    grantedAt: time,
    scope: z.string(),
  })
  .meta({ id: "Grant" });

export function grantRoutes({ projects, stateDir }: Served): Route[] {
  /** Those of runs of served projects, without the paths of the host. */
  const owned = async () => {
    const found: (Omit<LiveGrant, "host"> & { readonly project: string })[] = [];
    for (const one of await listGrants(stateDir)) {
      const project = await projectOf(one);
      if (project !== null) found.push({ ...("host" in one ? without(one) : one), project });
    }
    return found;
  };
  const projectOf = async ({ root }: LiveGrant): Promise<string | null> => {
    for (const project of projects.all) {
      const record = await showRun(project.place, root).catch((error: unknown) => {
        if (error instanceof RequestError) return null;
        throw error;
      });
      if (record !== null) return projects.nameOf(record.project);
    }
    return null;
  };
  return [
    route(
      {
        method: "GET",
        path: "/v1/grants",
        role: "read",
        summary: "List what running workers were granted beyond their files.",
        answers: { 200: z.object({ grants: z.array(grant) }) },
      },
      async () => ({ status: 200, json: { grants: await owned() } }),
    ),
    route(
      {
        method: "DELETE",
        path: "/v1/grants/{grant}",
        role: "decide",
        summary: "Revoke a grant. Tools lose it at once, and containers that have it are replaced.",
        params: z.strictObject({ grant: grantId }),
        answers: { 200: z.object({ id: grantId, outcome: z.literal("revoked") }) },
        faults: [404],
      },
      async ({ params }) => {
        if (!(await owned()).some(({ id }) => id === params.grant))
          throw new RequestError("UNKNOWN_GRANT", params.grant, `there is no grant ${params.grant}`);
        return { status: 200, json: { id: await revokeGrant(stateDir, params.grant), outcome: "revoked" } };
      },
    ),
  ];
}

function without<G extends { readonly host: string }>({ host: _, ...grant }: G) {
  return grant;
}
