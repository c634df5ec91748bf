import { readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { TOOL_NAMES } from "../../src/declarations/worker/tool-names.ts";
import type { Hands } from "../../src/tools/hands.ts";
import { runTool } from "../../src/tools/run-tool.ts";
import { inputSchemaOf } from "../../src/tools/tool.ts";
import { TOOLS } from "../../src/tools/toolbox.ts";

describe("the toolbox", () => {
  it("has the tools that a worker file can name, each under its own name", () => {
    expect([...TOOLS.keys()]).toEqual(TOOL_NAMES);
    for (const [name, tool] of TOOLS) expect(tool.name).toBe(name);
  });

  it("is listed whole in the README", async () => {
    const readme = await readFile(new URL("../../README.md", import.meta.url), "utf8");
    expect(readme.replace(/\s+/g, " ")).toContain(`\`${TOOL_NAMES.join(" ")}\``);
  });

  it("names only fields of its input as paths", () => {
    for (const { name, input, paths } of TOOLS.values()) {
      const fields = Object.keys((input as unknown as { shape: object }).shape);
      for (const field of Object.keys(paths)) expect(fields, name).toContain(field);
      if (fields.includes("path")) expect(Object.keys(paths), name).toContain("path");
    }
  });
});

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

it("a tool's input has at most 10,000 values, a call's as many as any JSON", async () => {
  const signal = new AbortController().signal;
  const parts = Array.from({ length: 10_000 }, () => 0);
  const hands = {
    call: async () => ({ status: "succeeded", output: "", error: null, result: {} }),
  } as unknown as Hands;
  expect(await runTool("exec", { command: "ls", env: parts }, hands, signal)).toMatchObject({
    ok: false,
    code: "BAD_INPUT",
    message: expect.stringContaining("more than 10000 values"),
  });
  expect(await runTool("call_worker", { worker: "w", input: parts }, hands, signal)).toMatchObject({ ok: true });
});
