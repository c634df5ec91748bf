/**
 * Compares validator and kernel over as many random sandboxes as wanted, each in a cell of its own:
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
/** Sandboxes that are made at a time: each of them is kept until it was compared. */
const BATCH = 200;

const stateDir = await mkdtemp(join(tmpdir(), "corral-agree-state-"));
const queue = new PQueue({ concurrency: AT_ONCE });
const found = { compared: 0, differ: 0, failed: 0 };
const began = performance.now();
for (let from = 0; from < count; from += BATCH) {
  const batch = fc.sample(scenarios, { numRuns: Math.min(BATCH, count - from), seed: seed + from });
  await queue.addAll(
    batch.map((scenario) => async () => {
      const told = await compared(scenario, stateDir).then(
        ({ differences }) => differences,
        (error: Error) => {
          found.failed += 1;
          return [`failed: ${error.message}`];
        },
      );
      found.compared += 1;
      if (told.length === 0) return;
      found.differ += 1;
      process.stdout.write(`${JSON.stringify(scenario)}\n  ${told.join("\n  ")}\n`);
    }),
  );
  const seconds = ((performance.now() - began) / 1000).toFixed(0);
  process.stdout.write(`seed ${seed}: ${found.compared} compared in ${seconds} s, ${found.differ} differ\n`);
}
await rm(stateDir, { recursive: true, force: true });
process.exitCode = found.differ === 0 ? 0 : 1;
