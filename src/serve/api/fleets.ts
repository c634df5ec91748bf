import { fleetNamed } from "../../declarations/fleet.ts";
import { ANY_MACHINE, type MachineNeeds } from "../../declarations/fleet-yaml.ts";
import { TemplateError } from "../../fleet/items/item-fields.ts";
import type { FleetSpec, ItemTemplate } from "../../fleet/model/item.ts";
import type { Given } from "../../operations/contract/table.ts";
import { type FleetStart, itemsOfNamed } from "../../operations/fleet-start.ts";
import { cancelFleet, listFleets, listItems, showFleet, showItem } from "../../operations/fleets.ts";
import { workerNamed } from "../../operations/workers.ts";
import type { Corral } from "../../run/open/corral.ts";
import { ServiceFault } from "../http/fault.ts";
import type { Handlers } from "../http/router.ts";
import { eventsOf, ownedFleet, refusePolicy, refuseStopping, type Served } from "./owned.ts";

type FleetOrder = Given<"fleets.start", "body">;

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

/** Absent: as the project declares it. */
function machinesOf(order: FleetOrder["machines"], otherwise: MachineNeeds | null): MachineNeeds | null {
  if (order === undefined) return otherwise;
  if (order === false) return null;
  const { needs, priority, weight } = order === true ? {} : order;
  const declared = otherwise ?? ANY_MACHINE;
  return {
    needs: needs === undefined ? declared.needs : [...new Set(needs)].toSorted(),
    priority: priority ?? declared.priority,
    weight: weight ?? declared.weight,
  };
}

export function fleetHandlers({ projects, fleets, logs, over }: Served): Handlers<"fleets"> {
  const continued = async (kind: "resume" | "retry", fleet: string) => {
    refuseStopping(over);
    const { project } = await ownedFleet(projects, fleet);
    return { fleet: await fleets.start(project, async () => ({ kind, fleet })), project: project.name };
  };
  return {
    async "fleets.start"({ body, caller }) {
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
      return { fleet: id, project: project.name };
    },
    async "fleets.list"({ query: { project, limit = 50 } }) {
      const lists = await Promise.all(
        projects.chosen(project).map(async (one) => {
          return (await listFleets(one.place, limit + 1)).map((found) => withoutOwner(found, one.name));
        }),
      );
      const all = lists.flat().toSorted((a, b) => (a.createdAt < b.createdAt ? 1 : -1));
      return { fleets: all.slice(0, limit), more: all.length > limit };
    },
    async "fleets.show"({ params }) {
      const { project } = await ownedFleet(projects, params.fleet);
      return withoutOwner(await showFleet(project.place, params.fleet), project.name);
    },
    async "fleets.items"({ params, query: { cursor, limit = 100, ...filter } }) {
      const { project } = await ownedFleet(projects, params.fleet);
      const items = await listItems(project.place, params.fleet, filter, { after: (cursor ?? 0) - 1, limit });
      const last = items.at(-1);
      return { items, next: last === undefined || items.length < limit ? null : last.index + 1 };
    },
    async "fleets.item"({ params, query }) {
      const { project } = await ownedFleet(projects, params.fleet);
      const { request, ...shown } = await showItem(project.place, params.fleet, query.key);
      const { input, attachments, fields } = request;
      return { ...shown, request: { input, attachments: attachments.map(({ name }) => name), fields } };
    },
    async "fleets.events"({ params, request, gone }) {
      await ownedFleet(projects, params.fleet);
      return await eventsOf(params.fleet, logs, { request, gone, over });
    },
    "fleets.resume": async ({ params }) => await continued("resume", params.fleet),
    "fleets.retry": async ({ params }) => await continued("retry", params.fleet),
    async "fleets.cancel"({ params }) {
      const { project } = await ownedFleet(projects, params.fleet);
      return await cancelFleet(project.place, params.fleet);
    },
  };
}

/** Without the process that runs it. */
function withoutOwner<F extends { readonly owner: string | null }>({ owner: _, ...fleet }: F, project: string) {
  return { ...fleet, project };
}
