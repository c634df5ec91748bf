import { fleetNamed } from "../../declarations/fleet.ts";
import { ANY_MACHINE, type MachineNeeds } from "../../declarations/fleet-yaml.ts";
import { TemplateError } from "../../fleet/items/item-fields.ts";
import type { SkippedEntry } from "../../fleet/items/matching-files.ts";
import { formatOf, type ItemSource } from "../../fleet/items/read-items.ts";
import type { FleetSpec, ItemTemplate } from "../../fleet/model/item.ts";
import { inChunks, jsonLine } from "../../fleet/report/results-export.ts";
import type { Given } from "../../operations/contract/table.ts";
import { type FleetStart, itemsOfNamed } from "../../operations/fleet-start.ts";
import {
  cancelFleet,
  type FleetPlace,
  fleetJunit,
  fleetLogs,
  fleetReport,
  fleetResults,
  fleetResultsCsv,
  listFleets,
  listItems,
  showFleet,
  showItem,
} from "../../operations/fleets.ts";
import { workerNamed } from "../../operations/workers.ts";
import type { Corral } from "../../run/open/corral.ts";
import { type HidePaths, hiddenIn } from "../http/answer.ts";
import { ServiceFault } from "../http/fault.ts";
import type { Handlers } from "../http/router.ts";
import { eventsOf, ownedFleet, refusePolicy, refuseStopping, type Served } from "./owned.ts";

type FleetOrder = Given<"fleets.start", "body">;

interface Start {
  readonly start: FleetStart;
  readonly mistakes: ((error: TemplateError) => Error) | null;
}

/** What the order starts in a project. */
async function startOf(
  body: FleetOrder,
  { project }: Pick<Corral, "project">,
  note: (text: string) => void,
): Promise<Start> {
  const { fleet: name, worker, template: texts, policy } = body;
  const told = { note, leftOut: ({ place, why }: SkippedEntry) => note(`left out ${place}: ${why}`) };
  const sources = [body.items, body.over, body.manifest].filter((one) => one !== undefined);
  if (name !== undefined) {
    if (worker !== undefined || sources.length > 0 || Object.keys(texts).length > 0)
      throw new ServiceFault(400, "WRONG_REQUEST", "`fleet` names a file that declares worker, items and template");
    const named = await fleetNamed(project, name);
    const { mistakes, ...requests } = itemsOfNamed(named, project);
    const spec = specOf(named.worker, `fleets/${name}.yaml`, { ...named, policy: policy ?? named.policyName }, body);
    const allowEmpty = body.allowEmpty ?? named.allowEmpty;
    return { start: { kind: "new", spec, ...requests, ...told, allowEmpty }, mistakes };
  }
  if (worker === undefined || sources.length !== 1)
    throw new ServiceFault(
      400,
      "WRONG_REQUEST",
      "name a `fleet` of the project, or a `worker` and one of `items`, `over` and `manifest`",
    );
  workerNamed(worker, project);
  const { source, shown } = sourceOf(body);
  const spec = specOf(worker, shown, { ...project.fleet, policy: policy ?? null }, body);
  const filled = Object.fromEntries(Object.entries(texts).filter(([, value]) => value !== undefined)) as ItemTemplate;
  const requests = { source, template: filled, within: [], templateDir: project.dir };
  const { allowEmpty = false } = body;
  return { start: { kind: "new", spec, requests, ...told, cwd: project.dir, allowEmpty }, mistakes: null };
}

/** One of them is there. `shown`: as the command line says where items are from. */
function sourceOf({ items = [], over, manifest }: FleetOrder): { readonly source: ItemSource; readonly shown: string } {
  if (over !== undefined) return { source: { kind: "glob", pattern: over }, shown: `--over ${over}` };
  if (manifest === undefined) return { source: { kind: "values", values: items }, shown: "the service" };
  const { text, format, name } = manifest;
  const stream = inPieces(text);
  return { source: { kind: "stream", stream, name, format: format ?? formatOf(name) }, shown: `--manifest ${name}` };
}

