import type { ItemResult } from "../model/item.ts";

/** What is kept of an item that has ended. */
export interface ResultRow {
  readonly position: number;
  readonly key: string;
  readonly attempt: number;
  readonly status: string;
  readonly run: string | null;
  readonly ended_at: number;
  readonly json: string | null;
  readonly fields: string | null;
  readonly why: string | null;
}

const NEWER = { stderrLine: null };

/** An item that never ran has only its row. A result of an earlier Corral has fewer keys. */
export function resultFrom(row: ResultRow): ItemResult {
  const fields = JSON.parse(row.fields ?? "{}") as ItemResult["fields"];
  if (row.json !== null)
    return { ...NEWER, ...(JSON.parse(row.json) as Omit<ItemResult, "fields" | "stderrLine">), fields };
  return {
    ...{ stderrLine: null, fields },
    ...{ index: row.position, key: row.key, status: row.status, run: null, attempt: row.attempt, exitCode: null },
    ...{ output: null, error: { code: row.status, message: row.why ?? "the fleet was cancelled" } },
    ...{ startedAt: null, endedAt: new Date(row.ended_at).toISOString(), durationMs: 0, memoryBytesPeak: null },
  };
}
