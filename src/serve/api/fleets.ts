import { z } from "zod";
import { fleetNamed } from "../../declarations/fleet.ts";
import { TemplateError } from "../../fleet/items/item-fields.ts";
import type { FleetSpec, ItemTemplate } from "../../fleet/model/item.ts";
import { type FleetStart, itemsOfNamed } from "../../operations/fleet-start.ts";
import { cancelFleet, listFleets, listItems, showFleet, showItem } from "../../operations/fleets.ts";
import { workerNamed } from "../../operations/workers.ts";
import type { Corral } from "../../run/open/corral.ts";
import { ServiceFault } from "../http/fault.ts";
import { type Route, route } from "../http/route.ts";
import { listedFleet, listedItem, machinesOf, machinesOrder, shownFleet, shownItem } from "./fleet-shapes.ts";
import { eventsOf, ownedFleet, refusePolicy, refuseStopping, type Served } from "./owned.ts";
import { count, EVENTS, flag, fleetId, inProject, more, policyName, projectName, workerName } from "./shapes.ts";

/** From a request, paths come from items alone: these are judged as a stranger's, and a literal path of a template is not. */
const attach = z.string().max(4096).regex(/^\{/, "must begin with a field in braces, such as {path}");
const template = z.string().min(1).max(4096);

/** The body of a request that starts a fleet. */
const fleetOrder = z
  .strictObject({
    project: projectName.optional(),
    fleet: workerName
      .optional()
      .describe("The name of a file in fleets/, which declares all; in place of worker and items"),
    worker: workerName.optional(),
    items: z
      .array(z.union([z.string(), z.record(z.string(), z.unknown())]))
      .max(1_000_000)
      .optional()
      .describe("One run for each: fields, or the path of a file below the project's folder"),
    template: z
      .strictObject({
        key: template.optional(),
        attach: z.array(attach).max(100).optional(),
        allowRead: z.array(template).max(100).optional(),
        allowWrite: z.array(template).max(100).optional(),
        input: z.unknown().optional().describe("JSON in which every text is a template"),
      })
      .default({}),
    concurrency: z
      .union([z.literal("auto"), z.int().min(0).max(1024)])
      .optional()
      .describe("Items that the service itself runs at once; 0 leaves all to machines"),
    reuse: z.enum(["fresh", "scrubbed"]).optional(),
    retries: z.int().min(0).max(100).optional(),
    maxFailures: z.int().min(0).max(1_000_000_000).nullable().optional(),
    timeoutMs: z.int().min(1).max(1_000_000_000).nullable().optional(),
    cache: z.boolean().optional(),
    policy: policyName.optional(),
    machines: machinesOrder.optional(),
  })
  .meta({ id: "FleetOrder" });
type FleetOrder = z.output<typeof fleetOrder>;

interface Start {
  readonly start: FleetStart;
  readonly mistakes: ((error: TemplateError) => Error) | null;
}

/** What the order starts in a project. */
async function startOf(body: FleetOrder, { project }: Pick<Corral, "project">): Promise<Start> {
  const { fleet: name, worker, items, template: texts, policy } = body;
  if (name !== undefined) {
    if (worker !== undefined || items !== undefined || Object.keys(texts).length > 0)
      throw new ServiceFault(400, "WRONG_REQUEST", "`fleet` names a file that declares worker, items and template");
    const named = await fleetNamed(project, name);
    const { mistakes, ...requests } = itemsOfNamed(named, project);
    const spec = specOf(named.worker, `fleets/${name}.yaml`, { ...named, policy: policy ?? named.policyName }, body);
    return { start: { kind: "new", spec, ...requests, allowEmpty: named.allowEmpty }, mistakes };
  }
  if (worker === undefined || items === undefined)
    throw new ServiceFault(400, "WRONG_REQUEST", "name a `fleet` of the project, or a `worker` and its `items`");
  workerNamed(worker, project);
  const spec = specOf(worker, "the service", { ...project.fleet, policy: policy ?? null }, body);
  const source = { kind: "values", values: items } as const;
  const filled = Object.fromEntries(Object.entries(texts).filter(([, value]) => value !== undefined)) as ItemTemplate;
  const requests = { source, template: filled, within: [], templateDir: project.dir };
  return { start: { kind: "new", spec, requests, cwd: project.dir }, mistakes: null };
}

function specOf(
  worker: string,
  source: string,
  otherwise: Partial<FleetSpec>,
  { concurrency, reuse, retries, maxFailures, timeoutMs, cache, machines }: FleetOrder,
): FleetSpec {
  return {
    version: 1,
    worker,
    source,
    policy: otherwise.policy ?? null,
    concurrency: concurrency ?? otherwise.concurrency ?? "auto",
    reuse: reuse ?? otherwise.reuse ?? "fresh",
    retries: retries ?? otherwise.retries ?? 0,
    maxFailures: maxFailures ?? otherwise.maxFailures ?? null,
    timeoutMs: timeoutMs ?? otherwise.timeoutMs ?? null,
    cache: cache ?? otherwise.cache ?? true,
    machines: machinesOf(machines, otherwise.machines ?? null),
  };
}

const MAX_ITEMS_BYTES = 64 * 1024 ** 2;
const MAX_PAGE = 1000;

const started = z.object({ fleet: fleetId, project: projectName }).meta({ id: "StartedFleet" });
const inFleet = z.strictObject({ fleet: fleetId });

export function fleetRoutes(served: Served): Route[] {
  const { projects, fleets, logs, over } = served;
  const continued = (kind: "resume" | "retry"): Route =>
    route(
      {
        method: "POST",
        path: `/v1/fleets/{fleet}/${kind}`,
        role: "run",
        summary:
          kind === "resume"
            ? "Continue a fleet that no process runs any more."
            : "Run the failed items of a fleet again, in place.",
        params: inFleet,
        answers: { 202: started },
        faults: [404, 422, 503],
      },
      async ({ params }) => {
        refuseStopping(over);
        const { project } = await ownedFleet(projects, params.fleet);
        const id = await fleets.start(project, async () => ({ kind, fleet: params.fleet }));
        return { status: 202, json: { fleet: id, project: project.name } };
      },
    );
  return [
    route(
      {
        method: "POST",
        path: "/v1/fleets",
        role: "run",
        summary: "Run a worker over many items, each in a sandbox of its own.",
        body: fleetOrder,
        maxBodyBytes: MAX_ITEMS_BYTES,
        answers: { 202: started },
        faults: [404, 413, 415, 422, 503],
      },
      async ({ body, caller }) => {
        refuseStopping(over);
        refusePolicy(body.policy, caller);
        const project = projects.named(body.project);
        let mistakes: ((error: TemplateError) => Error) | null = null;
        const id = await fleets
          .start(project, async (corral) => {
            const start = await startOf(body, corral);
            mistakes = start.mistakes;
            return start.start;
          })
          .catch((error: unknown) => {
            throw error instanceof TemplateError && mistakes !== null ? mistakes(error) : error;
          });
        return { status: 202, json: { fleet: id, project: project.name } };
      },
    ),
    route(
      {
        method: "GET",
        path: "/v1/fleets",
        role: "read",
        summary: "List fleets, the newest first.",
        query: z.strictObject({ ...inProject, limit: count(1, 500).optional() }),
        answers: { 200: z.object({ fleets: z.array(listedFleet), more }).meta({ id: "FleetList" }) },
      },
      async ({ query: { project, limit = 50 } }) => {
        const lists = await Promise.all(
          projects.chosen(project).map(async (one) => {
            return (await listFleets(one.place, limit + 1)).map((found) => withoutOwner(found, one.name));
          }),
        );
        const all = lists.flat().toSorted((a, b) => (a.createdAt < b.createdAt ? 1 : -1));
        return { status: 200, json: { fleets: all.slice(0, limit), more: all.length > limit } };
      },
    ),
    route(
      {
        method: "GET",
        path: "/v1/fleets/{fleet}",
        role: "read",
        summary: "Show a fleet: items by status, groups of failures, the slowest.",
        params: inFleet,
        answers: { 200: shownFleet },
        faults: [404],
      },
      async ({ params }) => {
        const { project } = await ownedFleet(projects, params.fleet);
        return { status: 200, json: withoutOwner(await showFleet(project.place, params.fleet), project.name) };
      },
    ),
    route(
      {
        method: "GET",
        path: "/v1/fleets/{fleet}/items",
        role: "read",
        summary: "List items in the order of the manifest. `cursor` is `next` of the page before.",
        params: inFleet,
        query: z.strictObject({
          state: z.enum(["queued", "running", "done"]).optional(),
          status: z.string().max(40).optional(),
          failed: flag.optional(),
          search: z.string().min(1).max(1000).optional().describe("A part of the key"),
          alike: z
            .string()
            .min(1)
            .max(4096)
            .optional()
            .describe("The key of an item: only those that failed as it did"),
          cursor: count(0, 999_999_999).optional(),
          limit: count(1, MAX_PAGE).optional(),
        }),
        answers: {
          200: z.object({ items: z.array(listedItem), next: z.int().nullable() }).meta({ id: "ItemPage" }),
        },
        faults: [404],
      },
      async ({ params, query: { cursor, limit = 100, ...filter } }) => {
        const { project } = await ownedFleet(projects, params.fleet);
        const items = await listItems(project.place, params.fleet, filter, { after: (cursor ?? 0) - 1, limit });
        const last = items.at(-1);
        const next = last === undefined || items.length < limit ? null : last.index + 1;
        return { status: 200, json: { items, next } };
      },
    ),
    route(
      {
        method: "GET",
        path: "/v1/fleets/{fleet}/item",
        role: "read",
        summary: "Show one item: its result, its request, what it printed, earlier attempts.",
        params: inFleet,
        query: z.strictObject({ key: z.string().min(1).max(4096) }),
        answers: {
          200: shownItem,
        },
        faults: [404],
      },
      async ({ params, query }) => {
        const { project } = await ownedFleet(projects, params.fleet);
        const { request, ...shown } = await showItem(project.place, params.fleet, query.key);
        const { input, attachments, fields } = request;
        const names = attachments.map(({ name }) => name);
        return { status: 200, json: { ...shown, request: { input, attachments: names, fields } } };
      },
    ),
    route(
      {
        method: "GET",
        path: "/v1/fleets/{fleet}/events",
        role: "read",
        summary: "Follow the events of a fleet that the service has started.",
        params: inFleet,
        isLasting: true,
        answers: { 200: EVENTS, 204: null },
        faults: [404, 409],
      },
      async ({ params, request, gone }) => {
        await ownedFleet(projects, params.fleet);
        return await eventsOf(params.fleet, logs, { request, gone, over });
      },
    ),
    continued("resume"),
    continued("retry"),
    route(
      {
        method: "POST",
        path: "/v1/fleets/{fleet}/cancel",
        role: "run",
        summary: "Cancel the waiting items of a fleet. Those that run end.",
        params: inFleet,
        answers: { 200: z.looseObject({ fleet: fleetId, outcome: z.enum(["ended", "removed", "cancelled"]) }) },
        faults: [404, 503],
      },
      async ({ params }) => {
        const { project } = await ownedFleet(projects, params.fleet);
        return { status: 200, json: await cancelFleet(project.place, params.fleet) };
      },
    ),
  ];
}

/** Without the process that runs it. */
function withoutOwner<F extends { readonly owner: string | null }>({ owner: _, ...fleet }: F, project: string) {
  return { ...fleet, project };
}
