import type { FleetSpec, ItemRequest, ItemResult } from "../../../src/fleet/model/item.ts";
import type {
  Claim,
  FleetQueue,
  IntendedSettlement,
  NewAttempt,
  Settlement,
  Taken,
} from "../../../src/fleet/model/queue.ts";
import type {
  Agreement,
  AttemptDelivery,
  Delivered,
  MemberMachine,
  Membership,
  NewMachine,
  Offer,
  Runner,
  Withdrawn,
  WorkStore,
} from "../../../src/fleet/model/work.ts";
import type { VirtualClock } from "./virtual-clock.ts";

export const LEASE_MS = 15_000;
const RENEWED_EVERY_MS = 3000;
/** A machine whose renewals failed for so long ends everything by itself. */
const LOST_AFTER_MS = 10_000;

export interface ModelItem {
  readonly request: ItemRequest;
  state: "queued" | "running" | "delivered" | "applying" | "done";
  attempt: number;
  run: string | null;
  /** Null: its coordinator. */
  machine: ModelMachine | null;
  notBefore: number;
  claimedAt: number;
  delivery: AttemptDelivery | null;
  intent: IntendedSettlement | null;
  settlement: Settlement | null;
}

export interface ModelFleet {
  readonly id: string;
  readonly spec: FleetSpec;
  state: Claim["fleet"];
  isDraining: boolean;
  agreement: Agreement | null;
  readonly items: ModelItem[];
}

export interface ModelMachine extends NewMachine {
  readonly id: string;
  renewedAt: number;
  left: boolean;
  /** Its process stands still, or does not reach the store. */
  cut: boolean;
  readonly lost: AbortController;
  readonly whys: Map<string, string | null>;
}

/** What the store of machines promises, in the plainest way, under a clock that tests move on. */
export class MemoryWork implements WorkStore {
  readonly fleets = new Map<string, ModelFleet>();
  readonly members: ModelMachine[] = [];
  readonly clock: VirtualClock;
  #wakes = new Set<() => void>();

  constructor(clock: VirtualClock) {
    this.clock = clock;
  }

  addFleet(id: string, spec: FleetSpec, requests: readonly ItemRequest[]): ModelFleet {
    const items = requests.map(
      (request): ModelItem => ({
        ...{ request, state: "queued", attempt: 0, run: null, machine: null, notBefore: 0, claimedAt: 0 },
        ...{ delivery: null, intent: null, settlement: null },
      }),
    );
    const fleet: ModelFleet = { id, spec, state: "running", isDraining: false, agreement: null, items };
    this.fleets.set(id, fleet);
    return fleet;
  }

  blobs(): never {
    throw new Error("nothing is brought here");
  }

  async referred() {
    return { trees: [], changesets: [], files: [] };
  }

  async replace(): Promise<void> {
    throw new Error("nothing is retried here");
  }

