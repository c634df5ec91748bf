import { FleetStores, openFleetStore } from "../fleet/fleet-stores.ts";
import type {
  FailureGroup,
  ItemFilter,
  ItemLog,
  ItemResult,
  ListedItem,
  PendingItem,
  StoredItem,
} from "../fleet/model/item.ts";
import type { FleetRecord, FleetStore, Pace, SummaryLine } from "../fleet/model/store.ts";
import type { MachineFleet, MemberMachine } from "../fleet/model/work.ts";
import { reportHtml } from "../fleet/report/html.ts";
import { STATUSES } from "../fleet/report/measures/gathered.ts";
import { junitXml, resultsCsv } from "../fleet/report/results-export.ts";
import { openEngine } from "../isolation/open-engine.ts";
import { changesetStore } from "../run/changes/into-project.ts";
import { lockOwner } from "../state/owner.ts";
import type { ProjectPlace } from "./audit.ts";
import { recordEnded } from "./foreseen-changes.ts";
import { chosenId, ENOUGH_CANDIDATES, LATEST, noneText, RequestError, unknownError } from "./request-error.ts";

/** Longer than the pause between two readings of metrics. */
const IDLE_MS = 5 * 60_000;

/** A machine of a queue. Its fleets are those of the project, with the project's folder. */
export interface ListedMachine extends Omit<MemberMachine, "fleets"> {
  readonly fleets: readonly (MachineFleet & { readonly projectDir: string })[];
}

/** The machines of a project's queue, in the order of their names. @throws RequestError NO_QUEUE, QueueError */
export async function listMachines(place: FleetPlace): Promise<ListedMachine[]> {
  await using queues = new QueueMachines(place.stateDir, place.engineEnv);
  const machines = await queues.list([place.projectDir]);
  if (machines === null) throw new RequestError("NO_QUEUE", place.projectDir, NO_QUEUE);
  return machines;
}

/** The machines of queues, for a process that asks again and again: each queue is opened once, and asked once at a time. */
export class QueueMachines implements AsyncDisposable {
  readonly #stores: FleetStores;
  /** By the folder of the project. */
  readonly #asked = new Map<string, Promise<ListedMachine[] | null>>();

  /** `env`: Corral's own environment. */
  constructor(stateDir: string, env: FleetPlace["engineEnv"]) {
    this.#stores = new FleetStores(stateDir, env, IDLE_MS);
  }

  /** Of several projects, each once, in the order of their names. Null: none of them has a queue. @throws QueueError */
  async list(projectDirs: readonly string[]): Promise<ListedMachine[] | null> {
    const known = new Map<string, ListedMachine>();
    let hasQueue = false;
    for (const projectDir of projectDirs) {
      const machines = await this.#of(projectDir);
      hasQueue ||= machines !== null;
      for (const machine of machines ?? [])
        known.set(machine.id, { ...machine, fleets: [...(known.get(machine.id)?.fleets ?? []), ...machine.fleets] });
    }
    return hasQueue ? [...known.values()].toSorted((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0)) : null;
  }

  /** Who asks while an earlier question waits for the database gets the answer to that one. */
  async #of(projectDir: string): Promise<ListedMachine[] | null> {
    const earlier = this.#asked.get(projectDir);
    if (earlier !== undefined) return await earlier;
    const asked = this.#stores.withQueueOf(projectDir, async ({ work }) => {
      const machines = (await work?.machines()) ?? null;
      return (
        machines?.map((machine) => ({
          ...machine,
          fleets: machine.fleets.map((fleet) => ({ ...fleet, projectDir })),
        })) ?? null
      );
    });
    this.#asked.set(projectDir, asked);
    try {
      return await asked;
    } finally {
      this.#asked.delete(projectDir);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stores[Symbol.asyncDispose]();
  }
}

const NO_QUEUE =
  "the project has no queue, so no other machine runs its items: write `queue: postgres://user@host/database` into corral.yaml, or set CORRAL_QUEUE";

export interface FleetPlace extends ProjectPlace {
  /** Environment variables that locate the Engine and the queue. */
  readonly engineEnv: Readonly<Record<string, string | undefined>>;
}

/** `interrupted`: the process that loaded or ran it has died. It can be resumed if its items were loaded. */
export type ListedFleet = Omit<FleetRecord, "state"> & { readonly state: FleetRecord["state"] | "interrupted" };

