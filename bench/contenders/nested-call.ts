import { run } from "../../src/run/run.ts";
import type { Contender } from "../measure.ts";
import { NESTED_CALL } from "../outcome/names.ts";
import type { Ours } from "./ours.ts";

/** A worker's call of another worker, from the request until the answer is ready. The caller's own run does not count. */
export function nestedCall(ours: Ours): Contender {
  const worker = ours.worker("caller");
  return {
    names: [ours.row(NESTED_CALL)],
    async once() {
      const times: number[] = [];
      using _ = ours.watch(({ type, worker: name }) => {
        if (name === "echo" && (type === "requested" || type === "ended")) times.push(performance.now());
      });
      const { status, calls } = await run({ worker, signal: new AbortController().signal }, ours.corral.environment);
      const [asked, answered] = times;
      if (status !== "succeeded" || calls[0]?.status !== "succeeded") throw new Error(`the calling run is ${status}`);
      if (asked === undefined || answered === undefined) throw new Error("no call was made");
      return [answered - asked];
    },
  };
}
