import { readFile } from "node:fs/promises";
import { expect, it } from "vitest";
import { openApiDocument } from "../../scripts/openapi-document.ts";
import { SHAPES, shapesOf } from "../../scripts/page-shapes.ts";

it("the types of the page are those of the answers that the service describes", async () => {
  const made = shapesOf(await openApiDocument());
  expect(await readFile(SHAPES, "utf8"), "make them again: node scripts/page-shapes.ts").toBe(made);
});

it("a schema becomes a type: required and optional fields, lists, unions, what is null, and other schemas by their names", () => {
  const schema = {
    type: "object",
    required: ["id", "list", "status", "other"],
    properties: {
      id: { type: "string", description: "Its name" },
      list: { type: "array", items: { anyOf: [{ type: "integer" }, { type: "null" }] } },
      status: { anyOf: [{ enum: ["a", "b"] }, { type: "string" }] },
      mode: { enum: ["ro", "rw"] },
      other: { anyOf: [{ $ref: "#/components/schemas/Other" }, { type: "null" }] },
      map: { type: "object", additionalProperties: { type: "number" } },
      any: {},
    },
  };
  const schemas = { One: schema, Other: { type: "object", properties: { deep: { const: true } } }, Sent: {} };
  const responses = { 200: { schema: { $ref: "#/components/schemas/One" } } };
  const requestBody = { schema: { $ref: "#/components/schemas/Sent" } };
  const paths = { "/one": { get: { responses, requestBody } } };
  const text = shapesOf(JSON.stringify({ paths, components: { schemas } }));
  expect(text.slice(text.indexOf("export"))).toBe(`export type One = {
  /** Its name. */
  readonly id: string;
  readonly list: readonly (number | null)[];
  readonly status: string;
  readonly mode?: "ro" | "rw";
  readonly other: Other | null;
  readonly map?: Readonly<Record<string, number>>;
  readonly any?: unknown;
};

export type Other = {
  readonly deep?: true;
};
`);
});
