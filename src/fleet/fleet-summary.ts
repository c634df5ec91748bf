import type { FleetSummary } from "./events.ts";
import type { FleetState } from "./model/fleet-record.ts";
import { REVIEWED } from "./model/item.ts";
import type { FleetStore } from "./model/store.ts";

/** Their errors are no failures of the fleet. */
const NO_REASONS: ReadonlySet<string> = new Set(["succeeded", "cached", ...REVIEWED]);

/** What came of a fleet that this process no longer runs. `why`: why it was drained. */
export async function fleetSummary(
  store: FleetStore,
  id: string,
  { why, durationMs }: { readonly why: string | null; readonly durationMs: number },
): Promise<FleetSummary> {
  const record = await store.find(id);
  const byStatus: Record<string, number> = {};
  const byReason: Record<string, number> = {};
  for (const { status, code, count } of await store.summary(id)) {
    byStatus[status] = (byStatus[status] ?? 0) + count;
    if (code !== null && !NO_REASONS.has(status)) byReason[code] = (byReason[code] ?? 0) + count;
  }
  const stored = record?.state;
  const state = hasEnded(stored) ? stored : "paused";
  return {
    fleet: id,
    state,
    why: state === "done" || state === "pending" ? null : (record?.why ?? why),
    items: record?.counts.total ?? 0,
    done: record?.counts.done ?? 0,
    byStatus,
    byReason,
    failures: await store.failureGroups(id),
    durationMs,
  };
}

function hasEnded(state: FleetState | undefined): state is "done" | "pending" | "cancelled" {
  return state === "done" || state === "pending" || state === "cancelled";
}
