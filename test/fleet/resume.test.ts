import { setTimeout as wait } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import type { Outcome } from "../cli/cli-project.ts";
import { AT_LENGTH } from "../tiers/at-length.ts";
import { type KilledFleet, killedFleet, toItsEnd } from "./killed-fleet.ts";

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
      await fleet.expectWhole([...killed, whole]);
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
    await fleet.expectWhole([drained, await toItsEnd(fleet)]);
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
      await fleet.expectWhole([stopped, await toItsEnd(fleet)]);
    },
  );
});