/** A fleet in detail. Its pace is known while it runs. */
export interface FleetDetails extends ListedFleet, Pace {
  /** How many items ended with which status and error code; the most frequent first. */
  readonly summary: readonly SummaryLine[];
  /** Failed items by their last words; the 20 largest groups. */
  readonly failures: readonly FailureGroup[];
  readonly slowest: readonly ItemResult[];
  /** The newest first. */
  readonly lastFailures: readonly ItemResult[];
  /** Those that take part in the queue; none if other machines cannot run its items. */
  readonly machines: readonly MachineOfFleet[];
}

/** A machine, and what it does for one fleet. */
export interface MachineOfFleet
  extends Pick<MemberMachine, "id" | "name" | "labels" | "slots" | "version" | "seenAt" | "recentRate"> {
  /** Its items of this fleet, and of all fleets. */
  readonly running: number;
  readonly runningInAll: number;
  /** Why it takes none of this fleet; null: it does, or has not checked yet. */
  readonly why: string | null;
}

/** `ended`: it had ended before; `removed`: its items were never all read; `cancelled`: `items` that waited will not run. */
export type CancelledFleet = { readonly fleet: string } & (
  | { readonly outcome: "ended"; readonly state: FleetRecord["state"] }
  | { readonly outcome: "removed" }
  | { readonly outcome: "cancelled"; readonly items: number }
);

const MAX_LISTED = 100;
const MAX_SHOWN = 10;
/** Keys that are compared with an unknown one. */
const MAX_COMPARED = 1000;
/** Columns of a CSV for fields of items. */
const MAX_COLUMNS = 500;

/** The newest first. */
export async function listFleets(place: FleetPlace, limit = MAX_LISTED): Promise<ListedFleet[]> {
  await using store = await storeAt(place);
  return (await store.list(limit)).map(listing());
}

/** The store still has the state of the process that ran it. */
function listing(): (fleet: FleetRecord) => ListedFleet {
  const { isDead } = lockOwner();
  return (fleet) => {
    const isOngoing = fleet.state === "running" || fleet.state === "loading";
    return isOngoing && fleet.owner !== null && isDead(fleet.owner) ? { ...fleet, state: "interrupted" } : fleet;
  };
}

/** The fleet alone, which takes no longer for many items. @throws RequestError UNKNOWN_FLEET */
export async function findFleet(place: FleetPlace, asked: string): Promise<ListedFleet> {
  await using store = await storeAt(place);
  return listing()(await fleetIn(store, asked));
}

/** @throws RequestError UNKNOWN_FLEET */
export async function showFleet(place: FleetPlace, asked: string): Promise<FleetDetails> {
  await using store = await storeAt(place);
  const fleet = listing()(await fleetIn(store, asked));
  const { id } = fleet;
  const pace = fleet.state === "running" ? await store.pace(id) : { recentRate: null, leftMs: null };
  return {
    ...fleet,
    ...pace,
    summary: await store.summary(id),
    failures: await store.failureGroups(id),
    slowest: await store.slowest(id, MAX_SHOWN),
    lastFailures: await store.lastFailures(id, MAX_SHOWN),
    machines: fleet.endedAt === null ? await machinesOf(fleet, store) : [],
  };
}

async function machinesOf(
  { id, spec }: Pick<FleetRecord, "id" | "spec">,
  { work }: FleetStore,
): Promise<MachineOfFleet[]> {
  const { machines = null } = spec;
  if (machines === null || work === null) return [];
  return (await work.machines()).map(({ fleets, running: runningInAll, joinedAt: _, ...machine }) => {
    const own = fleets.find(({ fleet }) => fleet === id);
    const lacks = machines.needs.filter((label) => !machine.labels.includes(label));
    const why = lacks.length > 0 ? `it lacks the label ${lacks.join(", ")}` : (own?.why ?? null);
    return { ...machine, running: own?.running ?? 0, runningInAll, why };
  });
}

/** One item of a fleet, by its key. */
export interface FleetItem extends StoredItem {
  readonly fleet: string;
  readonly key: string;
}

/** @throws RequestError UNKNOWN_FLEET, UNKNOWN_ITEM */
export async function showItem(place: FleetPlace, asked: string, key: string): Promise<FleetItem> {
  await using store = await storeAt(place);
  const { id } = await fleetIn(store, asked);
  const item = await store.item(id, key);
  if (item === null)
    throw unknownError("UNKNOWN_ITEM", "item", key, await store.keys(id, MAX_COMPARED), "it has no items");
  return { fleet: id, key, ...item };
}

/**
 * Items in the order of the manifest, beginning after the item with the index `after` (-1: the first).
 *
 * @throws RequestError UNKNOWN_FLEET, and UNKNOWN_VALUE for a status that no item can have
 */
