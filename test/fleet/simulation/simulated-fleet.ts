import type { FleetSpec, ItemRequest, ItemResult } from "../../../src/fleet/model/item.ts";
import type { ClaimedItem } from "../../../src/fleet/model/queue.ts";
import type { AttemptDelivery, ClaimedWork } from "../../../src/fleet/model/work.ts";
import { PostgresStore } from "../../../src/fleet/postgres/postgres-store.ts";
import { type FleetParts, RunTroubles } from "../../../src/fleet/running/fleet-parts.ts";
import { unrunResult } from "../../../src/fleet/running/item-result.ts";
import { RunningFleet } from "../../../src/fleet/running/running-fleet.ts";
import type { Brought, HostFleet } from "../../../src/fleet/work/hosted-fleets.ts";
import { WorkingMachine } from "../../../src/fleet/work/working-machine.ts";
import { EngineTrouble } from "../../../src/isolation/port/driver.ts";
import type { Job } from "../../../src/run/model/job.ts";
import { unstartedResult } from "../../../src/run/model/result.ts";
import { seeded } from "../../faults/random.ts";
import { type Effect, type SimulatedChanges, simulatedRun } from "./simulated-changes.ts";
import type { SimulatedDatabase } from "./simulated-database.ts";
import { simulatedJob } from "./simulated-parts.ts";
import type { VirtualProcess, VirtualWorld } from "./virtual-world.ts";

const AGREEMENT = { declarations: {}, images: {}, trees: {} };
const REJOIN_MS = 1000;

/** What happened outside of the database. */
export interface Ledger {
  /** Effects that were applied, in their order. */
  readonly effects: Effect[];
  /** Final results that a coordinator reported. */
  readonly told: { readonly fleet: string; readonly result: ItemResult }[];
  /** Errors that are no part of any schedule. */
  readonly bugs: unknown[];
}

export interface Simulation {
  readonly world: VirtualWorld;
  readonly database: SimulatedDatabase;
  readonly ledger: Ledger;
  readonly seed: number;
  /** Coordinators see each other's leases alone, as in containers, and not whether a process lives. */
  readonly seesLeasesAlone: boolean;
}

/** How an attempt ends, and how long it takes: the same for the same seed. */
function fate(seed: number, index: number, attempt: number) {
  const random = seeded(seed ^ Math.imul(index + 1, 0x9e3779b1) ^ Math.imul(attempt, 0x85ebca6b));
  const takesMs = random() < 0.5 ? 2000 + random() * 8000 : 50 + random() * 1500;
  const chance = random();
  const status = chance < 0.8 ? "succeeded" : chance < 0.9 ? "failed" : "lost";
  return { takesMs, chance, status } as const;
}

export function requestsOf(count: number): ItemRequest[] {
  return Array.from({ length: count }, (_, index) => ({ index, key: `k${index}`, place: "", attachments: [] }));
}

async function storeOf({ world, database, seed, seesLeasesAlone }: Simulation, process: VirtualProcess) {
  const random = seeded(seed + world.now() + process.name.length);
  return await PostgresStore.open(database.connection(world, process, random), {
    ...{ project: "p", self: process.name },
    isDead: (owner) => !seesLeasesAlone && world.find(owner)?.state === "dead",
    isAlive: (owner) => !seesLeasesAlone && (world.find(owner)?.state ?? "dead") !== "dead",
  });
}

/** A process that runs items of others' fleets, as `corral work` does: it joins again when its lease was lost. */
export async function simulatedMachine(
  simulation: Simulation,
  process: VirtualProcess,
  how: { readonly labels: readonly string[]; readonly slots: number; readonly drain: AbortSignal },
): Promise<void> {
  const { world, ledger, seed } = simulation;
  const { labels, slots, drain } = how;
  const host: HostFleet = async () => ({
    ok: true,
    fleet: {
      worker: "w",
      async attempt(item, { signal, turn }): Promise<Brought> {
        await turn().catch(() => {});
        const { takesMs, chance, status } = fate(seed, item.request.index, item.attempt);
        const ended = new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
        if (!signal.aborted) await Promise.race([world.pause(takesMs), ended]);
        if (signal.aborted) return { outcome: "given_up", why: "it was ended", isUnwell: false };
        if (chance > 0.98) return { outcome: "given_up", why: "no room", isUnwell: true };
        if (chance > 0.96) throw new Error("a simulated bug of this machine");
        return { outcome: "delivery", delivery: deliveryOf(item, status) };
      },
      async [Symbol.asyncDispose]() {},
    },
  });
  try {
    const { work } = await storeOf(simulation, process);
    while (!drain.aborted) {
      try {
        const membership = await work.join({ name: process.name, labels, slots, version: "0" });
        const parts = { membership, store: work, slots, host, onEvent: () => {}, now: world.now, pause: world.pause };
        const end = await new WorkingMachine({ ...parts, drain, stop: new AbortController().signal }).run();
        await membership[Symbol.asyncDispose]();
        if (end !== "lost") return;
      } catch (error) {
        if (!/does not answer/.test(String(error))) throw error;
      }
      await world.pause(REJOIN_MS);
    }
  } catch (error) {
    ledger.bugs.push(error);
  }
}

