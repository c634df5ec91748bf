import { describe, expect, it } from "vitest";
import type { FleetSpec } from "../../../src/fleet/model/item.ts";
import type { AttemptDelivery, ClaimedWork } from "../../../src/fleet/model/work.ts";
import { unrunResult } from "../../../src/fleet/running/item-result.ts";
import type { Brought, HostFleet, WorkEvent } from "../../../src/fleet/work/hosted-fleets.ts";
import { WorkingMachine } from "../../../src/fleet/work/working-machine.ts";
import { MemoryWork, type ModelFleet } from "./memory-work.ts";
import { VirtualClock } from "./virtual-clock.ts";

const SPEC: FleetSpec = {
  ...{ version: 1, worker: "w", policy: null, concurrency: 3, reuse: "fresh", timeoutMs: null, retries: 0 },
  ...{ maxFailures: null, cache: false, source: "a test" },
};
const AGREEMENT = { declarations: {}, images: {}, trees: {} };

function fleetOf(
  store: MemoryWork,
  id: string,
  items: number,
  machines: Partial<FleetSpec["machines"]> = {},
): ModelFleet {
  const spec: FleetSpec = { ...SPEC, machines: { needs: [], priority: 0, weight: 1, ...machines } };
  const requests = Array.from({ length: items }, (_, index) => ({
    index,
    key: `${index}`,
    place: "",
    attachments: [],
  }));
  const fleet = store.addFleet(id, spec, requests);
  fleet.agreement = AGREEMENT;
  return fleet;
}

function deliveryOf(item: ClaimedWork): AttemptDelivery {
  const result = { ...unrunResult(item, "succeeded"), run: item.run, attempt: item.attempt, exitCode: 0 };
  return { result, streams: null, changeset: null, more: null };
}

/** A machine whose items take `takesMs`, and end at once if they are to. */
function machineOn(
  store: MemoryWork,
  clock: VirtualClock,
  how: {
    readonly slots?: number;
    readonly takesMs?: number;
    readonly labels?: string[];
    readonly host?: HostFleet;
    readonly brings?: (item: ClaimedWork) => Brought | null;
  } = {},
) {
  const { slots = 2, takesMs = 100, labels = [] } = how;
  const events: WorkEvent[] = [];
  const [drain, stop] = [new AbortController(), new AbortController()];
  const most = { running: 0, now: 0, open: 0 };
  const host: HostFleet =
    how.host ??
    (async ({ fleet }) => {
      most.open += 1;
      return {
        ok: true,
        fleet: {
          worker: `of ${fleet}`,
          async attempt(item, { signal, turn }) {
            await turn().catch(() => {});
            if (signal.aborted) return { outcome: "given_up", why: "it was ended", isUnwell: false };
            most.now += 1;
            most.running = Math.max(most.running, most.now);
            await clock.pause(takesMs, signal);
            most.now -= 1;
            if (signal.aborted) return { outcome: "given_up", why: "it was ended", isUnwell: false };
            return how.brings?.(item) ?? { outcome: "delivery", delivery: deliveryOf(item) };
          },
          async [Symbol.asyncDispose]() {
            most.open -= 1;
          },
        },
      };
    });
  const run = async () => {
    const membership = await store.join({ name: "one", labels, slots, version: "0" });
    const machine = new WorkingMachine({
      membership,
      store,
      slots,
      host,
      now: clock.now,
      pause: clock.pause,
      drain: drain.signal,
      stop: stop.signal,
      onEvent: (event) => void events.push(event),
    });
    const ended = machine.run().finally(async () => {
      if (!membership.lost.aborted) await membership[Symbol.asyncDispose]();
    });
    return { model: membership.model, ended };
  };
  const told = (type: WorkEvent["type"]) => events.filter((event) => event.type === type);
  return { run, events, told, drain, stop, most };
}

function parts() {
  const clock = new VirtualClock();
  return { clock, store: new MemoryWork(clock) };
}

