import { randomBytes } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { dirname } from "node:path";
import { inject } from "vitest";
import { type FleetEnvironment, type OpenedFleet, resumeFleet, startFleet } from "../../src/fleet/fleet.ts";
import { FleetJournal } from "../../src/fleet/journal/journal.ts";
import type { FleetSpec, ItemRequest, ItemResult } from "../../src/fleet/model/item.ts";
import type { FleetStore } from "../../src/fleet/model/store.ts";
import { PostgresStore } from "../../src/fleet/postgres/postgres-store.ts";
import { connectServer } from "../../src/fleet/postgres/server.ts";
import type { FleetEvent, FleetSummary } from "../../src/fleet/running/events.ts";
import { projectPaths } from "../../src/state/state-dir.ts";
import { type OpenFixtureOptions, openProject, type ProjectFixture, type ProjectSpec } from "../run/project-fixture.ts";
import { storeKind } from "./journal/store-kind.ts";

/** A project with fleets of its own, on the Engine. Disposing removes all of it. */
export interface FleetFixture extends AsyncDisposable {
  readonly project: ProjectFixture;
  readonly journal: FleetStore;
  readonly events: readonly FleetEvent[];
  open(spec: Partial<FleetSpec>, items: readonly Partial<ItemRequest>[], stop?: AbortSignal): Promise<OpenedFleet>;
  /** A whole fleet: its summary, and the results that counted, by key. */
  map(spec: Partial<FleetSpec>, items: readonly Partial<ItemRequest>[], stop?: AbortSignal): Promise<Mapped>;
  resume(id: string): Promise<Mapped>;
  /** How many items have their turn at this moment, in all fleets. */
  running(): number;
}

export interface Mapped {
  readonly summary: FleetSummary;
  readonly results: ReadonlyMap<string, ItemResult>;
}

export const SPEC: FleetSpec = {
  version: 1,
  worker: "w",
  policy: null,
  concurrency: 3,
  reuse: "fresh",
  timeoutMs: null,
  retries: 0,
  maxFailures: null,
  cache: false,
  source: "a test",
};

export async function openFleetProject(spec: ProjectSpec, options: OpenFixtureOptions = {}): Promise<FleetFixture> {
  const project = await openProject({ policy: "batch", ...spec }, options);
  const journal = await openStore(project);
  const events: FleetEvent[] = [];
  const never = new AbortController().signal;
  const env = (stop = never): FleetEnvironment => ({
    run: project.corral.environment,
    store: journal,
    onEvent: (event) => void events.push(event),
    stop,
  });
  const open: FleetFixture["open"] = (fleet, items, stop) =>
    startFleet({ ...SPEC, ...fleet }, requests(items), env(stop));
  return {
    project,
    journal,
    events,
    open,
    map: async (fleet, items, stop) => await whole(await open(fleet, items, stop)),
    running() {
      const of = (type: FleetEvent["type"]): number => events.filter((event) => event.type === type).length;
      return of("started") - of("settled");
    },
    resume: async (id) => await whole(await resumeFleet(id, env())),
    async [Symbol.asyncDispose]() {
      await journal[Symbol.asyncDispose]();
      await project[Symbol.asyncDispose]();
    },
  };
}

/** One project of tests has its fleets in PostgreSQL. */
async function openStore({ stateDir, dir }: ProjectFixture): Promise<FleetStore> {
  const url = inject("postgres");
  const self = { self: "this test", isDead: () => true };
  if (storeKind() === "postgres") {
    if (url === undefined) throw new Error("this project of tests has no PostgreSQL server");
    const project = randomBytes(32).toString("hex");
    return await PostgresStore.open(await connectServer(url), { ...self, project, isAlive: () => false });
  }
  const path = projectPaths(stateDir, dir).fleets;
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  return await FleetJournal.open(path, self);
}

export async function* requests(items: readonly Partial<ItemRequest>[]): AsyncGenerator<ItemRequest> {
  for (const [index, item] of items.entries())
    yield { index, key: String(index), place: `item ${index}`, attachments: [], ...item };
}

export async function whole(opened: OpenedFleet): Promise<Mapped> {
  if (!opened.ok) throw new Error(JSON.stringify(opened));
  await using fleet = opened;
  const results = new Map<string, ItemResult>();
  const taking = (async () => {
    for await (const result of fleet.fleet.results) {
      if (results.has(result.key)) throw new Error(`${result.key} was told twice`);
      results.set(result.key, result);
    }
  })();
  const summary = await fleet.fleet.run();
  await taking;
  return { summary, results };
}