async function* inPieces(text: string): AsyncGenerator<string> {
  yield text;
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

/** Of one answer. */
const MAX_NOTES = 100;

export function fleetHandlers({ projects, fleets, logs, over, hide }: Served): Handlers<"fleets"> {
  const continued = async (kind: "resume" | "retry", fleet: string) => {
    refuseStopping(over);
    const { project } = await ownedFleet(projects, fleet);
    const after = logs.has(fleet) ? logs.endOf(fleet) : 0;
    const id = await fleets.start(project, async () => ({ kind, fleet }));
    return { fleet: id, project: project.name, after: String(after), notes: [] };
  };
  return {
    async "fleets.start"({ body, caller }) {
      refuseStopping(over);
      refusePolicy(body.policy, caller);
      const project = projects.named(body.project);
      let mistakes: ((error: TemplateError) => Error) | null = null;
      const notes: string[] = [];
      const note = (text: string): void => {
        if (notes.length < MAX_NOTES) notes.push(hide(text));
        else if (notes.length === MAX_NOTES) notes.push("there is more that was left out");
      };
      const id = await fleets
        .start(project, async (corral) => {
          const start = await startOf(body, corral, note);
          mistakes = start.mistakes;
          return start.start;
        })
        .catch((error: unknown) => {
          throw error instanceof TemplateError && mistakes !== null ? mistakes(error) : error;
        });
      return { fleet: id, project: project.name, after: "0", notes };
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
      const { slowest, lastFailures, ...fleet } = await showFleet(project.place, params.fleet);
      const results = { slowest: withoutPlaces(slowest, hide), lastFailures: withoutPlaces(lastFailures, hide) };
      return withoutOwner({ ...fleet, ...results }, project.name);
    },
    async "fleets.items"({ params, query: { cursor, limit = 100, ...filter } }) {
      const { project } = await ownedFleet(projects, params.fleet);
      const items = await listItems(project.place, params.fleet, filter, { after: (cursor ?? 0) - 1, limit });
      const last = items.at(-1);
      return { items, next: last === undefined || items.length < limit ? null : last.index + 1 };
    },
    async "fleets.item"({ params, query }) {
      const { project } = await ownedFleet(projects, params.fleet);
      const { request, result, ...shown } = await showItem(project.place, params.fleet, query.key);
      const { input, attachments, fields } = withoutPlaces(request, hide);
      const names = attachments.map(({ name }) => name);
      return { ...shown, result: withoutPlaces(result, hide), request: { input, attachments: names, fields } };
    },
    async "fleets.results"({ params, query: { form = "jsonl", status = null } }) {
      const { project } = await ownedFleet(projects, params.fleet);
      return { pieces: await resultsIn(form, project.place, params.fleet, status, hide) };
    },
    async "fleets.logs"({ params, query: { failed = false } }) {
      const { project } = await ownedFleet(projects, params.fleet);
      const logged = await fleetLogs(project.place, params.fleet, { failed });
      return { pieces: inChunks(jsonLines(logged)) };
    },
    async "fleets.events"({ params, request, gone }) {
      await ownedFleet(projects, params.fleet);
      return await eventsOf(params.fleet, logs, { request, gone, over });
    },
    "fleets.resume": async ({ params }) => await continued("resume", params.fleet),
    "fleets.retry": async ({ params }) => await continued("retry", params.fleet),
    async "fleets.pause"({ params: { fleet }, body: { now = false } }) {
      await ownedFleet(projects, fleet);
      return { fleet, outcome: fleets.pause(fleet, now) ? "pausing" : "not_running" };
    },
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

/** The field `path` of an item is that of a file of this machine. */
function withoutPlaces<Of>(shown: Of, hide: HidePaths): Of {
  return hiddenIn(shown, hide) as Of;
}

/** Folders of this machine have their names of the service, as in messages. */
async function resultsIn(
  form: NonNullable<Given<"fleets.results", "query">["form"]>,
  place: FleetPlace,
  fleet: string,
  status: string | null,
  hide: HidePaths,
): Promise<AsyncIterable<string>> {
  if (form === "jsonl") return inChunks(jsonLines(await fleetResults(place, fleet, { status }), hide));
  const reports = {
    csv: () => fleetResultsCsv(place, fleet, { status }),
    html: () => fleetReport(place, fleet),
    junit: () => fleetJunit(place, fleet),
  };
  const pieces = await reports[form]();
  return inChunks(hidden(pieces, hide));
}

async function* hidden(pieces: AsyncIterable<string>, hide: HidePaths): AsyncGenerator<string> {
  for await (const piece of pieces) yield hide(piece);
}

async function* jsonLines(values: AsyncIterable<object>, hide?: HidePaths): AsyncGenerator<string> {
  for await (const value of values) yield jsonLine(hide === undefined ? value : (hiddenIn(value, hide) as object));
}