const states = ({ items }: ModelFleet) => {
  const counts: Record<string, number> = {};
  for (const { state } of items) counts[state] = (counts[state] ?? 0) + 1;
  return counts;
};

describe("a machine", () => {
  it("delivers every item once, and runs no more at once than it has slots", async () => {
    const { clock, store } = parts();
    const fleet = fleetOf(store, "a", 20);
    const machine = machineOn(store, clock, { slots: 3 });
    const { ended } = await machine.run();
    await clock.until(() => states(fleet).delivered === 20);
    machine.drain.abort();
    await clock.advance(2000);
    expect(await ended).toBe("drained");
    expect(machine.most).toMatchObject({ running: 3, now: 0, open: 0 });
    expect(machine.told("delivered")).toHaveLength(20);
    expect(new Set(fleet.items.map(({ attempt }) => attempt))).toEqual(new Set([1]));
  });

  it("begins no more than it asked for, and no attempt twice, whatever the store gives", async () => {
    const { clock, store } = parts();
    fleetOf(store, "a", 1);
    const hosted: ClaimedWork[] = [];
    const host: HostFleet = async () => ({
      ok: true,
      fleet: {
        worker: "w",
        async attempt(item, { signal }) {
          hosted.push(item);
          await clock.pause(60_000, signal);
          return { outcome: "given_up", why: "it was ended", isUnwell: false };
        },
        async [Symbol.asyncDispose]() {},
      },
    });
    const join = store.join.bind(store);
    store.join = async (of) => {
      const member = await join(of);
      const claim = member.claim.bind(member);
      let given = 0;
      member.claim = async (...asked) => {
        const [one] = await claim(...asked);
        if (one === undefined) return [];
        const other = (more: object): ClaimedWork => ({ ...one, ...more });
        // The run of one that runs already, one that runs already under another id, and fifty more.
        const twice = [one, other({ attempt: 2 }), other({ run: "0".repeat(12) })];
        const more = Array.from({ length: 50 }, (_, at) => other({ attempt: 3, run: `run ${given + at}` }));
        given += more.length;
        return [
          ...twice,
          ...more.map((each, index) => ({ ...each, request: { ...each.request, index: 100 + index } })),
        ];
      };
      return member;
    };
    const machine = machineOn(store, clock, { slots: 4, host });
    const { ended } = await machine.run();
    await clock.until(() => hosted.length > 0);
    await clock.advance(5000);
    expect(hosted.map(({ attempt, request }) => [request.index, attempt])).toEqual([
      [0, 1],
      [100, 3],
    ]);
    machine.stop.abort();
    await clock.advance(100);
    await ended;
  });

  it("looks at no offer of a fleet whose name no database gives", async () => {
    const { clock, store } = parts();
    fleetOf(store, "x".repeat(1000), 1);
    const fleet = fleetOf(store, "a", 1);
    const machine = machineOn(store, clock);
    const { ended } = await machine.run();
    await clock.until(() => states(fleet).delivered === 1);
    expect(machine.told("taking")).toEqual([{ type: "taking", fleet: "a", worker: "of a" }]);
    machine.stop.abort();
    await clock.advance(100);
    await ended;
  });

  it("serves two fleets at once within its slots, and one that comes later within seconds", async () => {
    const { clock, store } = parts();
    const first = fleetOf(store, "a", 4);
    const machine = machineOn(store, clock, { slots: 2 });
    const { ended } = await machine.run();
    await clock.until(() => states(first).delivered === 4);
    const [second, third] = [fleetOf(store, "b", 6), fleetOf(store, "c", 6)];
    const begunAt = clock.now();
    await clock.until(() => states(second).delivered === 6 && states(third).delivered === 6);
    expect(clock.now() - begunAt).toBeLessThan(3000);
    expect(machine.most.running).toBe(2);
    machine.stop.abort();
    await clock.advance(100);
    expect(await ended).toBe("stopped");
    expect(machine.most.open).toBe(0);
  });

  it("takes no item of a fleet that differs, says why once, and takes them when it agrees", async () => {
    const { clock, store } = parts();
    const fleet = fleetOf(store, "a", 2);
    const plain = machineOn(store, clock);
    let agrees = false;
    const standard: { host?: HostFleet } = {};
    const machine = machineOn(store, clock, {
      host: async (offer, signal) =>
        agrees
          ? ((await standard.host?.(offer, signal)) ?? never())
          : { ok: false, why: "worker w differs in command" },
    });
    standard.host = async () => ({
      ok: true,
      fleet: {
        worker: "w",
        attempt: async (item, { turn }) => {
          await turn();
          return { outcome: "delivery", delivery: deliveryOf(item) };
        },
        [Symbol.asyncDispose]: async () => {},
      },
    });
    void plain;
    const { model, ended } = await machine.run();
    await clock.advance(40_000);
    expect(states(fleet)).toEqual({ queued: 2 });
    expect(machine.told("not_taking")).toEqual([
      { type: "not_taking", fleet: "a", why: "worker w differs in command" },
    ]);
    expect(model.whys.get("a")).toBe("worker w differs in command");
    agrees = true;
    await clock.until(() => states(fleet).delivered === 2);
    expect(model.whys.get("a")).toBeNull();
    machine.stop.abort();
    await clock.advance(100);
    await ended;
  });

  it("takes further items of a fleet whose coordinator was away for a while, during which items of it ran here", async () => {
    const { clock, store } = parts();
    const fleet = fleetOf(store, "a", 3);
    const machine = machineOn(store, clock, { slots: 1, takesMs: 5000 });
    const { ended } = await machine.run();
    await clock.until(() => machine.told("started").length === 1);
    fleet.agreement = null;
    await clock.advance(3000);
    expect(machine.told("closed")).toEqual([]);
    fleet.agreement = AGREEMENT;
    await clock.until(() => states(fleet).delivered === 3);
    expect(machine.told("taking")).toHaveLength(1);
    machine.stop.abort();
    await clock.advance(100);
    await ended;
    expect(machine.most.open).toBe(0);
  });

  it("has only fleets whose labels it has", async () => {
    const { clock, store } = parts();
    const [plain, gpu] = [fleetOf(store, "a", 2), fleetOf(store, "b", 2, { needs: ["gpu"] })];
    const machine = machineOn(store, clock, { labels: ["big"] });
    const { ended } = await machine.run();
    await clock.advance(5000);
    expect([states(plain), states(gpu)]).toEqual([{ delivered: 2 }, { queued: 2 }]);
    machine.stop.abort();
    await clock.advance(100);
    await ended;
  });

  it("gives back what waits when it is drained, and lets run what runs", async () => {
    const { clock, store } = parts();
    const fleet = fleetOf(store, "a", 30);
    const machine = machineOn(store, clock, { slots: 2, takesMs: 400 });
    const { ended } = await machine.run();
    // Its items are quick: further ones are claimed ahead.
    await clock.until(() => (states(fleet).running ?? 0) > 2);
    const begun = machine.told("started").length;
    machine.drain.abort();
    await clock.advance(1000);
    expect(await ended).toBe("drained");
    expect(machine.told("started")).toHaveLength(begun);
    expect(states(fleet)).toEqual({ delivered: begun, queued: 30 - begun });
  });

  it("ends what its fleet withdraws when that is cancelled, and only what waits when it drains", async () => {
    const { clock, store } = parts();
    const [cancelled, drained] = [fleetOf(store, "a", 1), fleetOf(store, "b", 1)];
    const machine = machineOn(store, clock, { slots: 2, takesMs: 5000 });
    const { ended } = await machine.run();
    await clock.until(() => machine.told("started").length === 2);
    await store.queue("a").cancelQueued("it was cancelled");
    await store.drain("b");
    await clock.advance(500);
    expect([states(cancelled), states(drained)]).toEqual([{ queued: 1 }, { running: 1 }]);
    await clock.advance(5000);
    expect(states(drained)).toEqual({ delivered: 1 });
    machine.stop.abort();
    await clock.advance(100);
    await ended;
  });

  it("ends everything when its lease has ended, and what it brings late is refused and told", async () => {
    const { clock, store } = parts();
    const fleet = fleetOf(store, "a", 2);
    const machine = machineOn(store, clock, { slots: 2, takesMs: 60_000 });
    const { model, ended } = await machine.run();
    await clock.until(() => machine.told("started").length === 2);
    model.cut = true;
    await clock.advance(13_000);
    expect(await ended).toBe("lost");
    expect(machine.told("lost")).toHaveLength(1);
    expect(machine.told("delivered")).toEqual([]);
    await clock.advance(5000);
    expect(await store.reclaim("a", 86_400_000)).toBe(2);
    expect(states(fleet)).toEqual({ queued: 2 });
  });

  it("tells a late answer, and nothing of it counts", async () => {
    const { clock, store } = parts();
    const fleet = fleetOf(store, "a", 1);
    const machine = machineOn(store, clock, { slots: 1, takesMs: 500 });
    const { ended } = await machine.run();
    await clock.until(() => machine.told("started").length === 1);
    // Another attempt begins, as after a partition.
    Object.assign(fleet.items[0] ?? never(), { attempt: 2, machine: null });
    await clock.advance(1000);
    expect(machine.told("late")).toMatchObject([{ key: "0", attempt: 1 }]);
    expect(fleet.items[0]).toMatchObject({ state: "running", attempt: 2, delivery: null });
    machine.stop.abort();
    await clock.advance(100);
    await ended;
  });

  it("delivers after a store that was away for a moment", async () => {
    const { clock, store } = parts();
    const fleet = fleetOf(store, "a", 1);
    const machine = machineOn(store, clock, { slots: 1, takesMs: 500 });
    const { model, ended } = await machine.run();
    await clock.until(() => machine.told("started").length === 1);
    model.cut = true;
    await clock.advance(3000);
    expect(states(fleet)).toEqual({ running: 1 });
    model.cut = false;
    await clock.advance(1000);
    expect(states(fleet)).toEqual({ delivered: 1 });
    machine.stop.abort();
    await clock.advance(100);
    await ended;
  });

  it("rests if it lacks something, longer each time, and other machines get the items", async () => {
    const { clock, store } = parts();
    const fleet = fleetOf(store, "a", 1);
    const why = "the container engine does not answer";
    const machine = machineOn(store, clock, {
      slots: 1,
      takesMs: 10,
      brings: () => ({ outcome: "given_up", why, isUnwell: true }),
    });
    const { ended } = await machine.run();
    await clock.advance(60_000);
    expect(states(fleet)).toEqual({ queued: 1 });
    // After 2, 4, 8, 16 and 32 seconds.
    expect(machine.told("given_back").length).toBeGreaterThanOrEqual(4);
    expect(machine.told("given_back").length).toBeLessThanOrEqual(6);
    machine.stop.abort();
    await clock.advance(100);
    await ended;
  });

  it("asks the store at most once a second if nothing happens", async () => {
    const { clock, store } = parts();
    fleetOf(store, "a", 1, { needs: ["gpu"] });
    let asked = 0;
    const join = store.join.bind(store);
    store.join = async (machine) => {
      const membership = await join(machine);
      const offers = async () => {
        asked += 1;
        return await membership.offers();
      };
      return { ...membership, offers };
    };
    const machine = machineOn(store, clock);
    const { ended } = await machine.run();
    await clock.advance(20_000);
    expect(asked).toBeLessThanOrEqual(21);
    machine.stop.abort();
    await clock.advance(100);
    await ended;
  });
});

function never(): never {
  throw new Error("this cannot be");
}
