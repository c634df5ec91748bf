import { run } from "../../src/run/run.ts";
import type { Bench } from "../bench.ts";
import type { Contender } from "../measure.ts";

/** A worker's call of another worker, from the request until the answer is ready. The caller's own run does not count. */
export function nestedCall(bench: Bench): Contender {
  const worker = bench.worker("caller");
  return {
    names: ["Corral: nested call"],
    async once() {
      const times: number[] = [];
      using _ = bench.watch(({ type, worker: name }) => {
        if (name === "echo" && (type === "requested" || type === "ended")) times.push(performance.now());
      });
      const { status, calls } = await run({ worker, signal: new AbortController().signal }, bench.corral.environment);
      const [asked, answered] = times;
      if (status !== "succeeded" || calls[0]?.status !== "succeeded") throw new Error(`the calling run is ${status}`);
      if (asked === undefined || answered === undefined) throw new Error("no call was made");
      return [answered - asked];
    },
  };
}
