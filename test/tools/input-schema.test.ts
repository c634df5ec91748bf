import { describe, expect, it } from "vitest";
import { inputSchemaOf } from "../../src/tools/tool.ts";
import { TOOLS } from "../../src/tools/toolbox.ts";

const tools = [...TOOLS.values()];

describe("what a model is told of the tools", () => {
  it("is what it was: names, descriptions and inputs", async () => {
    const told = tools.map((tool) => ({
      name: tool.name,
      uses: tool.uses,
      description: tool.description,
      input: inputSchemaOf(tool),
    }));
    await expect(`${JSON.stringify(told, null, 2)}\n`).toMatchFileSnapshot("./golden/tools.json");
  });

  it.each(tools)("$name speaks of files and directories only, and of no project's", (tool) => {
    const texts = JSON.stringify([tool.description, inputSchemaOf(tool)]);
    expect(texts).not.toMatch(/zone|mount|sandbox|docker/i);
    const paths = texts.match(/(?<![\w`*])\/[a-z][\w/]*/g) ?? [];
    expect(paths.filter((path) => path !== "/tmp" && !path.startsWith("/json"))).toEqual([]);
  });

  it.each(tools)("$name takes an object, of known fields, and each of them is explained", (tool) => {
    const schema = inputSchemaOf(tool) as { properties: Record<string, Record<string, unknown>> };
    expect(schema).toMatchObject({
      $schema: "https://json-schema.org/draft/2020-12/schema",
      type: "object",
      additionalProperties: false,
    });
    const silent = Object.entries(schema.properties).filter(([, field]) => typeof field.description !== "string");
    expect(silent.map(([name]) => name)).toEqual([]);
  });

  it("asks for nothing that has a default", () => {
    for (const tool of tools) {
      const { required = [], properties } = inputSchemaOf(tool) as {
        required?: string[];
        properties: Record<string, { default?: unknown }>;
      };
      expect(required.filter((name) => properties[name]?.default !== undefined)).toEqual([]);
    }
  });
});
