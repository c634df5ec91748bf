import type { BoundedChecks } from "../../declarations/schema/bounded-mismatch.ts";
import type { JsonSchema } from "../../declarations/schema/json-schema.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { isTooDeep, MAX_JSON_DEPTH } from "../../json/parse-json.ts";
import type { Violation } from "../../sandbox/violation.ts";
import type { Job } from "./job.ts";
import type { RunError } from "./result.ts";

/** How a value differs from a schema, or null. Rejects with the reason of the signal. */
export type SchemaCheck = (value: unknown, signal?: AbortSignal) => Promise<string | null>;

/** Checks values for all runs of one project, a few at once. */
export class SchemaChecks {
  #checks: Promise<BoundedChecks> | null = null;

  /** Null if there is no schema. The schema validator is loaded only if there is one. */
  by(schema: JsonSchema | undefined): SchemaCheck | null {
    if (schema === undefined) return null;
    return async (value, signal) => {
      this.#checks ??= import("../../declarations/schema/bounded-mismatch.ts").then(
        (loaded) => new loaded.BoundedChecks(),
      );
      return await (await this.#checks).mismatch(schema, value, signal);
    };
  }
}

/** Why the output of a worker that succeeded is not what it declares; null if it is. */
export async function outputError(
  { name, outputSchema }: Pick<WorkerDefinition, "name" | "outputSchema">,
  output: unknown,
  schemas: SchemaChecks,
): Promise<RunError | null> {
  const mismatch = (await schemas.by(outputSchema)?.(output)) ?? null;
  if (mismatch === null) return null;
  const message = `What worker ${name} printed does not match its \`output_schema\`: ${mismatch}`;
  return { code: "OUTPUT_NOT_VALID", message };
}

/** Why a worker does not take its input. An input that cannot be serialized is refused. */
export async function inputViolations(
  { worker, input }: Pick<Job, "worker" | "input">,
  schemas: SchemaChecks,
): Promise<Violation[]> {
  const refused = (reason: string): Violation[] => [{ code: "INPUT_NOT_VALID", worker: worker.name, reason }];
  if (isTooDeep(input)) return refused(`it is nested more than ${MAX_JSON_DEPTH} levels deep`);
  const reason = (await schemas.by(worker.inputSchema)?.(input)) ?? null;
  return reason === null ? [] : refused(reason);
}
