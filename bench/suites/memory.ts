import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { itemJob } from "../../src/fleet/items/item-job.ts";
import { freshCells } from "../../src/fleet/running/fresh-cells.ts";
import { newRunId } from "../../src/run/model/job.ts";
import { permissionOf, rootSandbox } from "../../src/run/model/permission.ts";
import { openFleet } from "../contenders/fleet.ts";
import { mostResidentBytes } from "../contenders/map-process.ts";
import type { Ours } from "../contenders/ours.ts";
import type { Series } from "../measure.ts";
import { groupOf } from "../outcome/report.ts";
import { canScrub } from "./rates.ts";
import type { Suite } from "./suite.ts";

const BYTES_PER_KB = 1000;

/** What the orchestrator itself keeps in memory, on its heap and outside it, after a garbage collection. */
export const MEMORY: Suite = {
  async measure(bench) {
    const series: Series[] = [];
    const { liveCells, queuedItems } = bench.sizes;
    for (const ours of bench.ours) {
      const said = (what: string, kilobytes: number): unknown =>
        series.push({ name: ours.row(what), values: [kilobytes] });
      said("a live cell", await perLiveCell(ours, liveCells));
      said("a queued item", await perQueuedItem(ours, queuedItems));
      if (canScrub(ours)) said("the map verb, most resident", (await mostResidentBytes(ours)) / BYTES_PER_KB);
    }
    return {
      groups: [groupOf("memory", "The orchestrator's memory", "KB", series, "different")],
      notes: [
        `Memory is heap and buffers after a collection, over ${liveCells} cells at the gate and ${queuedItems} items in the journal; a value near 0 is noise.`,
        `\`corral map\` ran over ${bench.items} items; Node lets its heap grow if the machine has free memory.`,
      ],
    };
  },
};

async function perLiveCell(ours: Ours, liveCells: number): Promise<number> {
  const { environment: env } = ours.corral;
  const worker = ours.worker("echo");
  const caller = await rootSandbox(env, null);
  const derived = await permissionOf(worker, caller, null, env);
  if (!derived.ok) throw new Error("the bench's worker may not run");
  await using executor = freshCells(derived.sandbox, env);
  const mayBegin = Promise.withResolvers<void>();
  const before = usedBytes();
  const runs: Promise<unknown>[] = [];
  const stood: Promise<unknown>[] = [];
  for (let index = 0; index < liveCells; index += 1) {
    const atGate = Promise.withResolvers<void>();
    const turn = (): Promise<void> => {
      atGate.resolve();
      return mayBegin.promise;
    };
    const item = { index, key: String(index), place: "the bench", attachments: [] };
    const asked = { run: newRunId(), fleet: "", signal: new AbortController().signal, turn };
    const running = executor.run(
      await itemJob({ worker, caller: caller, sandbox: derived.sandbox, reads: [], env }, item, asked),
    );
    runs.push(running);
    stood.push(Promise.race([atGate.promise, running]));
  }
  await Promise.all(stood);
  const used = usedBytes() - before;
  mayBegin.resolve();
  await Promise.all(runs);
  return used / liveCells / BYTES_PER_KB;
}

async function perQueuedItem(ours: Ours, queuedItems: number): Promise<number> {
  const before = usedBytes();
  await using opened = await openFleet(ours, "fresh", queuedItems);
  const used = usedBytes() - before;
  opened.fleet.drain("the bench only measures its memory");
  await opened.fleet.run();
  return used / queuedItems / BYTES_PER_KB;
}

function usedBytes(): number {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  // Each collection may free what the next one can collect.
  for (let round = 0; round < 3; round += 1) collect();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
