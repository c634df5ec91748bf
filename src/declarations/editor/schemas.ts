import { z } from "zod";
import { corralYaml } from "../corral-file.ts";
import { fleetYaml } from "../fleet-yaml.ts";
import { policyYaml } from "../policy/policy-yaml.ts";
import { workerYaml } from "../worker/worker-yaml.ts";
import { type JsonLook, lookOf } from "../yaml/shape.ts";
import { FIELD_TEXTS } from "./field-texts.ts";
import { FILES_OF, SCHEMA_KINDS, type SchemaKind, schemaFileName } from "./kinds.ts";

/** Like {@link JsonLook}, while it is made. */
type Json = { [key: string]: unknown };

/**
 * The format of a file as JSON Schema (draft 2020-12), for editors. What it refuses, the parser refuses as well. The parser refuses
 * more: what depends on several keys, on other files or on the disk.
 */
export function editorSchema(kind: SchemaKind): Json {
  const schema = jsonOf(SCHEMAS[kind]());
  describe(schema, "", FIELD_TEXTS[kind]);
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: `Corral: ${FILES_OF[kind]}`,
    ...schema,
    ...WHOLE_FILE[kind],
  };
}

/** All schemas as files, by their names. */
export function schemaFiles(): ReadonlyMap<string, string> {
  const text = (kind: SchemaKind): string => `${JSON.stringify(editorSchema(kind), null, 2)}\n`;
  return new Map(SCHEMA_KINDS.map((kind) => [schemaFileName(kind), text(kind)]));
}

const SCHEMAS: Readonly<Record<SchemaKind, () => z.ZodType>> = {
  project: () => corralYaml,
  worker: () => workerYaml,
  fleet: () => fleetYaml,
  policy: policyYaml,
};

/** What holds for several keys together. */
const WHOLE_FILE: Readonly<Record<SchemaKind, JsonLook>> = {
  project: {},
  worker: { oneOf: [{ required: ["command"] }, { required: ["model"] }] },
  fleet: { oneOf: [{ required: ["over"] }, { required: ["manifest"] }] },
  policy: { anyOf: [{ required: ["extends"] }, { required: ["hardening", "limits", "tmp", "home", "nofile"] }] },
};

/** From the side of the person who writes the file: a key with a default may be absent. */
function jsonOf(schema: z.ZodType): Json {
  const { $schema: _, ...json } = z.toJSONSchema(schema, {
    io: "input",
    unrepresentable: "any",
    override({ zodSchema, jsonSchema }) {
      const look = lookOf(zodSchema);
      if (look !== null) Object.assign(jsonSchema, look(jsonOf));
      if (!isWritten(jsonSchema.default, jsonSchema.type)) delete jsonSchema.default;
    },
  });
  return json as Json;
}

/** A default that is a map, or the number that a text becomes, is no value that a file may have. */
function isWritten(absent: unknown, type: unknown): boolean {
  return typeof absent === "number" ? type === "number" || type === "integer" : typeof absent !== "object";
}

/** Gives each field its text. `*` in a path is any name, `[]` any element. */
function describe(schema: Json, path: string, texts: Readonly<Record<string, string>>): void {
  const below = (part: unknown, at: string): void => {
    if (part !== null && typeof part === "object") describe(part as Json, at, texts);
  };
  const join = (key: string): string => (path === "" ? key : `${path}.${key}`);
  for (const [key, part] of Object.entries((schema.properties as Json | undefined) ?? {})) {
    const text = texts[join(key)];
    if (text !== undefined) (part as Json).description = text;
    below(part, join(key));
  }
  below(schema.additionalProperties, join("*"));
  below(schema.items, `${path}[]`);
  for (const form of (schema.anyOf as Json[] | undefined) ?? []) below(form, path);
}
