import { EngineTrouble } from "../../isolation/port/driver.ts";
import { EngineUnavailableError } from "../../isolation/port/engine.ts";
import type { Machine } from "../machine.ts";
import type { CollectOptions, Measured, Removed, StoredKind } from "./stored-kind.ts";
import { STORED_KINDS } from "./stored-kinds.ts";

/** One kind of what Corral keeps, as it was measured. `trouble`: why it is not known, e.g. because no Engine answers. */
export interface MeasuredKind extends Pick<StoredKind, "name" | "unit" | "rule"> {
  readonly measured: Measured | null;
  readonly trouble: string | null;
}

/** What was removed of one kind. `trouble`: why not all of it that may go. */
export interface CollectedKind extends Pick<StoredKind, "name" | "unit" | "rule"> {
  readonly removed: readonly Removed[];
  /** How many there are that are never removed here. */
  readonly stays: number;
  readonly trouble: string | null;
}

/** All kinds together; what was not measured by then is not complete. */
const MEASURE_MS = 20_000;

/** What all of Corral's state on this machine uses, each kind by itself. Follows no links. */
export async function measureState(machine: Machine): Promise<MeasuredKind[]> {
  const signal = AbortSignal.timeout(MEASURE_MS);
  const kinds: MeasuredKind[] = [];
  for (const { name, unit, rule, measure } of STORED_KINDS) {
    const { value, trouble } = await unlessTrouble(() => measure(machine, signal));
    kinds.push({ name, unit, rule, measured: value, trouble });
  }
  return kinds;
}

/** Removes what may go of each kind. What one kind meets does not stop the others. Safe beside runs and other collectors. */
export async function collectState(
  machine: Machine,
  { olderThanMs = null, dryRun = false }: Partial<Omit<CollectOptions, "nowMs">> = {},
): Promise<CollectedKind[]> {
  const options = { olderThanMs, dryRun, nowMs: Date.now() };
  const kinds: CollectedKind[] = [];
  for (const { name, unit, rule, collect, staying } of STORED_KINDS) {
    const { value, trouble } = await unlessTrouble(() => collect(machine, options));
    kinds.push({ name, unit, rule, removed: value ?? [], stays: (await staying?.(machine)) ?? 0, trouble });
  }
  return kinds;
}

async function unlessTrouble<Value>(
  act: () => Promise<Value>,
): Promise<{ value: Value | null; trouble: string | null }> {
  try {
    return { value: await act(), trouble: null };
  } catch (error) {
    const isKnown = error instanceof EngineUnavailableError || error instanceof EngineTrouble || isOfSystem(error);
    if (!isKnown) throw error;
    return { value: null, trouble: (error as Error).message };
  }
}

function isOfSystem(error: unknown): boolean {
  return error instanceof Error && "syscall" in error;
}
