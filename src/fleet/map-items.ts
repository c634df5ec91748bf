import { describeAll } from "../run/model/result.ts";
import type { Corral } from "../run/open/corral.ts";
import { startFleet } from "./fleet.ts";
import { describeCollisions } from "./items/collisions.ts";
import type { FleetSpec, ItemResult, ItemTemplate } from "./model/item.ts";
import { openJournal } from "./open-journal.ts";
import { itemRequests } from "./requests.ts";

/** What a program asks of a fleet. All that is left out is as on the command line. */
export interface MapRequest extends Partial<Omit<FleetSpec, "version" | "worker" | "source">> {
  readonly worker: string;
  /** Maps of fields, or paths: what the template is filled with. */
  readonly items: AsyncIterable<unknown> | Iterable<unknown>;
  readonly template: ItemTemplate;
  /** Folders whose files items may name, besides the project's. Absolute. */
  readonly within?: readonly string[];
  readonly signal?: AbortSignal;
}

/** Nothing was run: the worker may not, or the items are in each other's way. */
export class FleetRefused extends Error {
  override readonly name = "FleetRefused";
}

/**
 * Runs a worker over many items, each in a sandbox of its own, and tells of each result as it comes. All items are read
 * before the first runs. Whoever stops taking results lets what runs end, and the rest waits in the journal.
 *
 * @throws FleetRefused where nothing was run.
 */
export async function* mapItems(corral: Corral, request: MapRequest): AsyncGenerator<ItemResult> {
  const { worker, items, template, within = [], signal = new AbortController().signal, ...said } = request;
  const { environment: run, project, stateDir } = corral;
  using journal = await openJournal(stateDir, project.dir);
  const spec: FleetSpec = { ...DEFAULTS, ...project.fleet, ...said, worker, source: "a program" };
  const source = { kind: "values", values: items } as const;
  const reading = { cwd: project.dir, signal, leftOut: () => {} };
  const requests = itemRequests({ source, template, within, templateDir: project.dir }, reading);
  const opened = await startFleet(spec, requests, { run, journal, onEvent: () => {}, stop: signal });
  if (!opened.ok) throw new FleetRefused(reasonOf(opened));
  await using fleet = opened;
  const ended = fleet.fleet.run();
  // Looked at below; until then a failure is no unhandled rejection.
  ended.catch(() => {});
  try {
    yield* fleet.fleet.results;
  } finally {
    fleet.fleet.drain("nobody takes its results any more");
    await ended;
  }
}

const DEFAULTS: Omit<FleetSpec, "worker" | "source"> = {
  version: 1,
  policy: null,
  concurrency: "auto",
  reuse: "fresh",
  timeoutMs: null,
  retries: 0,
  maxFailures: null,
  cache: true,
};

function reasonOf(opened: Extract<Awaited<ReturnType<typeof startFleet>>, { ok: false }>): string {
  if ("violations" in opened)
    return describeAll(opened.violations)
      .map(({ message }) => message)
      .join("\n");
  if ("reason" in opened) return opened.reason;
  const { problem } = opened;
  return problem.code === "collisions" ? describeCollisions(problem.collisions) : JSON.stringify(problem);
}
