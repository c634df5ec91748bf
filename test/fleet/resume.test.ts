import { setTimeout as wait } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Outcome } from "../cli/cli-project.ts";
import { openSecondEngine, type SecondEngine } from "../run/second-engine.ts";
import { AT_LENGTH } from "../tiers/at-length.ts";
import { type KilledFleet, killedFleet } from "./killed-fleet.ts";

const TIMEOUT_MS = AT_LENGTH ? 900_000 : 180_000;
/** Long enough for a process to open the project, and to be somewhere in its items. */
const LATEST_KILL_MS = 1500;

/** Kills one process after another, each at some moment of its life; answers with what they had said. */
async function killedOften(fleet: KilledFleet, kills: number, perLife: number): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  for (let life = 0; life < kills; life += 1) {
    const before = (await fleet.fleet().catch(() => null))?.done ?? 0;
    const { child, ended } = await fleet.start();
    // The first of them has the items in the journal, for what was never loaded is started anew.
    await (life % 2 === 0 ? fleet.done(before + perLife) : wait(Math.random() * LATEST_KILL_MS));
    child.kill("SIGKILL");
    outcomes.push(await ended);
  }
  return outcomes;
}

/** Goes on until it is done. A fleet that the Engine has left may pause, and is gone on with. */
async function toItsEnd(fleet: KilledFleet, lives = 1): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  for (let life = 0; life < lives; life += 1) {
    const outcome = await (await fleet.start()).ended;
    outcomes.push(outcome);
    if (outcome.status === 0) return outcomes;
  }
  throw new Error(
    `it did not come to its end: ${JSON.stringify(outcomes.map(({ status, stderr }) => [status, stderr]))}`,
  );
}

describe("a fleet whose process is killed", () => {
  it.each([
    // Slow enough that there is something left to be killed in, even if all ran for LATEST_KILL_MS.
    { reuse: "scrubbed", items: AT_LENGTH ? 300 : 12, kills: AT_LENGTH ? 20 : 2, seconds: AT_LENGTH ? 0.05 : 0.8 },
    { reuse: "fresh", items: AT_LENGTH ? 300 : 8, kills: AT_LENGTH ? 20 : 2, seconds: AT_LENGTH ? 0.05 : 1 },
  ] as const)(
    "($reuse, $items items, $kills times) has every result once and right after it was resumed, and leaves nothing",
    async ({ reuse, items, kills, seconds }) => {
      await using fleet = await killedFleet({ reuse, items, concurrency: 3, seconds });
      const killed = await killedOften(fleet, kills, Math.max(1, Math.floor(items / kills / 4)));
      const whole = await toItsEnd(fleet);
      expect(killed.filter(({ signal }) => signal === "SIGKILL").length).toBeGreaterThan(kills / 2);
      await fleet.expectWhole([...killed, ...whole]);
    },
    TIMEOUT_MS,
  );
});

describe("a fleet that is asked to end", () => {
  it("waits at the first Ctrl-C for what runs, and goes on later with what has not begun", async () => {
    await using fleet = await killedFleet({ reuse: "fresh", items: 8, concurrency: 2, seconds: 0.3 });
    const { child, ended } = await fleet.start();
    await fleet.done(1);
    child.kill("SIGINT");
    const drained = await ended;
    expect(drained).toMatchObject({ status: 130, signal: null });
    expect(drained.stderr).toContain("corral fleet resume");
    const standing = await fleet.fleet();
    expect(standing).toMatchObject({ state: "paused" });
    expect(drained.stdout.split("\n").length - 1).toBe(standing?.done);
    await fleet.expectWhole([drained, ...(await toItsEnd(fleet))]);
  });

  it.each(["fresh", "scrubbed"] as const)(
    "ends what runs at the second, and runs it again later (%s)",
    async (reuse) => {
      await using fleet = await killedFleet({ reuse, items: 4, concurrency: 2, seconds: 0.7 });
      const { child, ended } = await fleet.start();
      await fleet.done(1);
      child.kill("SIGINT");
      await wait(50);
      child.kill("SIGINT");
      const stopped = await ended;
      expect(stopped).toMatchObject({ status: 130, signal: null });
      expect(await fleet.fleet()).toMatchObject({ state: "paused" });
      await fleet.expectWhole([stopped, ...(await toItsEnd(fleet))]);
    },
  );
});

describe("a fleet whose Engine is killed", () => {
  let engine: SecondEngine;

  beforeAll(async () => {
    engine = await openSecondEngine();
  });

  afterAll(async () => {
    await engine?.[Symbol.asyncDispose]();
  });

  // A cell of one item is lost with its Engine as that of a run is: `run/lost.test.ts`.
  it.each(AT_LENGTH ? (["scrubbed", "fresh"] as const) : (["scrubbed"] as const))(
    "(%s) tries again what was lost, and has every result once and right",
    async (reuse) => {
      const [items, kills] = AT_LENGTH ? [300, 3] : [8, 1];
      await using fleet = await killedFleet({ reuse, items, concurrency: 2, env: engine.env, seconds: 0.1 });
      let running = await fleet.start();
      const outcomes: Outcome[] = [];
      for (let kill = 0; kill < kills; kill += 1) {
        await fleet.done(Math.floor((items * (kill + 1)) / (kills + 2)));
        await wait(Math.random() * 300);
        await engine.stop("SIGKILL");
        await wait(500);
        await engine.start();
      }
      outcomes.push(await running.ended);
      for (let life = 0; life < 3 && outcomes.at(-1)?.status !== 0; life += 1) {
        running = await fleet.start();
        outcomes.push(await running.ended);
      }
      // What could not be removed while the Engine was away belongs to a process that is gone by now.
      await fleet.project.corral(["reap"], { env: engine.env });
      await fleet.expectWhole(outcomes);
    },
    TIMEOUT_MS,
  );

  it.runIf(AT_LENGTH)(
    "pauses where the Engine stays away for longer than items are tried again, and loses none",
    async () => {
      await using fleet = await killedFleet({
        reuse: "scrubbed",
        items: 40,
        concurrency: 2,
        env: engine.env,
        seconds: 0.1,
      });
      const { ended } = await fleet.start();
      await fleet.done(5);
      await engine.stop("SIGKILL");
      const paused = await ended;
      expect(paused.stderr).toContain("the container engine does not answer");
      expect(paused.status).toBe(1);
      await engine.start();
      const whole = await toItsEnd(fleet);
      await fleet.project.corral(["reap"], { env: engine.env });
      await fleet.expectWhole([paused, ...whole]);
    },
    TIMEOUT_MS,
  );
});
