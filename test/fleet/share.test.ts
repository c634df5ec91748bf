import { availableParallelism } from "node:os";
import { dirname } from "node:path";
import { describe, expect, it, vi } from "vitest";
import { startFleet } from "../../src/fleet/fleet.ts";
import { concurrencyBeside } from "../../src/fleet/running/fleet-parts.ts";
import type { RunningFleet } from "../../src/fleet/running/running-fleet.ts";
import { announceFleet, countLiveFleets, makeOwnerDir, removeOwnerDir } from "../../src/state/live-dir.ts";
import { currentOwner } from "../../src/state/owner.ts";
import { sh } from "../run/project-fixture.ts";
import { openFleetProject, SPEC } from "./fleet-fixture.ts";

/** More than the most that may pass until a fleet has looked and its items have ended. */
const SOON = { timeout: 60_000, interval: 50 };

describe("how much a fleet has beside others", () => {
  it.each([
    ["auto", 8, 1, 8],
    ["auto", 8, 3, 2],
    ["auto", 2, 5, 1],
    [6, 8, 3, 6],
  ] as const)("%s of %i among %i fleets is %i", (concurrency, capacity, fleets, running) => {
    expect(concurrencyBeside({ concurrency, reuse: "fresh" }, capacity, fleets).running).toBe(running);
  });
});

describe("fleets of one machine", () => {
  it("know of each other, whichever project they are of, and count none of the dead", async () => {
    await using f = await openFleetProject({ workers: { w: { command: ["true"] } } });
    const { ownerDir } = f.project.corral.environment;
    const liveDir = dirname(ownerDir);
    const self = currentOwner();
    const count = async (): Promise<number> => await countLiveFleets(liveDir, self);
    expect(await count()).toBe(0);
    const other = await makeOwnerDir(liveDir, self);
    const dead = await makeOwnerDir(liveDir, { ...self, startTicks: "1" });
    await using _ = await announceFleet(ownerDir, "a");
    await announceFleet(dead, "a");
    const its = await announceFleet(other, "a");
    expect(await count()).toBe(2);
    await its[Symbol.asyncDispose]();
    expect(await count()).toBe(1);
    for (const dir of [other, dead]) await removeOwnerDir(dir);
  });

  it("are not taken for running where they could not be begun", async () => {
    await using f = await openFleetProject({ workers: { w: { command: ["true"] } } });
    const { environment } = f.project.corral;
    const run = { ...environment, ownerDir: "/dev/null/no-folder" };
    async function* one() {
      yield { index: 0, key: "0", place: "item 0", attachments: [] };
    }
    const stop = new AbortController().signal;
    await expect(startFleet(SPEC, one(), { run, store: f.journal, onEvent: () => {}, stop })).rejects.toThrow(
      "ENOTDIR",
    );
    expect(await f.journal.list()).toMatchObject([{ state: "paused", owner: null, counts: { queued: 1 } }]);
  });

  it("have equal parts of it: one that ran alone gives half away, and has it back when the other ends", async () => {
    await using f = await openFleetProject({ workers: { w: { command: sh("sleep 2") } }, zones: {} });
    const alone = 2 * availableParallelism();
    const many = Array.from({ length: 500 }, () => ({}));
    const first = await f.open({ concurrency: "auto" }, many);
    if (!first.ok) throw new Error(JSON.stringify(first));
    await using __ = first;
    const ended = first.fleet.run();
    void taken(first.fleet);
    await vi.waitFor(() => expect(f.running()).toBe(alone), SOON);

    // As another process does, for what is looked at are files of the state directory.
    const other = await makeOwnerDir(dirname(f.project.corral.environment.ownerDir), currentOwner());
    const second = await announceFleet(other, "another");
    await vi.waitFor(() => expect(f.running()).toBe(alone / 2), SOON);
    await new Promise((later) => setTimeout(later, 2500));
    expect(f.running()).toBeLessThanOrEqual(alone / 2);

    await second[Symbol.asyncDispose]();
    await vi.waitFor(() => expect(f.running()).toBe(alone), SOON);
    first.fleet.drain("the test has seen enough");
    await ended;
    await removeOwnerDir(other);
  });
});

async function taken(fleet: RunningFleet): Promise<void> {
  for await (const _ of fleet.results);
}
