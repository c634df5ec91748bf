import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import type { SealedRecord } from "../../audit/seal.ts";
import { DeclarationError } from "../../declarations/yaml/problem.ts";
import { countWaiting } from "../../operations/approvals.ts";
import { auditPage } from "../../operations/audit.ts";
import { fault, type Offered, type OtherContent } from "../../operations/contract/operation.ts";
import { type AnswerOf, CONTRACT } from "../../operations/contract/table.ts";
import type { QueueMachines } from "../../operations/fleets.ts";
import { listImages } from "../../operations/images.ts";
import { checkProject } from "../../operations/implied-project.ts";
import { examineMachine, listCells } from "../../operations/machine.ts";
import { measureState } from "../../operations/stored/stored-state.ts";
import { explainWorker, listWorkers, workerNamed } from "../../operations/workers.ts";
import { present } from "../../text/present.ts";
import { hiddenIn, withoutHostPaths } from "../http/answer.ts";
import { type Handlers, permits, type Route } from "../http/router.ts";
import type { QueueSize } from "../metrics/metrics.ts";
import type { ServedProject } from "../model/served.ts";
import { fleetHandlers } from "./fleets.ts";
import { ciHandlers, conversionHandlers } from "./jobs.ts";
import type { Served } from "./owned.ts";
import { approvalHandlers, changesetHandlers, grantHandlers, runHandlers } from "./runs.ts";
import { portHandlers, sessionHandlers, snapshotHandlers } from "./sessions.ts";

type Env = Readonly<Record<string, string | undefined>>;

/** All operations with what they do. One that nothing does, or that is not in the contract, does not compile. */
export function routesOf(served: Served, engineEnv: Env, version: string): Route[] {
  const handlers: Handlers<string> = {
    ...hostHandlers(served, engineEnv, version),
    ...auditHandlers(served),
    ...projectHandlers(served, engineEnv),
    ...runHandlers(served),
    ...fleetHandlers(served),
    ...conversionHandlers(served),
    ...ciHandlers(served),
    ...changesetHandlers(served),
    ...approvalHandlers(served),
    ...grantHandlers(served),
    ...sessionHandlers(served),
    ...portHandlers(served),
    ...snapshotHandlers(served),
  };
  return Object.values(CONTRACT).map((operation) => {
    return { ...operation, handle: handlers[operation.name] as Route["handle"] };
  });
}

const QUEUE_MS = 3000;

