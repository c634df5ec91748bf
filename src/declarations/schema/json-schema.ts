import { Ajv2020, type ErrorObject, type ValidateFunction } from "ajv/dist/2020.js";

/** A JSON Schema of draft 2020-12, for a worker's input or output. Plain data. */
export type JsonSchema = Readonly<Record<string, unknown>>;

/** More faults would not help to fix the first ones. */
const MAX_FAULTS = 10;
const MAX_SHOWN_CHARACTERS = 2000;

/** What is wrong with the schema itself, or null. Nothing is ever fetched: a reference that leads out is a fault. */
export function schemaFault(schema: JsonSchema): string | null {
  try {
    compiled(schema);
    return null;
  } catch (error) {
    return `is not a JSON Schema: ${(error as Error).message.slice(0, MAX_SHOWN_CHARACTERS)}`;
  }
}

/** What of a value is not as the schema asks, each with its place, or null. The schema must be sound. */
export function schemaMismatch(schema: JsonSchema, value: unknown): string | null {
  // It was checked when the worker was read. To compile what checks it takes longer than the rest.
  const validate = compiled(schema, { validateSchema: false });
  if (validate(value)) return null;
  const faults = (validate.errors ?? []).slice(0, MAX_FAULTS).map(faultLine);
  return faults.join("; ").slice(0, MAX_SHOWN_CHARACTERS);
}

/**
 * A keyword that the draft does not have is a fault: a misspelt keyword would check nothing. `format` is an annotation, as the
 * draft has it by default.
 */
function compiled(schema: JsonSchema, options: { readonly validateSchema?: boolean } = {}): ValidateFunction {
  const loose = { strictTypes: false, strictTuples: false, strictRequired: false, validateFormats: false } as const;
  return new Ajv2020({
    allErrors: true,
    strictSchema: true,
    logger: false,
    messages: true,
    ...loose,
    ...options,
  }).compile(schema);
}

function faultLine({ instancePath, message = "is not as asked", params }: ErrorObject): string {
  const place = instancePath === "" ? "it" : instancePath;
  const extra = "additionalProperty" in params ? ` (${JSON.stringify(params.additionalProperty)})` : "";
  const allowed = "allowedValues" in params ? ` (${JSON.stringify(params.allowedValues)})` : "";
  return `${place} ${message}${extra}${allowed}`;
}
