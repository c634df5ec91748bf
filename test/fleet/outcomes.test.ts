import { describe, expect, it } from "vitest";
import { startFleet } from "../../src/fleet/fleet.ts";
import type { FleetEvent } from "../../src/fleet/running/events.ts";
import { RunTroubles } from "../../src/fleet/running/fleet-parts.ts";
import type { ItemExecutor } from "../../src/fleet/running/item-result.ts";
import { RunningFleet } from "../../src/fleet/running/running-fleet.ts";
import { type Driver, EngineTrouble } from "../../src/isolation/port/driver.ts";
import { rootSandbox } from "../../src/run/model/permission.ts";
import { unstartedResult } from "../../src/run/model/result.ts";
import { type FleetFixture, openFleetProject, SPEC, whole } from "./fleet-fixture.ts";

const ALONE = { running: 1, warm: 0 };
const PROJECT = { workers: { w: { command: ["true"] } } };

async function* twoItems() {
  for (const index of [0, 1]) yield { index, key: `${index}`, place: `item ${index}`, attachments: [] };
}

/** A fleet whose items run as `run` says, with everything else as it is. */
async function fleetRunBy(f: FleetFixture, run: ItemExecutor["run"], onEvent: (event: FleetEvent) => void) {
  const { environment, project } = f.project.corral;
  const spec = { ...SPEC, retries: 3, maxFailures: 0 };
  const id = await f.journal.create(spec);
  const signal = new AbortController().signal;
  await f.journal.load(id, twoItems(), { collisionsIn: async () => null, signal });
  const caller = await rootSandbox(environment, null);
  const worker = project.workers.get("w");
  if (worker === undefined) throw new Error("the fixture's project is not as it should be");
  return new RunningFleet({
    id,
    spec,
    store: f.journal,
    queue: await f.journal.queue(id),
    cache: null,
    job: { worker, caller: caller, sandbox: caller, reads: [], env: environment },
    executor: { run, [Symbol.asyncDispose]: async () => {} },
    troubles: new RunTroubles(),
    share: { concurrency: ALONE, look: async () => ALONE },
    elsewhere: null,
    onEvent,
    stop: signal,
  });
}

describe("an item that was cancelled while its fleet goes on", () => {
  it("is not tried again, and is no failure: somebody wanted it so", async () => {
    await using f = await openFleetProject(PROJECT);
    const events: FleetEvent[] = [];
    const error = { code: "CANCELLED", message: "The run was cancelled." };
    const fleet = await fleetRunBy(
      f,
      async (job) => unstartedResult({ run: job.run, worker: "w" }, "cancelled", error),
      (event) => void events.push(event),
    );
    const { summary, results } = await whole({ ok: true, fleet, [Symbol.asyncDispose]: async () => {} });
    expect(summary).toMatchObject({ state: "done", byStatus: { cancelled: 2 }, done: 2 });
    expect([...results.values()].map(({ attempt }) => attempt)).toEqual([1, 1]);
    expect(events.filter(({ type }) => type === "draining")).toEqual([]);
  });
});

describe("an item that the Engine lost", () => {
  it("says how, to whoever reads the fleet's results", async () => {
    await using f = await openFleetProject(PROJECT);
    const { environment } = f.project.corral;
    const start: Driver["start"] = () => Promise.reject(new EngineTrouble("connect ENOENT /there/docker.sock"));
    const stop = new AbortController();
    const messages: (string | undefined)[] = [];
    const opened = await startFleet(SPEC, twoItems(), {
      run: { ...environment, driver: { ...environment.driver, start }, itemCells: { ...environment.itemCells, start } },
      store: f.journal,
      onEvent: (event) => {
        if (event.type !== "settled") return;
        messages.push(event.result.error?.message);
        stop.abort();
      },
      stop: stop.signal,
    });
    await whole(opened);
    expect(messages[0]).toBe(
      "The container engine failed, not the worker. `corral doctor` checks the engine. (connect ENOENT /there/docker.sock)",
    );
    // What a worker's caller may read of it holds no host path.
    const ended = f.project.events.find((event) => event.type === "ended");
    expect(ended?.type === "ended" && ended.result.error?.message).not.toContain("docker.sock");
  });
});
