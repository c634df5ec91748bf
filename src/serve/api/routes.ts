import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import type { SealedRecord } from "../../audit/seal.ts";
import { countWaiting } from "../../operations/approvals.ts";
import { auditPage } from "../../operations/audit.ts";
import type { QueueMachines } from "../../operations/fleets.ts";
import { listGrants, revokeGrant } from "../../operations/grants.ts";
import { examineMachine } from "../../operations/machine.ts";
import { RequestError } from "../../operations/request-error.ts";
import { showRun } from "../../operations/runs.ts";
import type { LiveGrant } from "../../state/live-grants.ts";
import { ROLES } from "../../state/service/tokens.ts";
import { withoutHostPaths } from "../http/answer.ts";
import { type Route, route } from "../http/route.ts";
import { permits } from "../http/router.ts";
import type { QueueSize } from "../metrics/metrics.ts";
import type { ServedProject } from "../projects/served-project.ts";
import { approvalRoutes } from "./approvals.ts";
import { changesetRoutes } from "./changesets.ts";
import { listedMachine } from "./fleet-shapes.ts";
import { fleetRoutes } from "./fleets.ts";
import { openApi } from "./openapi.ts";
import type { Served } from "./owned.ts";
import { projectRoutes } from "./projects.ts";
import { runRoutes } from "./runs.ts";
import { sessionRoutes } from "./sessions.ts";
import { count, inProject, projectName, runId, time } from "./shapes.ts";

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

function grantRoutes({ projects, stateDir }: Served): Route[] {
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

const MAX_PAGE = 1000;

const record = z
  .looseObject({
    seq: z.int(),
    at: time,
    type: z.string(),
    run: z.string().optional(),
    root: z.string().optional(),
    worker: z.string().optional(),
    ok: z.boolean().optional().describe("Of a tool that was used"),
  })
  .meta({ id: "AuditRecord" });

function auditRoutes({ projects }: Served): Route[] {
  return [
    route(
      {
        method: "GET",
        path: "/v1/audit",
        role: "read",
        summary:
          "Read the audit trail of a project, the newest records first. `cursor` is `next` of the page before; with a filter, a page may have few records although there are more.",
        query: z.strictObject({
          project: projectName.optional(),
          run: runId.optional().describe("Of this run, or of the tree below it"),
          type: z.string().max(60).optional(),
          since: time.optional(),
          cursor: count(1, Number.MAX_SAFE_INTEGER).optional(),
          limit: count(1, MAX_PAGE).optional(),
        }),
        answers: {
          200: z
            .object({ records: z.array(record), foreign: z.int(), next: z.int().nullable() })
            .meta({ id: "AuditPage" }),
        },
        faults: [404],
      },
      async ({ query: { project, cursor, limit = 100, run, type, since } }) => {
        const filter = {
          ...(run === undefined ? {} : { run }),
          ...(type === undefined ? {} : { type }),
          ...(since === undefined ? {} : { since: Date.parse(since) }),
        };
        const which = { limit, ...(cursor === undefined ? {} : { before: cursor }) };
        const page = await auditPage(projects.named(project).place, filter, which);
        return { status: 200, json: { ...page, records: page.records.map(withoutHostPath) } };
      },
    ),
  ];
}

/** A grant names the directory of the host. Its seal is over the whole: `corral audit verify` checks it on the machine. */
function withoutHostPath(record: SealedRecord): Omit<SealedRecord, "host"> {
  if (record.type !== "grant" || !("host" in record)) return record;
  const { host: _, ...shown } = record;
  return shown;
}

const QUEUE_MS = 3000;

function metricsRoutes({ stateDir, projects, metrics, sessions, machines: queues }: Served): Route[] {
  return [
    route(
      {
        method: "GET",
        path: "/metrics",
        role: "metrics",
        summary: "Read the metrics, in the text format of Prometheus.",
        answers: {
          200: { contentType: "text/plain", description: "Metrics of this service since its start" },
        },
      },
      async () => {
        const waiting: string[] = [];
        for (const { dir, name } of projects.all)
          waiting.push(...Array<string>(await countWaiting(stateDir, dir)).fill(name));
        const questions = () => waiting;
        const sizes = await Promise.all(projects.all.map((project) => queueSize(queues, project)));
        const machines = sizes.filter((size) => size !== null);
        const text = await metrics.text({
          questions,
          sessions: () => sessions.all.map(({ project }) => project),
          machines,
        });
        return { status: 200, contentType: metrics.contentType, pieces: once(text) };
      },
    ),
  ];
}

/** Null: it has no queue, or one that does not answer at once. The other metrics must not wait for it. */
async function queueSize(queues: QueueMachines, { name, dir }: ServedProject): Promise<QueueSize | null> {
  const asked = queues.list([dir]).catch(() => null);
  const machines = await Promise.race([asked, sleep(QUEUE_MS, null, { ref: false })]);
  if (machines === null) return null;
  return { project: name, machines: machines.length, slots: machines.reduce((sum, { slots }) => sum + slots, 0) };
}

async function* once(text: string): AsyncGenerator<string> {
  yield text;
}

const finding = z
  .looseObject({
    what: z.string(),
    state: z.enum(["ok", "warning", "missing"]),
    detail: z.string(),
  })
  .meta({ id: "Finding" });

function machineRoutes(
  { stateDir }: Pick<Served, "stateDir">,
  engineEnv: Readonly<Record<string, string | undefined>>,
): Route[] {
  let looking: ReturnType<typeof examineMachine> | null = null;
  /** It starts programs and takes long: all that ask meanwhile get the same answer. */
  const look = (): ReturnType<typeof examineMachine> => {
    looking ??= examineMachine({ stateDir, engineEnv }).finally(() => {
      looking = null;
    });
    return looking;
  };
  return [
    route(
      {
        method: "GET",
        path: "/v1/machine",
        role: "read",
        summary: "Examine this machine as `corral doctor` does. Only the role admin is shown paths of the host.",
        answers: { 200: z.object({ ok: z.boolean(), findings: z.array(finding) }).meta({ id: "Machine" }) },
      },
      async ({ caller }) => {
        const { ok, findings } = await look();
        const shown = permits(caller, "admin")
          ? findings
          : findings.map((one) => ({ ...one, detail: withoutHostPaths(one.detail, stateDir) }));
        return { status: 200, json: { ok, findings: shown } };
      },
    ),
  ];
}

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

/** Who asks: a client offers only what its token may do. */
function callerRoutes(version: string): Route[] {
  return [
    route(
      {
        method: "GET",
        path: "/v1/caller",
        role: "read",
        summary: "Say which token asks, what it may do, and which version answers.",
        answers: {
          200: z
            .object({ name: z.string(), roles: z.array(z.enum(ROLES)), version: z.string() })
            .meta({ id: "Caller" }),
        },
      },
      async ({ caller: { name, roles } }) => ({ status: 200, json: { name, roles, version } }),
    ),
  ];
}

function machinesRoutes({ projects, machines: queues }: Pick<Served, "projects" | "machines">): Route[] {
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
