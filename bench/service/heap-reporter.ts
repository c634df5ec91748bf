import { appendFileSync } from "node:fs";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

/** Loaded into the service before its own code: on SIGUSR2 it collects garbage and appends what is left, in bytes, to this file. */
const file = process.env.BENCH_HEAP_FILE;
if (file !== undefined)
  process.on("SIGUSR2", () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    // Each collection may free what the next one can collect.
    for (let round = 0; round < 2; round += 1) collect();
    const { heapUsed, external } = process.memoryUsage();
    appendFileSync(file, `${heapUsed + external}\n`);
  });
