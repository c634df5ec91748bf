import { setTimeout as pause } from "node:timers/promises";
import { itemJob } from "../../src/fleet/items/item-job.ts";
import { freshCells } from "../../src/fleet/running/fresh-cells.ts";
import { newRunId } from "../../src/run/model/job.ts";
import { permissionOf, rootSandbox } from "../../src/run/model/permission.ts";
import type { Contender } from "../measure.ts";
import { FIRST_BYTE, WARM_RESULT } from "../outcome/names.ts";
import type { Ours } from "./ours.ts";

/** When a cell reports, the Engine is still busy with earlier work; in a fleet, items wait longer than this. */
const SETTLE_MS = 50;

/**
 * An item of a fleet as its executor runs it. Its turn comes when its cell is verified and waits at the gate. Measures the
 * time from the turn to the worker's first byte, and to its result, when its cell is removed.
 */
export async function warmClaim(ours: Ours): Promise<Contender> {
  const { environment: env } = ours.corral;
  const worker = ours.worker("echo");
  const caller = await rootSandbox(env, null);
  const derived = await permissionOf(worker, caller, null, env);
  if (!derived.ok) throw new Error("the bench's worker may not run");
  const item = { index: 0, key: "0", place: "the bench", attachments: [] };
  return {
    names: [ours.row(FIRST_BYTE), ours.row(WARM_RESULT)],
    async once() {
      await using executor = freshCells(derived.sandbox, env);
      const run = newRunId();
      const [atGate, mayBegin, printed] = [0, 1, 2].map(() => Promise.withResolvers<void>());
      if (!atGate || !mayBegin || !printed) throw new RangeError("three promises were made");
      using _ = ours.watch((event) => {
        if (event.type === "output" && event.run === run) printed.resolve();
      });
      const turn = (): Promise<void> => {
        atGate.resolve();
        return mayBegin.promise;
      };
      const { signal } = new AbortController();
      const job = await itemJob({ worker, caller: caller, sandbox: derived.sandbox, reads: [], env }, item, {
        run,
        fleet: "",
        signal,
        turn,
      });
      const running = executor.run(job);
      await Promise.race([atGate.promise, running]);
      await pause(SETTLE_MS);
      const begun = performance.now();
      mayBegin.resolve();
      await Promise.race([printed.promise, running]);
      const firstByte = performance.now() - begun;
      const { status } = await running;
      if (status !== "succeeded") throw new Error(`the warm claim is ${status}`);
      return [firstByte, performance.now() - begun];
    },
  };
}
