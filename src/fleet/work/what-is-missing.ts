import { openModel } from "../../agent/provider/open-model.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import type { RunEnvironment } from "../../run/model/environment.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { calledBy } from "../cache/fleet-digest.ts";

/**
 * Why this machine could run no item of a fleet although its declarations agree: a secret or the key of a model that it does not have.
 * Null if it has all. Their values are read once and forgotten.
 */
export async function whatIsMissing(
  { worker, sandbox }: { readonly worker: WorkerDefinition; readonly sandbox: Sandbox },
  run: RunEnvironment,
  signal: AbortSignal,
): Promise<string | null> {
  const missing: string[] = [];
  const look = async (read: () => Promise<unknown>): Promise<void> => {
    try {
      await read();
    } catch (error) {
      missing.push((error as Error).message);
    }
  };
  for (const name of sandbox.secrets ?? []) await look(() => run.secretInside(name, signal));
  for (const name of ofNetwork(sandbox)) await look(() => run.secretOf(name, signal));
  for (const { agent } of [worker, ...calledBy(worker, run.project.workers)])
    if (agent !== undefined) await look(() => openModel(agent.model, run.models, signal));
  return missing.length === 0 ? null : `this machine lacks what its items need: ${[...new Set(missing)].join("; ")}`;
}

function ofNetwork({ network }: Sandbox): ReadonlySet<string> {
  if (typeof network === "boolean") return new Set();
  return new Set(network.allow.flatMap(({ set = {} }) => Object.values(set).map(({ secret }) => secret)));
}
