import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import type { RunEnvironment } from "../../run/model/environment.ts";
import type { MakeAsk } from "../../run/model/worker-images.ts";

/** The image of a worker is made for the fleet, and not for one of its items. */
export function imageAsk({ name: worker }: WorkerDefinition, run: RunEnvironment, signal: AbortSignal): MakeAsk {
  const of = { run: "", root: "", parent: null, worker, attachments: [] };
  return { owner: null, signal, onProgress: (progress) => run.emit({ type: "image", ...of, progress }) };
}
