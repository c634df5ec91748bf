import { attachedFile } from "../run/attached-file.ts";
import type { RunEnvironment } from "../run/model/environment.ts";
import { newRunId } from "../run/model/job.ts";
import { permissionOf } from "../run/model/permission.ts";
import { describeAll } from "../run/model/result.ts";
import type { Mount } from "../sandbox/mount.ts";
import type { Violation } from "../sandbox/violation.ts";
import { type FleetPermission, fleetPermission } from "./fleet-permission.ts";
import { type Collisions, collisionsIn } from "./items/collisions.ts";
import { itemJob, readByAll } from "./items/item-job.ts";
import { checkPaths, type TemplatePath } from "./items/template-paths.ts";
import { throwawayStore } from "./journal/throwaway.ts";
import type { FleetSpec, ItemRequest } from "./model/item.ts";
import type { LoadProblem } from "./model/store.ts";

/** What a fleet would run. */
export interface DryRun {
  /** The first items. */
  readonly first: readonly DryItem[];
  readonly items: number;
  /** Items of which no valid request can be made: they would be refused. */
  readonly refused: number;
  readonly attachments: number;
}

/** One item as it would run. */
export interface DryItem extends Pick<ItemRequest, "index" | "key" | "place" | "input" | "attachments"> {
  /** What it would see, with its own narrowing; null if it would be refused. */
  readonly mounts: readonly Pick<Mount, "path" | "mode" | "host">[] | null;
  /** Every reason why it would be refused. */
  readonly problems: readonly string[];
}

export type DryRunOutcome =
  | { readonly ok: true; readonly dryRun: DryRun }
  | { readonly ok: false; readonly problem: LoadProblem<Collisions> }
  | Extract<FleetPermission, { readonly ok: false }>;

interface DryRunRequest {
  readonly spec: FleetSpec;
  readonly items: AsyncIterable<ItemRequest>;
  readonly paths: readonly TemplatePath[];
  /** How many of the first items are shown. */
  readonly shown: number;
  readonly signal: AbortSignal;
}

/** Reads all items and checks them as a fleet does. Nothing runs, and nothing is kept; no Engine is needed. */
export async function dryRun(request: DryRunRequest, env: RunEnvironment): Promise<DryRunOutcome> {
  const { spec, items, paths, shown, signal } = request;
  const permission = await fleetPermission(spec, env);
  if (!permission.ok) return permission;
  checkPaths(paths, permission.sandbox);
  const counts = { refused: 0, attachments: 0 };
  const first: DryItem[] = [];
  const seen = async function* (): AsyncGenerator<ItemRequest> {
    for await (const item of items) {
      if (item.refusal !== undefined) counts.refused += 1;
      counts.attachments += item.attachments.length;
      if (first.length < shown) first.push(await dryItem(item, spec, permission, env));
      yield item;
    }
  };
  await using temporary = await throwawayStore();
  const { store } = temporary;
  const loaded = await store.load(await store.create(spec), seen(), { collisionsIn, signal });
  return loaded.ok ? { ok: true, dryRun: { first, items: loaded.total, ...counts } } : loaded;
}

async function dryItem(
  item: ItemRequest,
  spec: FleetSpec,
  { worker, caller, sandbox }: Extract<FleetPermission, { ok: true }>,
  env: RunEnvironment,
): Promise<DryItem> {
  const { index, key, place, input, attachments } = item;
  const about = { index, key, place, ...(input === undefined ? {} : { input }), attachments };
  if (item.refusal !== undefined) return { ...about, mounts: null, problems: [item.refusal] };
  const reads = readByAll(sandbox, spec.reuse);
  const asked = { fleet: "dry-run", run: newRunId(), signal: new AbortController().signal, turn: async () => {} };
  const job = itemJob({ worker, caller, sandbox, reads, env }, item, asked);
  const derivation = await permissionOf(worker, caller, job.narrow, env);
  const problems = derivation.ok ? [] : textsOf(derivation.violations);
  for (const { path } of attachments) {
    const file = await attachedFile(path, caller, "/");
    if (!file.ok) problems.push(`${path}: ${file.reason}`);
  }
  if (!derivation.ok) return { ...about, mounts: null, problems };
  const mounts = derivation.sandbox.mounts.map(({ path, mode, host }) => ({ path, mode, host }));
  return { ...about, mounts, problems };
}

function textsOf(violations: readonly Violation[]): string[] {
  return describeAll(violations).map(({ message }) => message);
}