function hostHandlers(served: Served, engineEnv: Env, version: string): Handlers<"host"> {
  const { stateDir, projects, metrics, sessions, machines: queues, over, hide } = served;
  let looking: ReturnType<typeof examineMachine> | null = null;
  /** It starts programs and takes long: all that ask meanwhile get the same answer. */
  const look = (): ReturnType<typeof examineMachine> => {
    looking ??= examineMachine({ stateDir, engineEnv }).finally(() => {
      looking = null;
    });
    return looking;
  };
  let measuring: ReturnType<typeof measureState> | null = null;
  const measure = (): ReturnType<typeof measureState> => {
    measuring ??= measureState({ stateDir, engineEnv }).finally(() => {
      measuring = null;
    });
    return measuring;
  };
  const document = openApi(version);
  return {
    "host.health": async () => ({ status: over.aborted ? "stopping" : "ok" }),
    "host.caller": async ({ caller: { name, roles } }) => ({ name, roles, version }),
    async "host.machine"({ caller }) {
      const { ok, findings } = await look();
      const shown = permits(caller, "admin")
        ? findings
        : findings.map((one) => ({ ...one, detail: withoutHostPaths(one.detail, stateDir) }));
      return { ok, findings: shown };
    },
    async "host.machines"({ query: { project, limit = 200 } }) {
      const all = await queues.list(projects.chosen(project).map(({ dir }) => dir));
      const machines = (all ?? []).slice(0, limit).map(({ fleets, ...one }) => ({
        ...one,
        fleets: fleets.map(({ projectDir, ...fleet }) => ({ ...fleet, project: projects.nameOf(projectDir) ?? "" })),
      }));
      return { machines, more: (all?.length ?? 0) > limit, hasQueue: all !== null };
    },
    async "host.cells"() {
      const cells = await listCells({ stateDir, engineEnv });
      return { cells: cells.map(({ owner: { pid }, ...cell }) => ({ ...cell, owner: { pid } })) };
    },
    "host.stored": async () => ({
      kinds: (await measure()).map((kind) => ({ ...kind, trouble: kind.trouble && hide(kind.trouble) })),
    }),
    async "host.metrics"() {
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
      return { headers: { "content-type": metrics.contentType }, pieces: once(text) };
    },
    "host.openapi": async () => document,
  };
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

function auditHandlers({ projects }: Served): Handlers<"audit"> {
  return {
    async "audit.page"({ query: { project, cursor, limit = 100, run, type, since } }) {
      const filter = present({ run, type, since: since === undefined ? undefined : Date.parse(since) });
      const page = await auditPage(projects.named(project).place, filter, { limit, ...present({ before: cursor }) });
      return { ...page, records: page.records.map(withoutHostPath) };
    },
  };
}

/** A grant names the directory of the host. Its seal is over the whole: `corral audit verify` checks it on the machine. */
function withoutHostPath(record: SealedRecord): SealedRecord {
  if (record.type !== "grant" || !("host" in record)) return record;
  const { host: _, ...shown } = record;
  return shown;
}

function projectHandlers(
  { projects, stateDir, hide }: Served,
  engineEnv: Readonly<Record<string, string | undefined>>,
): Handlers<"projects" | "workers"> {
  return {
    "projects.list": async () => ({ projects: projects.all.map(({ name }) => ({ name })) }),
    async "projects.check"({ params }) {
      const report = await checkProject(projects.named(params.project).dir, { stateDir, engineEnv });
      return hiddenIn(report, hide) as typeof report;
    },
    async "projects.images"({ params }) {
      const problems: string[] = [];
      const project = await projects
        .named(params.project)
        .load()
        .catch((error: unknown) => {
          if (!(error instanceof DeclarationError)) throw error;
          problems.push(hide(error.message));
          return null;
        });
      return { images: await listImages({ stateDir, engineEnv, project }), problems };
    },
    async "workers.list"({ params }) {
      const { workers, problems } = await listWorkers(projects.named(params.project).dir, engineEnv);
      return { workers: workers.map(({ file: _, ...one }) => one), problems };
    },
    async "workers.explain"({ params }) {
      const project = await projects.named(params.project).load();
      const how = { project, policy: null, stateDir, engineEnv };
      return withoutHostMembers(await explainWorker(workerNamed(params.worker, project), how));
    },
  };
}

/** What a mount shows, and where its project is, is the host's business: a client knows it by its path in the cell. */
function withoutHostMembers<Shown>(shown: Shown): Shown {
  const isHostPath = (key: string, value: unknown): boolean =>
    ["host", "origin", "project", "viewOf"].includes(key) && typeof value === "string" && value.startsWith("/");
  return JSON.parse(JSON.stringify(shown, (key, value) => (isHostPath(key, value) ? undefined : value)));
}

type Json = Readonly<Record<string, unknown>>;

/** Errors that every operation has: a wrong request, token, role or host, what is not there, a bug, and the end of the service. */
const EVERYWHERE = [400, 401, 403, 404, 500, 503] as const;

const REASONS: Readonly<Record<number, string>> = {
  200: "Done",
  201: "Made",
  202: "Begun",
  204: "Nothing follows",
  400: "The request is wrong",
  401: "No token, or a wrong one",
  403: "The token lacks the role, or the request was not meant for this service",
  404: "There is no such thing",
  409: "It is not in the state for this",
  413: "The body is too large",
  415: "The body has another type",
  422: "The project refuses it; the violations say why",
  500: "An error of Corral",
  503: "The Engine, or a place, is missing; or the service is being stopped",
};

/** The description of the service, OpenAPI 3.1, made from the schemas that check requests. */
export function openApi(version: string): Json & AnswerOf<"host.openapi"> {
  const schemas = new Map<string, Json>();
  schemas.set("Fault", schemaIn(schemas)(fault, "output"));
  const paths: Record<string, Record<string, Json>> = {};
  for (const one of Object.values(CONTRACT)) {
    const path = paths[one.path] ?? {};
    paths[one.path] = path;
    path[one.method.toLowerCase()] = described(one, schemaIn(schemas));
  }
  return {
    openapi: "3.1.0",
    info: {
      title: "Corral",
      version,
      description: "Untrusted work in containers that see only what they were granted.",
    },
    paths,
    components: {
      schemas: Object.fromEntries([...schemas].toSorted(([a], [b]) => (a < b ? -1 : 1))),
      securitySchemes: { token: { type: "http", scheme: "bearer" } },
    },
  };
}

function described(
  { method, path, role, summary, params, query, body, takesForm, takesBytes, faults = [], ...answer }: Offered,
  schemaOf: SchemaOf,
): Json {
  const statuses = [...new Set([...EVERYWHERE, ...faults])].toSorted((a, b) => a - b);
  const errors = statuses.map((status) => [status, { description: REASONS[status], content: FAULT }] as const);
  return {
    operationId: operationId(method, path),
    summary,
    ...(role === null ? { security: [] } : { security: [{ token: [] }], "x-corral-role": role }),
    parameters: [...parameters(params, "path", schemaOf), ...parameters(query, "query", schemaOf)],
    ...(body === undefined
      ? {}
      : { requestBody: { required: true, content: contents(schemaOf(body, "input"), takesForm ?? false) } }),
    ...(takesBytes === undefined
      ? {}
      : {
          requestBody: {
            required: true,
            description: takesBytes.description,
            content: { [takesBytes.contentType]: { schema: { type: "string", format: "binary" } } },
          },
        }),
    responses: Object.fromEntries([...answersOf(answer, schemaOf), ...errors]),
  };
}

const FAULT = { "application/json": { schema: { $ref: "#/components/schemas/Fault" } } };

function operationId(method: string, path: string): string {
  const words = path
    .replace("/v1/", "")
    .split(/[/{}.]+/)
    .filter((word) => word !== "");
  return [method.toLowerCase(), ...words].join("_");
}

const EVENTS: OtherContent = {
  contentType: "text/event-stream",
  description:
    "Server-sent events; data is JSON with the fields type and at. Send the id of the last one as Last-Event-ID to continue; 204: all were sent",
};

/** What is not an error, by its status. */
function answersOf(
  { status = 200, output, events, bytes }: Pick<Offered, "status" | "output" | "events" | "bytes">,
  schemaOf: SchemaOf,
): (readonly [number, Json])[] {
  const other = events === undefined ? bytes : EVENTS;
  if (output !== undefined) {
    const content = { "application/json": { schema: schemaOf(output, "output") } };
    return [[status, { description: REASONS[status], content }]];
  }
  const content = { [other?.contentType ?? ""]: { schema: { type: "string" } } };
  const whole = [status, { description: other?.description, content }] as const;
  return events === undefined ? [whole] : [whole, [204, { description: REASONS[204] }]];
}

function contents(schema: Json, takesForm: boolean): Json {
  const json = { "application/json": { schema } };
  if (!takesForm) return json;
  const form = { type: "object", properties: { request: schema }, required: ["request"] };
  return {
    ...json,
    "multipart/form-data": { schema: { ...form, additionalProperties: { type: "string", format: "binary" } } },
  };
}

function parameters(schema: z.ZodObject | undefined, place: "path" | "query", schemaOf: SchemaOf): Json[] {
  return Object.entries(schema?.shape ?? {}).map(([name, field]) => {
    const text = schemaOf(field as z.ZodType, "input");
    return {
      name,
      in: place,
      required: place === "path" || !(field as z.ZodType).safeParse(undefined).success,
      schema: text,
    };
  });
}

type SchemaOf = (schema: z.ZodType, io: "input" | "output") => Json;

/** Schemas that have a name go to `named`, once, and are pointed to: a generated client has one type for each. */
function schemaIn(named: Map<string, Json>): SchemaOf {
  return (schema, io) => {
    const made = z.toJSONSchema(schema, { io, unrepresentable: "any" });
    const text = JSON.stringify(made).replaceAll('"#/$defs/', '"#/components/schemas/');
    const { $schema: _, $defs = {}, ...rest } = JSON.parse(text) as Json & { readonly $defs?: Record<string, Json> };
    for (const [name, one] of Object.entries($defs)) {
      const known = named.get(name);
      if (known !== undefined && JSON.stringify(known) !== JSON.stringify(one))
        throw new Error(`two schemas have the name ${name}`);
      named.set(name, one);
    }
    return rest;
  };
}
