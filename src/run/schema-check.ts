import { isTooDeep, MAX_JSON_DEPTH } from "../json/depth.ts";
import type { JsonSchema } from "../project/json-schema.ts";
import type { Violation } from "../sandbox/violation.ts";
import type { Job } from "./job.ts";

/** What of a value is not as a schema asks, or null. Rejects with the reason of the signal. */
export type SchemaCheck = (value: unknown, signal?: AbortSignal) => Promise<string | null>;

/** Null where there is no schema. What knows schemas is loaded only for one. */
export async function schemaCheck(schema: JsonSchema | undefined): Promise<SchemaCheck | null> {
  if (schema === undefined) return null;
  const { boundedMismatch } = await import("../project/bounded-mismatch.ts");
  return (value, signal) => boundedMismatch(schema, value, signal);
}

/** Why a worker does not take its input. One that could not be written down is none. */
export async function inputViolations({ worker, input }: Pick<Job, "worker" | "input">): Promise<Violation[]> {
  const refused = (reason: string): Violation[] => [{ code: "INPUT_NOT_VALID", worker: worker.name, reason }];
  if (isTooDeep(input)) return refused(`it is nested more than ${MAX_JSON_DEPTH} levels deep`);
  const check = await schemaCheck(worker.inputSchema);
  const reason = (await check?.(input)) ?? null;
  return reason === null ? [] : refused(reason);
}
