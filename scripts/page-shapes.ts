/** Makes the types of the page from today's OpenAPI document: `node scripts/page-shapes.ts`. A test compares them. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { openApiDocument } from "./openapi-document.ts";

type Json = Readonly<Record<string, unknown>>;

export const SHAPES = join(import.meta.dirname, "../src/serve/web/api/shapes.ts");

const HEAD = `// biome-ignore-all format: this file is made.
/* What the service answers with. Made by scripts/page-shapes.ts from the OpenAPI document; not to be changed by hand. */
`;
const SECTION = "#/components/schemas/";

/** One type for each named schema that an answer has. */
export function shapesOf(document: string): string {
  const { paths, components } = JSON.parse(document) as {
    readonly paths: Readonly<Record<string, Readonly<Record<string, Json>>>>;
    readonly components: { readonly schemas: Readonly<Record<string, Json>> };
  };
  const answers = Object.values(paths).flatMap((path) => Object.values(path).map(({ responses }) => responses));
  const names = namesIn(answers, components.schemas);
  const types = names.map((name) => {
    const schema = components.schemas[name] ?? {};
    return `${docOf(schema, "")}export type ${name} = ${typeOf(schema, "")};\n`;
  });
  return [HEAD, ...types].join("\n");
}

function namesIn(value: unknown, schemas: Readonly<Record<string, Json>>): string[] {
  const found = new Set<string>();
  const waiting = [value];
  for (let one = waiting.pop(); one !== undefined; one = waiting.pop())
    for (const [, name = ""] of JSON.stringify(one).matchAll(/"#\/components\/schemas\/(\w+)"/g)) {
      if (found.has(name)) continue;
      found.add(name);
      waiting.push(schemas[name]);
    }
  return [...found].toSorted();
}

function typeOf(schema: Json, indent: string): string {
  const { $ref, anyOf, type, items, properties, additionalProperties } = schema;
  if (typeof $ref === "string") return $ref.slice(SECTION.length);
  if (Array.isArray(anyOf)) return unionOf(anyOf.map((one: Json) => typeOf(one, indent)));
  if (Array.isArray(type)) return unionOf(type.map((one: string) => typeOf({ ...schema, type: one }, indent)));
  if (Array.isArray(schema.enum)) return unionOf(schema.enum.map((one) => JSON.stringify(one)));
  if ("const" in schema) return JSON.stringify(schema.const);
  switch (type) {
    case "integer":
    case "number":
      return "number";
    case "string":
    case "boolean":
    case "null":
      return type;
    case "array": {
      const of = typeOf((items ?? {}) as Json, indent);
      return `readonly ${/[ |]/.test(of) && !of.startsWith("{") ? `(${of})` : of}[]`;
    }
    case "object":
      if (properties !== undefined) return objectOf(schema, indent);
      return `Readonly<Record<string, ${typeOf((additionalProperties ?? {}) as Json, indent)}>>`;
    default:
      return "unknown";
  }
}

function objectOf({ properties, required = [] }: Json, indent: string): string {
  const inner = `${indent}  `;
  const fields = Object.entries(properties as Readonly<Record<string, Json>>).map(([name, schema]) => {
    const mark = (required as readonly string[]).includes(name) ? "" : "?";
    return `${docOf(schema, inner)}${inner}readonly ${name}${mark}: ${typeOf(schema, inner)};\n`;
  });
  return `{\n${fields.join("")}${indent}}`;
}

/** Known values of an open list say nothing to the compiler. */
function unionOf(parts: readonly string[]): string {
  const isText = parts.includes("string");
  const split = parts.flatMap((part) => (part.includes("{") ? [part] : part.split(" | ")));
  const kept = split.filter((part) => !isText || !part.startsWith('"'));
  return [...new Set(kept)].join(" | ");
}

function docOf({ description, $ref }: Json, indent: string): string {
  return typeof description === "string" && $ref === undefined ? `${indent}/** ${description}. */\n` : "";
}

if (import.meta.main) await writeFile(SHAPES, shapesOf(await openApiDocument()));
