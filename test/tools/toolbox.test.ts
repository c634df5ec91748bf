import { readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { TOOL_NAMES } from "../../src/declarations/worker/tool-names.ts";
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
