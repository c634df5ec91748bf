import { z } from "zod";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { examine } from "../../json/examine.ts";
import { hasMoreValues, isTooDeep, MAX_JSON_VALUES } from "../../json/parse-json.ts";
import { outputError, type SchemaChecks } from "../../run/model/schema-check.ts";
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

const shape = z.object({
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
 * does not have the shape of a result, so the machine has another version or lies. An output that is not what the worker declares fails
 * as it does here.
 */
export async function deliveredResult(
  delivered: Delivered,
  fields: ItemResult["fields"],
  worker: Pick<WorkerDefinition, "name" | "output" | "outputSchema">,
  schemas: SchemaChecks,
): Promise<{ readonly result: ItemResult; readonly streams: Settlement["streams"] } | null> {
  const [checked, printed] = [examine(shape, delivered.result), examine(streams, delivered.streams)];
  if (!checked.success || !printed.success) return null;
  const { index, key, run, attempt, machine } = delivered;
  const { output = null, ...rest } = checked.data;
  if (!isPossible(output, worker)) return null;
  const result = { ...rest, output, index, key, run, attempt, machine, fields };
  const error = rest.status === "succeeded" ? await outputError(worker, output, schemas) : null;
  return { result: error === null ? result : { ...result, status: "failed", error }, streams: printed.data };
}

/** Whether a run of the worker can have this output at all. */
function isPossible(output: unknown, worker: Pick<WorkerDefinition, "output">): boolean {
  if (worker.output === "text") return output === null || typeof output === "string";
  return !isTooDeep(output) && !hasMoreValues(output, MAX_JSON_VALUES);
}
