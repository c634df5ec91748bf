/**
 * Compares validator and kernel over as many random sandboxes as wanted, up to twelve beside each other in a cell:
 *
 *     CORRAL_DRIVER=runc node test/agreement/many.ts COUNT [SEED]
 *
 * Ends with status 1 if there is a difference. The same seed makes the same sandboxes.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import PQueue from "p-queue";
import { compared } from "./compare.ts";
import { scenarios } from "./sandboxes.ts";

const [count = 100, seed = Date.now() % 2 ** 31] = process.argv.slice(2).map(Number);
const AT_ONCE = 3;
const BESIDE = 12;
/** Cells whose sandboxes are made at a time: each of them is kept until it was compared. */
const BATCH = 50;

const stateDir = await mkdtemp(join(tmpdir(), "corral-agree-state-"));
const queue = new PQueue({ concurrency: AT_ONCE });
const found = { cells: 0, sandboxes: 0, paths: 0, differ: 0 };
const began = performance.now();
for (let from = 0; found.sandboxes < count; from += BATCH) {
  const batch = fc.sample(scenarios(BESIDE), { numRuns: BATCH, seed: seed + from });
  await queue.addAll(
    batch.map((scenario) => async () => {
      const told = await compared(scenario, stateDir).then(
        ({ differences, paths }) => {
          found.paths += paths;
          return differences;
        },
        (error: Error) => [`failed: ${error.message}`],
      );
      found.cells += 1;
      found.sandboxes += scenario.parts.length;
      if (told.length === 0) return;
      found.differ += 1;
      process.stdout.write(`${JSON.stringify(scenario)}\n  ${told.join("\n  ")}\n`);
    }),
  );
  const seconds = ((performance.now() - began) / 1000).toFixed(0);
  const { sandboxes, cells, paths, differ } = found;
  process.stdout.write(
    `seed ${seed}: ${sandboxes} sandboxes in ${cells} cells, ${paths} paths, in ${seconds} s; ${differ} cells differ\n`,
  );
}
await rm(stateDir, { recursive: true, force: true });
process.exitCode = found.differ === 0 ? 0 : 1;
