/**
 * Runs a fleet of one item in a process of its own, and kills it with `kill -9` at one step of the item's effects:
 * `node killed-at.ts ORDER`. The order is JSON, an {@link Order}. Prints the id of the fleet.
 */
import fs from "node:fs";
import { basename } from "node:path";
import { resumeFleet, startFleet } from "../../../src/fleet/fleet.ts";
import { openFleetStore } from "../../../src/fleet/fleet-stores.ts";
import type { FleetSpec, ItemRequest } from "../../../src/fleet/model/item.ts";
import type { FleetQueue } from "../../../src/fleet/model/queue.ts";
import type { FleetStore } from "../../../src/fleet/model/store.ts";
import { openCorral } from "../../../src/run/open/corral.ts";

/** `finishing`: a resumed fleet is killed after it finished the changes, and before it recorded the result. */
export const STEPS = ["collected", "kept", "begun", "halfway", "applied", "settled", "finishing"] as const;

export type Step = (typeof STEPS)[number];

export interface Order {
  readonly projectDir: string;
  readonly stateDir: string;
  readonly spec: FleetSpec;
  readonly item: ItemRequest;
  readonly step: Step;
  /** The fleet that is resumed; absent: a new one. */
  readonly fleet?: string;
  /** Kills before the file with this name is put in place, at the step `halfway`. */
  readonly file: string;
}

const { projectDir, stateDir, spec, item, step, fleet, file } = JSON.parse(process.argv[2] ?? "") as Order;

function reach(reached: Step): void {
  if (reached === step) process.kill(process.pid, "SIGKILL");
}

for (const name of ["linkSync", "renameSync"] as const) {
  const real = fs[name];
  fs[name] = (from, to) => {
    if (basename(String(to)) === file) reach("halfway");
    real(from, to);
  };
}

function killingQueue(queue: FleetQueue): FleetQueue {
  return {
    claim: (count, newAttempt) => queue.claim(count, newAttempt),
    async begin(...begun) {
      reach("kept");
      const taken = await queue.begin(...begun);
      reach("begun");
      return taken;
    },
    async settle(...settled) {
      reach("applied");
      reach("finishing");
      const taken = await queue.settle(...settled);
      reach("settled");
      return taken;
    },
    requeue: (...requeued) => queue.requeue(...requeued),
    counts: () => queue.counts(),
    cancelQueued: (why) => queue.cancelQueued(why),
  };
}

async function* one(): AsyncGenerator<ItemRequest> {
  yield item;
}

await using corral = await openCorral({ projectDir, stateDir, engineEnv: process.env });
const { environment } = corral;
const { changesets } = environment;
await using journal = await openFleetStore(stateDir, corral.project.dir, {});
const store: FleetStore = new Proxy(journal, {
  get(target, name) {
    if (name === "queue") return async (id: string) => killingQueue(await target.queue(id));
    const value: unknown = Reflect.get(target, name);
    return typeof value === "function" ? value.bind(target) : value;
  },
});
const env = {
  run: {
    ...environment,
    changesets: {
      ...changesets,
      apply: (...applied: Parameters<typeof changesets.apply>) => {
        reach("collected");
        return changesets.apply(...applied);
      },
    },
  },
  store,
  onEvent: () => {},
  stop: new AbortController().signal,
};
const opened = fleet === undefined ? await startFleet(spec, one(), env) : await resumeFleet(fleet, env);
if (!opened.ok) throw new Error(JSON.stringify(opened));
await using running = opened;
fs.writeSync(1, running.fleet.id);
await running.fleet.run();