export async function listItems(
  place: FleetPlace,
  asked: string,
  filter: ItemFilter,
  page: { readonly after: number; readonly limit: number },
): Promise<ListedItem[]> {
  const { status } = filter;
  if (status !== undefined && !STATUSES.includes(status))
    throw unknownError("UNKNOWN_VALUE", "status", status, STATUSES);
  await using store = await storeAt(place);
  return await store.items((await fleetIn(store, asked)).id, filter, page);
}

/** What items printed, in the order of the manifest; items that printed nothing are left out. @throws RequestError UNKNOWN_FLEET */
export async function fleetLogs(
  place: FleetPlace,
  asked: string,
  { failed = false }: { readonly failed?: boolean } = {},
): Promise<AsyncGenerator<ItemLog, void, undefined>> {
  return await reading(place, asked, (store, { id }) => store.logs(id, { failed }));
}

/** Results of the items that have ended, as CSV with a column for each field of the items. @throws as {@link fleetResults} */
export async function fleetResultsCsv(
  place: FleetPlace,
  asked: string,
  filter: { readonly status?: string | null } = {},
): Promise<AsyncGenerator<string, void, undefined>> {
  const results = await fleetResults(place, asked, filter);
  return await reading(place, asked, async (store, { id }) =>
    resultsCsv(results, await store.fieldNames(id, MAX_COLUMNS)),
  );
}

/**
 * Results of the items that have ended, in the order of the manifest. `status`: only items with this one. The store
 * is open until the caller has taken them all, or returns.
 *
 * @throws RequestError UNKNOWN_FLEET, and UNKNOWN_VALUE for a status that no item can have
 */
export async function fleetResults(
  place: FleetPlace,
  id: string,
  { status = null }: { readonly status?: string | null } = {},
): Promise<AsyncGenerator<ItemResult, void, undefined>> {
  if (status !== null && !STATUSES.includes(status)) throw unknownError("UNKNOWN_VALUE", "status", status, STATUSES);
  return await reading(place, id, (store, { id }) => store.results(id, { status }));
}

/** A self-contained HTML page about a fleet, in pieces. @throws RequestError UNKNOWN_FLEET */
export async function fleetReport(place: FleetPlace, id: string): Promise<AsyncGenerator<string, void, undefined>> {
  return await reading(place, id, (store, { spec, counts, ...fleet }) => {
    const { worker, source, policy, reuse, concurrency } = spec;
    const about = { ...fleet, worker, source, policy, reuse, concurrency, items: counts.total };
    return reportHtml({ fleet: about, results: store.results(fleet.id), madeAt: new Date().toISOString() });
  });
}

/** Its results in the form of JUnit, in pieces. @throws RequestError UNKNOWN_FLEET */
export async function fleetJunit(place: FleetPlace, id: string): Promise<AsyncGenerator<string, void, undefined>> {
  return await reading(place, id, async (store, { spec: { worker }, counts, ...fleet }) =>
    junitXml({
      fleet: { ...fleet, worker, items: counts.total },
      summary: await store.summary(fleet.id),
      results: store.results(fleet.id),
      stderrOf: async (key) => (await store.item(fleet.id, key))?.streams.stderr ?? "",
    }),
  );
}

/** Rejects for an unknown fleet at once, and not with the first piece. */
async function reading<T>(
  place: FleetPlace,
  asked: string,
  read: (store: FleetStore, fleet: FleetRecord) => AsyncIterable<T> | Promise<AsyncIterable<T>>,
): Promise<AsyncGenerator<T, void, undefined>> {
  const known = async (): Promise<FleetRecord> => {
    await using store = await storeAt(place);
    return await fleetIn(store, asked);
  };
  const fleet = await known();
  return (async function* () {
    await using store = await storeAt(place);
    yield* await read(store, fleet);
  })();
}

/**
 * Items that wait will not run. A process that runs the fleet sees this at its next claim; if no process does, what
 * a dead one left running is ended here, which needs an Engine.
 *
 * @throws RequestError UNKNOWN_FLEET; EngineUnavailableError
 */
