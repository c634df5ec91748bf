import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { startFleet } from "../../../src/fleet/fleet.ts";
import { Retries } from "../../../src/fleet/postgres/lost-connection.ts";
import { PostgresStore } from "../../../src/fleet/postgres/postgres-store.ts";
import { connectServer } from "../../../src/fleet/postgres/server.ts";
import type { FleetSummary } from "../../../src/fleet/running/events.ts";
import { mapItems } from "../../../src/operations/run-fleet.ts";
import { memoryEngine } from "../../run/memory-engine.ts";
import { openProject } from "../../run/project-fixture.ts";
import { requests, SPEC, whole } from "../fleet-fixture.ts";
import { serverPrograms, startServer } from "./server-fixture.ts";

/** Far shorter than an outage of these tests. */
const BOUNDS = { lockMs: 10_000, maxWaitMs: 100, sayAfterMs: 100, maxAnswerBytes: 1024 ** 2 };

/** A coordinator on a server of its own; its items wait until they are released. */
async function coordinator() {
  const server = await startServer();
  const [over, stop] = [new AbortController(), new AbortController()];
  const said: string[] = [];
  const [away, back] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const waiting = {
    over: over.signal,
    onAway(why: string) {
      said.push(why);
      away.resolve();
    },
    onBack() {
      said.push("it is back");
      back.resolve();
    },
  };
  const [running, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let runs = 0;
  const engine = memoryEngine({
    programs: {
      async w() {
        runs += 1;
        running.resolve();
        await released.promise;
        return 0;
      },
    },
  });
  const project = await openProject({ policy: "batch", workers: { w: { command: ["w"] } } }, { engine: engine.open });
  const self = { project: "p", self: "me", isDead: () => false, isAlive: () => true };
  const store = await PostgresStore.open(
    await connectServer(server.url, undefined, { ...BOUNDS, away: waiting }),
    self,
  );
  const env = { run: project.corral.environment, store, onEvent: () => {}, stop: stop.signal };
  const opened = await startFleet({ ...SPEC, concurrency: 2 }, requests([{}, {}, {}, {}, {}]), env);
  return {
    ...{ server, over, stop, said, away: away.promise, back: back.promise, running: running.promise },
    ...{ release: released.resolve, ended: whole(opened), runs: () => runs },
    async [Symbol.asyncDispose]() {
      stop.abort();
      over.abort();
      released.resolve();
      await store[Symbol.asyncDispose]();
      await project[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

describe.skipIf(serverPrograms() === null)("a coordinator whose database is away", () => {
  it("says so once, waits for longer than any statement may take, and continues without losing a result", async () => {
    await using c = await coordinator();
    await c.running;
    await c.server.kill();
    c.release();
    await c.away;
    await sleep(10 * BOUNDS.maxWaitMs);
    await c.server.start();
    await c.back;
    const { summary, results } = await c.ended;
    expect(summary).toMatchObject({ state: "done", done: 5, byStatus: { succeeded: 5 } });
    expect(results.size).toBe(5);
    expect(c.runs()).toBe(5);
    expect(c.said).toEqual([expect.stringMatching(/^PostgreSQL at .* does not answer: .*\. Start it/), "it is back"]);
  }, 30_000);

  it("ends with the reason when its wait is ended", async () => {
    await using c = await coordinator();
    await c.running;
    await c.server.kill();
    c.release();
    await c.away;
    const startedAt = performance.now();
    c.over.abort();
    await expect(c.ended).rejects.toThrow(/does not answer/);
    expect(performance.now() - startedAt).toBeLessThan(15_000);
    expect(c.said).toHaveLength(1);
  }, 30_000);

  it("ends with the reason and how to continue when its results are no longer read", async () => {
    await using server = await startServer();
    const [running, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    let runs = 0;
    const engine = memoryEngine({
      programs: {
        async w() {
          runs += 1;
          if (runs === 1) return 0;
          running.resolve();
          await released.promise;
          return 0;
        },
      },
    });
    const declared = { policy: "batch", workers: { w: { command: ["w"] } }, yaml: { queue: server.url } };
    await using project = await openProject(declared, { engine: engine.open });
    const results = mapItems(project.corral, { worker: "w", items: [{ n: 0 }, { n: 1 }] });
    await results.next();
    await running.promise;
    await server.kill();
    released.resolve();
    // As `break` does.
    const left = results.return({} as FleetSummary);
    await expect(left).rejects.toThrow(/does not answer: .* continue with `corral fleet resume /);
  }, 60_000);
});

it("waits for no answer of a network that carries nothing when its wait is ended", async () => {
  const over = new AbortController();
  const away = Promise.withResolvers<string>();
  const waiting = { over: over.signal, onAway: away.resolve, onBack: () => {} };
  const retries = new Retries({ ...BOUNDS, away: waiting }, (error) => (error as Error).message);
  const refused = Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });
  const asked = [() => new Promise<never>(() => {}), () => Promise.reject(refused)].map((attempt) =>
    expect(retries.run(attempt, () => false)).rejects.toBe(refused),
  );
  expect(await away.promise).toBe("connect ECONNREFUSED");
  over.abort();
  await Promise.all(asked);
});
