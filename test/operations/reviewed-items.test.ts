import { mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openFleetStore } from "../../src/fleet/fleet-stores.ts";
import { Changesets } from "../../src/operations/changesets.ts";
import { listFleets, showFleet } from "../../src/operations/fleets.ts";
import { changesetStore } from "../../src/run/changes/into-project.ts";
import { pendingFleet } from "./pending-fleet.ts";

const RUNS = { mine: "00000000000a", other: "00000000000b" };

let base: string;
let stateDir: string;

beforeEach(() => {
  base = realpathSync(mkdtempSync(join(tmpdir(), "corral-reviewed-")));
  stateDir = join(base, "state");
  for (const name of ["state", "mine", "other"]) mkdirSync(join(base, name), { mode: 0o700 });
});
afterEach(() => rmSync(base, { recursive: true, force: true }));

const place = (name: string) => ({ stateDir, projectDir: join(base, name), engineEnv: {} });

/** A process discarded what waited, and died before the journal knew. Answers with the fleet's id. */
async function discardedIn(name: "mine" | "other"): Promise<string> {
  await using store = await openFleetStore(stateDir, join(base, name), {});
  const { fleet, remove } = await pendingFleet(store, place(name), RUNS[name]);
  remove();
  await changesetStore(stateDir).discard(RUNS[name]);
  return fleet;
}

const ended = () => readdirSync(join(stateDir, "changes"));

describe("what was decided, and no journal knows yet", () => {
  it.each([
    ["cannot be read", "queue: [nonsense]"],
    ["does not answer", "queue: postgres://nobody@127.0.0.1:1/none"],
  ])("is recorded for one project though the store of another %s", async (_, queue) => {
    const [mine, other] = [await discardedIn("mine"), await discardedIn("other")];
    writeFileSync(join(base, "other/corral.yaml"), `version: 1\n${queue}\n`);
    expect((await listFleets(place("mine"))).map(({ id, state }) => [id, state])).toEqual([[mine, "done"]]);
    expect(ended()).toEqual([`.ended-${RUNS.other}`]);
    await Changesets.open(stateDir, {});
    await expect(listFleets(place("other"))).rejects.toMatchObject({
      name: expect.stringMatching(/^(Queue|Declaration)Error$/),
    });
    expect(ended()).toEqual([`.ended-${RUNS.other}`]);

    rmSync(join(base, "other/corral.yaml"));
    expect(await showFleet(place("other"), other)).toMatchObject({ state: "done", counts: { pending: 0 } });
    expect(ended()).toEqual([]);
  });
});