function deliveryOf(item: ClaimedWork, status: string): AttemptDelivery {
  const error = status === "succeeded" ? null : { code: "WORKER_FAILED", message: "no" };
  const result = { ...unrunResult(item, status), run: item.run, attempt: item.attempt, exitCode: 0, error };
  return { result, streams: null, changeset: "c".repeat(64), more: null };
}

/** A process that makes a fleet, or takes one over, and runs it, as `corral map` and `corral fleet resume` do. */
export async function simulatedCoordinator(
  simulation: Simulation,
  process: VirtualProcess,
  changes: SimulatedChanges,
  how: {
    readonly fleet: { id: string | null; readonly spec: FleetSpec; readonly items: number };
    readonly drain: AbortSignal;
    readonly cancel: AbortSignal;
    readonly onTakenOver?: () => void;
  },
): Promise<void> {
  const { world, ledger, seed } = simulation;
  const { fleet } = how;
  try {
    const store = await storeOf(simulation, process);
    let applying: FleetParts["applying"] = [];
    if (fleet.id === null) {
      const id = await store.create(fleet.spec);
      fleet.id = id;
      const loaded = await store.load(id, from(requestsOf(fleet.items)), { collisionsIn: async () => null });
      if (!loaded.ok) throw new Error("the items were not loaded");
    } else {
      const taken = await store.takeOver(fleet.id);
      if (!taken.ok) return await store[Symbol.asyncDispose]();
      how.onTakenOver?.();
      await changes.port.withdraw(
        taken.running.map(({ run }) => run),
        "its process died",
      );
      for (const item of taken.running) await store.fenced(fleet.id, item);
      applying = taken.applying;
    }
    const { id } = fleet;
    await store.work.offer(id, AGREEMENT);
    const claims = new Map<string, ClaimedItem>();
    const queue = await store.queue(id);
    const { concurrency } = fleet.spec;
    const here = { running: concurrency === "auto" ? 1 : concurrency, warm: 0 };
    const running = new RunningFleet({
      ...{ id, spec: fleet.spec, store, cache: null, stop: new AbortController().signal, applying },
      queue: {
        async claim(...asked) {
          const claim = await queue.claim(...asked);
          for (const item of claim.items) claims.set(item.run, item);
          return claim;
        },
        begin: (...begun) => queue.begin(...begun),
        settle: (...settled) => queue.settle(...settled),
        requeue: (...requeued) => queue.requeue(...requeued),
        counts: () => queue.counts(),
        cancelQueued: (why) => queue.cancelQueued(why),
      },
      job: simulatedJob(world.now, changes.port),
      executor: {
        async run(job: Job) {
          try {
            await job.turn?.();
          } catch {
            const error = { code: "CANCELLED", message: "its fleet starts no more items" };
            return unstartedResult({ run: job.run, worker: "w" }, "cancelled", error);
          }
          const claimed = claims.get(job.run);
          if (claimed === undefined) throw new Error("it runs what it did not claim");
          const { attempt, request } = claimed;
          const { takesMs, status } = fate(seed, request.index, attempt);
          await world.pause(takesMs / 2);
          const result = simulatedRun(job.run, status);
          const begin = async () => (await job.begin?.(result)) ?? null;
          if (status === "succeeded")
            await changes.own({ fleet: id, index: request.index, attempt, run: job.run }, begin);
          return result;
        },
        async [Symbol.asyncDispose]() {},
      },
      troubles: new RunTroubles(),
      share: {
        concurrency: here,
        look: async () => here,
      },
      elsewhere: {
        work: store.work,
        agreed: "",
        offer: async () => {},
        settleChanges: changes.settle,
        pause: world.pause,
      },
      onEvent: () => {},
    });
    const onDrain = (): void => running.drain("a person stopped it");
    how.drain.addEventListener("abort", onDrain);
    const onCancel = (): void =>
      void queue.cancelQueued("a person cancelled it").catch((error: unknown) => ledger.bugs.push(error));
    how.cancel.addEventListener("abort", onCancel);
    if (how.cancel.aborted) onCancel();
    const taking = (async () => {
      for await (const result of running.results) ledger.told.push({ fleet: id, result });
    })();
    await running.run();
    await taking;
    await store[Symbol.asyncDispose]();
  } catch (error) {
    // Its process ends.
    world.kill(process);
    // The connection was away for long, or another process took the fleet over.
    if (!(error instanceof EngineTrouble) && !/does not answer/.test(String(error))) ledger.bugs.push(error);
  }
}

async function* from<T>(items: readonly T[]): AsyncGenerator<T> {
  yield* items;
}
