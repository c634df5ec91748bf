import { setTimeout as wait } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { openSecondEngine, type SecondEngine } from "../run/second-engine.ts";
import { AT_LENGTH } from "../tiers/at-length.ts";
import { killedFleet, toItsEnd } from "./killed-fleet.ts";

const TIMEOUT_MS = AT_LENGTH ? 900_000 : 180_000;
const KILLS = AT_LENGTH ? 3 : 1;
/** At one moment or another of some item, whatever it is doing. */
const LATEST_KILL_MS = 300;

let engine: SecondEngine;

beforeAll(async () => {
  engine = await openSecondEngine();
});

afterEach(() => engine.start());

afterAll(async () => {
  await engine?.[Symbol.asyncDispose]();
});

/** Containers of the Engine, in whatever state, and its volumes. */
async function left(): Promise<readonly unknown[]> {
  const { Volumes } = await engine.docker.listVolumes();
  return [...(await engine.docker.listContainers({ all: true })), ...(Volumes ?? [])];
}

describe("a fleet whose Engine is killed, and started again", () => {
  const cells = [
    { reuse: "fresh", driver: "engine" },
    { reuse: "scrubbed", driver: "engine" },
    // They do not end with the Engine, which only says what their image is.
    { reuse: "fresh", driver: "runc" },
  ] as const;

  it.each(cells)(
    "($reuse, $driver) goes on, has every result once and right, and leaves nothing",
    async ({ reuse, driver }) => {
      const items = 8 * KILLS;
      const env = { ...engine.env, CORRAL_DRIVER: driver };
      await using fleet = await killedFleet({ reuse, items, concurrency: 2, env, seconds: 0.3 });
      const { ended } = await fleet.start();
      for (let kill = 0; kill < KILLS; kill += 1) {
        await fleet.done(1 + Math.floor((items * kill) / KILLS));
        await wait(Math.random() * LATEST_KILL_MS);
        expect((await fleet.fleet())?.done).toBeLessThan(items);
        await engine.stop("SIGKILL");
        await wait(500);
        await engine.start();
      }
      const outcome = await ended;
      expect(outcome).toMatchObject({ status: 0, signal: null });
      // What could not be removed while the Engine was away.
      await fleet.project.corral(["reap"], { env });
      await fleet.expectWhole([outcome]);
      expect(await left()).toEqual([]);
    },
    TIMEOUT_MS,
  );

  it.runIf(AT_LENGTH)(
    "pauses if the Engine stays away for longer than items are tried again, and loses none",
    async () => {
      await using fleet = await killedFleet({ reuse: "scrubbed", items: 40, concurrency: 2, env: engine.env });
      const { ended } = await fleet.start();
      await fleet.done(5);
      await engine.stop("SIGKILL");
      const paused = await ended;
      expect(paused.stderr).toContain("the container engine does not answer");
      expect(paused.status).toBe(1);
      await engine.start();
      const whole = await toItsEnd(fleet);
      await fleet.project.corral(["reap"], { env: engine.env });
      await fleet.expectWhole([paused, whole]);
      expect(await left()).toEqual([]);
    },
    TIMEOUT_MS,
  );
});
