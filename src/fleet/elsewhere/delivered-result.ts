import { z } from "zod";
import type { ItemResult } from "../model/item.ts";
import type { Settlement } from "../model/queue.ts";
import type { Delivered } from "../model/work.ts";

/** What a run can end as. The rest is the coordinator's word alone: `cached`, `pending`, and what a person decides. */
const STATUSES = [
  ...["succeeded", "failed", "signaled", "oom_killed", "refused", "denied", "lost"],
  ...["timed_out", "cancelled", "output_limit", "disk_limit"],
];
const MAX_TEXT = 64 * 1024;
const text = z.string().max(MAX_TEXT);
const count = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const time = z.iso.datetime();

const result = z.object({
  status: z.enum(STATUSES),
  exitCode: z.number().int().min(-1).max(255).nullable(),
  output: z.unknown(),
  error: z.object({ code: z.string().regex(/^[A-Z][A-Z_]{0,63}$/), message: text }).nullable(),
  stderrLine: text.nullable(),
  startedAt: time.nullable(),
  endedAt: time,
  durationMs: count,
  memoryBytesPeak: count.nullable(),
});

const MAX_STREAM = 1024 * 1024;
const streams = z.object({ stdout: z.string().max(MAX_STREAM), stderr: z.string().max(MAX_STREAM) }).nullable();

/**
 * The result of an attempt on a machine. Which item and which attempt it is, the store knows; its changes are not settled yet. Null: it
 * does not have the shape of a result, so the machine has another version or lies.
 */
export function deliveredResult(
  delivered: Delivered,
  fields: ItemResult["fields"],
): { readonly result: ItemResult; readonly streams: Settlement["streams"] } | null {
  const [checked, printed] = [result.safeParse(delivered.result), streams.safeParse(delivered.streams)];
  if (!checked.success || !printed.success) return null;
  const { index, key, run, attempt, machine } = delivered;
  const { output = null, ...rest } = checked.data;
  return { result: { ...rest, output, index, key, run, attempt, machine, fields }, streams: printed.data };
}