export async function cancelFleet(place: FleetPlace, asked: string): Promise<CancelledFleet> {
  await using store = await storeAt(place);
  const { id, state, endedAt } = await fleetIn(store, asked);
  if (endedAt !== null) return { fleet: id, outcome: "ended", state };
  if (state === "loading" && (await store.discard(id))) return { fleet: id, outcome: "removed" };
  const why = "it was cancelled";
  let items = await (await store.queue(id)).cancelQueued(why);
  const taken = await store.takeOver(id);
  if (taken.ok) {
    const { driver } = await openEngine(place);
    await driver.reap();
    for (const item of taken.running) await store.fenced(id, item);
    items += await (await store.queue(id)).cancelQueued(why);
    await store.end(id);
  }
  return { fleet: id, outcome: "cancelled", items };
}

/**
 * Removes fleets that have ended, with their items and results: those in `ids`, and all that ended before `endedBefore`
 * (milliseconds since 1970). Their items run again if a later fleet has them. Answers with the ids of what was removed.
 *
 * @throws RequestError UNKNOWN_FLEET, and FLEET_NOT_ENDED for one in `ids`; nothing is removed then.
 */
export async function removeFleets(
  place: FleetPlace,
  { ids = [], endedBefore = null }: { readonly ids?: readonly string[]; readonly endedBefore?: number | null },
): Promise<string[]> {
  await using store = await storeAt(place);
  const named: FleetRecord[] = [];
  for (const id of ids) named.push(await fleetIn(store, id));
  for (const { id, state, endedAt } of named) {
    const waits = state === "pending" ? ": changes of its items wait for consent" : "";
    const message = `fleet ${id} is ${state}${waits}; only a fleet that has ended can be removed`;
    if (endedAt === null || state === "pending") throw new RequestError("FLEET_NOT_ENDED", id, message);
  }
  const old =
    endedBefore === null
      ? []
      : (await store.list(Number.MAX_SAFE_INTEGER)).filter(
          ({ endedAt, state }) => state !== "pending" && endedAt !== null && Date.parse(endedAt) < endedBefore,
        );
  const removed: string[] = [];
  for (const id of new Set([...named, ...old].map((fleet) => fleet.id))) {
    if (await store.forget(id)) removed.push(id);
  }
  await store.shrink();
  return removed;
}

/** `asked`: its id, a prefix of it, or `latest`. @throws RequestError UNKNOWN_FLEET, AMBIGUOUS_ID */
export async function fleetIn(store: FleetStore, asked: string): Promise<FleetRecord> {
  const unknown = () => new RequestError("UNKNOWN_FLEET", asked, `${noneText("fleet", asked)} in this project`);
  const fitting = await (asked === LATEST ? store.list(1) : store.like(asked, ENOUGH_CANDIDATES));
  const known = fitting.map(({ id, spec, createdAt }) => ({ id, about: `${spec.worker}, ${createdAt}` }));
  const id = chosenId(asked, known, unknown);
  const fleet = await store.find(id);
  if (fleet === null) throw unknown();
  return fleet;
}

async function storeAt({ stateDir, projectDir, engineEnv }: FleetPlace): Promise<FleetStore> {
  await using stores = new FleetStores(stateDir, engineEnv);
  await recordEnded(changesetStore(stateDir), stores);
  return await openFleetStore(stateDir, projectDir, engineEnv);
}

/** The items of a fleet whose changes wait. The run of an item is the id of its changeset. */
export interface PendingItems {
  readonly fleet: string;
  readonly count: number;
  /** In the order of the manifest, read in pages: few are in memory, and each caller iterates anew. */
  each(): AsyncGenerator<PendingItem, void, undefined>;
}

/**
 * `asked`: the fleet's id, a prefix of it, or `latest`. `decides`: for a command that decides on them; only then an item whose
 * changes are not there ends as discarded. @throws RequestError UNKNOWN_FLEET, AMBIGUOUS_ID
 */
export async function pendingItems(
  { stateDir, projectDir, engineEnv }: FleetPlace,
  asked: string,
  { decides = false }: { readonly decides?: boolean } = {},
): Promise<PendingItems> {
  const changesets = changesetStore(stateDir);
  await using stores = new FleetStores(stateDir, engineEnv);
  await recordEnded(changesets, stores);
  await using store = await openFleetStore(stateDir, projectDir, engineEnv);
  const { id, counts } = await fleetIn(store, asked);
  return {
    fleet: id,
    count: counts.pending,
    async *each() {
      await using reading = await openFleetStore(stateDir, projectDir, engineEnv);
      for await (const item of reading.pending(id)) {
        if (changesets.isKnown(item.run)) yield item;
        // It was removed by hand, or another process recorded its end since the page was read; then this changes nothing.
        else if (decides)
          await reading.reviewed([{ fleet: id, item: item.index, run: item.run, counts: { discarded: 1 } }]);
      }
    },
  };
}