  notify(): void {
    for (const wake of [...this.#wakes]) wake();
  }

  async wake(ms: number, signal: AbortSignal): Promise<void> {
    await new Promise<void>((resolve) => {
      const done = (): void => {
        this.#wakes.delete(done);
        resolve();
      };
      this.#wakes.add(done);
      signal.addEventListener("abort", done);
      void this.clock.pause(ms, signal).then(done);
    });
  }

  async offer(fleet: string, agreement: Agreement): Promise<boolean> {
    this.fleetOf(fleet).agreement = agreement;
    this.notify();
    return true;
  }

  async drain(fleet: string): Promise<void> {
    this.fleetOf(fleet).isDraining = true;
    this.notify();
  }

  async waiting(fleet: string, { after, limit }: { after: number; limit: number }): Promise<ItemRequest[]> {
    const waiting = this.fleetOf(fleet).items.filter(({ state, attempt }) => state === "queued" && attempt === 0);
    return waiting
      .map(({ request }) => request)
      .filter(({ index }) => index > after)
      .slice(0, limit);
  }

  async settleWaiting(fleet: string, results: readonly ItemResult[]): Promise<number[]> {
    return results.flatMap((result) => {
      const item = this.fleetOf(fleet).items[result.index];
      if (item?.state !== "queued" || item.attempt !== 0) return [];
      Object.assign(item, { state: "done", settlement: { result, cacheKey: null, streams: null } });
      return [result.index];
    });
  }

  async deliveries(fleet: string, limit: number): Promise<Delivered[]> {
    return this.fleetOf(fleet)
      .items.filter(({ state }) => state === "delivered")
      .slice(0, limit)
      .map(({ request: { index, key }, attempt, run, machine, delivery }) => {
        if (delivery === null || run === null) throw new Error("a delivered item has no delivery");
        return { ...delivery, index, key, attempt, earlier: 0, run, machine: machine?.name ?? "" };
      });
  }

  async questions() {
    return [];
  }

  async readQuestions() {
    return [];
  }

  async answer(): Promise<boolean> {
    return false;
  }

  async reclaim(fleet: string, longestMs: number): Promise<number> {
    const left = this.fleetOf(fleet).items.filter(
      ({ state, machine, claimedAt }) =>
        state === "running" &&
        machine !== null &&
        !(this.isAlive(machine) && this.clock.now() - claimedAt <= longestMs),
    );
    for (const item of left) this.#queue(item, 0);
    if (left.length > 0) this.notify();
    return left.length;
  }

  isAlive({ left, renewedAt }: ModelMachine): boolean {
    return !left && this.clock.now() - renewedAt < LEASE_MS;
  }

  async machines(): Promise<MemberMachine[]> {
    const at = new Date(0).toISOString();
    return this.members
      .filter((machine) => this.isAlive(machine))
      .map(({ id, name, labels, slots, version, whys }) => {
        const fleets = [...whys].map(([fleet, why]) => ({ fleet, running: 0, why }));
        return { id, name, labels, slots, version, joinedAt: at, seenAt: at, running: 0, recentRate: null, fleets };
      });
  }

  async runners(fleet: string): Promise<readonly Runner[]> {
    const names = this.fleetOf(fleet).items.flatMap(({ state, machine }) =>
      state === "running" && machine !== null ? [machine.name] : [],
    );
    return [...Map.groupBy(names, (name) => name)].map(([name, { length }]) => ({ name, running: length }));
  }

  async join(machine: NewMachine): Promise<Membership & { readonly model: ModelMachine }> {
    const model: ModelMachine = {
      ...machine,
      ...{ id: `m${this.members.length}`, renewedAt: this.clock.now(), left: false, cut: false },
      ...{ lost: new AbortController(), whys: new Map() },
    };
    this.members.push(model);
    void this.#renewing(model);
    /** Everything that it asks is refused from the end of its lease on. */
    const reached = (): void => {
      if (model.cut) throw new Error("the store cannot be reached");
    };
    const mine = (fleet: string, index: number, attempt: number): ModelItem | null => {
      const item = this.fleetOf(fleet).items[index];
      const isMine = item?.state === "running" && item.machine === model && item.attempt === attempt;
      return isMine && this.isAlive(model) ? item : null;
    };
    return {
      model,
      id: model.id,
      lost: model.lost.signal,
      questions: {
        ask: async () => ({ ok: false, reason: "nothing is asked here" }),
        unask: async () => {},
        answers: async () => [],
      },
      offers: async () => {
        reached();
        return this.#offersFor(model);
      },
      refuses: async (fleet, why) => {
        reached();
        model.whys.set(fleet, why);
      },
      claim: async (fleets, count, newAttempt) => {
        reached();
        return this.isAlive(model) ? this.#claimed(model, fleets, count, newAttempt) : [];
      },
      deliver: async (fleet, index, attempt, delivery) => {
        reached();
        const item = mine(fleet, index, attempt);
        if (item === null) return fenced(index, attempt);
        Object.assign(item, { state: "delivered", delivery });
        this.notify();
        return { ok: true };
      },
      giveBack: async (fleet, index, attempt, afterMs) => {
        reached();
        const item = mine(fleet, index, attempt);
        if (item === null) return fenced(index, attempt);
        this.#queue(item, this.clock.now() + afterMs);
        this.notify();
        return { ok: true };
      },
      withdrawn: async () => {
        reached();
        return this.#withdrawnFrom(model);
      },
      [Symbol.asyncDispose]: async () => {
        model.left = true;
        for (const { items } of this.fleets.values())
          for (const item of items)
            if (item.state === "running" && item.machine === model) this.#queue(item, this.clock.now());
        this.notify();
      },
    };
  }

  /** Of the coordinator of a fleet. */
  queue(id: string): FleetQueue {
    const fleet = this.fleetOf(id);
    const own = (index: number, attempt: number, states: readonly string[]): ModelItem | null => {
      const item = fleet.items[index];
      return item?.attempt === attempt && states.includes(item.state) ? item : null;
    };
    /** What a machine runs is not the coordinator's to settle: only what it delivered. */
    const settleable = (index: number, attempt: number): ModelItem | null => {
      const item = own(index, attempt, ["running", "delivered", "applying"]);
      return item?.state === "running" && item.machine !== null ? null : item;
    };
    /** Another process owns the fleet. */
    const taken = (index: number, attempt: number): Taken | null => {
      if (fleet.state !== "taken") return null;
      const item = own(index, attempt, ["delivered", "applying", "done"]);
      return { ok: false, code: "taken", reason: "another process owns it", isInherited: item !== null };
    };
    return {
      claim: async (count, newAttempt) => {
        const due = fleet.items.filter((item) => item.state === "queued" && item.notBefore <= this.clock.now());
        const taken = fleet.state === "running" ? due.slice(0, count) : [];
        const items = taken.map((item) => this.#take(item, null, newAttempt()));
        const later = fleet.items.filter(({ state }) => state === "queued").map(({ notBefore }) => notBefore);
        const isElsewhere = ({ state, machine }: ModelItem) =>
          state === "delivered" || (state === "running" && machine);
        const elsewhere = fleet.items.filter(isElsewhere).length;
        return { items, nextAtMs: later.length === 0 ? null : Math.min(...later), fleet: fleet.state, elsewhere };
      },
      begin: async (index, attempt, intent) => {
        const item = settleable(index, attempt);
        const other = taken(index, attempt);
        if (other !== null) return other;
        if (item === null) return fenced(index, attempt);
        Object.assign(item, { state: "applying", intent });
        return { ok: true };
      },
      settle: async (index, attempt, settlement) => {
        const item = settleable(index, attempt);
        const other = taken(index, attempt);
        if (other !== null) return other;
        if (item === null) return fenced(index, attempt);
        Object.assign(item, { state: "done", settlement });
        return { ok: true };
      },
      requeue: async (index, attempt, notBeforeMs) => {
        const item = settleable(index, attempt);
        const other = taken(index, attempt);
        if (other !== null) return other;
        if (item === null || item.state === "applying") return fenced(index, attempt);
        this.#queue(item, notBeforeMs);
        this.notify();
        return { ok: true };
      },
      counts: async () => {
        const count = (...states: string[]) => fleet.items.filter(({ state }) => states.includes(state)).length;
        const running = count("running", "delivered", "applying");
        return {
          total: fleet.items.length,
          queued: count("queued"),
          running,
          done: count("done"),
          failed: 0,
          pending: 0,
        };
      },
      cancelQueued: async () => {
        fleet.state = "cancelled";
        const waiting = fleet.items.filter(({ state }) => state === "queued");
        for (const item of waiting) item.state = "done";
        this.notify();
        return waiting.length;
      },
    };
  }

  fleetOf(id: string): ModelFleet {
    const fleet = this.fleets.get(id);
    if (fleet === undefined) throw new Error(`there is no fleet ${id}`);
    return fleet;
  }

  /** Until its lease has ended. */
  async #renewing(model: ModelMachine): Promise<void> {
    while (!model.left && !model.lost.signal.aborted) {
      await this.clock.pause(RENEWED_EVERY_MS);
      const now = this.clock.now();
      if (!model.cut && this.isAlive(model)) model.renewedAt = now;
      else if (now - model.renewedAt >= LOST_AFTER_MS && !model.left)
        model.lost.abort(new Error("its lease has ended"));
    }
  }

  #offersFor({ labels }: ModelMachine): Offer[] {
    return [...this.fleets.values()].flatMap(({ id, spec, agreement, state, isDraining, items }): Offer[] => {
      const { machines } = spec;
      const isOpen = state === "running" && !isDraining && agreement !== null;
      if (!isOpen || !machines || machines.needs.some((need) => !labels.includes(need))) return [];
      const hasMore = items.some((item) => item.state === "queued" && item.notBefore <= this.clock.now());
      return [{ ...machines, fleet: id, project: "p", spec, agreement, hasMore }];
    });
  }

  #claimed(machine: ModelMachine, fleets: readonly string[], count: number, newAttempt: () => NewAttempt) {
    const offered = this.#offersFor(machine).filter(({ fleet }) => fleets.includes(fleet));
    const due = offered.flatMap(({ fleet }) =>
      this.fleetOf(fleet)
        .items.filter((item) => item.state === "queued" && item.notBefore <= this.clock.now())
        .map((item) => ({ fleet, item })),
    );
    return due.slice(0, count).map(({ fleet, item }) => ({ ...this.#take(item, machine, newAttempt()), fleet }));
  }

  #take(item: ModelItem, machine: ModelMachine | null, attempt: NewAttempt) {
    const claimedAt = this.clock.now();
    Object.assign(item, {
      state: "running",
      machine,
      run: attempt.run,
      attempt: item.attempt + 1,
      delivery: null,
      claimedAt,
    });
    return { request: item.request, attempt: item.attempt, earlier: 0, ...attempt };
  }

  #queue(item: ModelItem, notBefore: number): void {
    Object.assign(item, { state: "queued", machine: null, run: null, notBefore, delivery: null });
  }

  #withdrawnFrom(model: ModelMachine): Withdrawn[] {
    return [...this.fleets.values()].flatMap(({ id, state, isDraining, items }) =>
      items
        .filter((item) => item.state === "running" && item.machine === model)
        .flatMap(({ request: { index }, attempt }): Withdrawn[] => {
          if (state === "cancelled") return [{ fleet: id, index, attempt, why: "cancelled" as const }];
          return isDraining || state !== "running" ? [{ fleet: id, index, attempt, why: "drained" as const }] : [];
        }),
    );
  }
}

function fenced(index: number, attempt: number): Taken {
  return { ok: false, code: "fenced", reason: `attempt ${attempt} of item ${index} no longer counts` };
}
