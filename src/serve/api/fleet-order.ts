import { z } from "zod";
import { fleetNamed } from "../../declarations/fleet.ts";
import type { TemplateError } from "../../fleet/items/faults.ts";
import type { FleetSpec, ItemTemplate } from "../../fleet/model/item.ts";
import type { FleetStart } from "../../operations/fleet-start.ts";
import { itemsOfNamed } from "../../operations/fleet-start.ts";
import { workerNamed } from "../../operations/named-worker.ts";
import type { Corral } from "../../run/open/corral.ts";
import { ServiceFault } from "../http/fault.ts";
import { machinesOf, machinesOrder } from "./queue-machine-shapes.ts";
import { policyName, projectName, workerName } from "./shapes.ts";

/** From a request, paths come from items alone: these are judged as a stranger's, and a literal path of a template is not. */
const attach = z.string().max(4096).regex(/^\{/, "must begin with a field in braces, such as {path}");
const template = z.string().min(1).max(4096);

/** The body of a request that starts a fleet. */
export const fleetOrder = z
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
export async function startOf(body: FleetOrder, { project }: Pick<Corral, "project">): Promise<Start> {
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
