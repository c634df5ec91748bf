import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { memoryEngine } from "../memory-engine.ts";
import { openSessionIn, type SessionFixture } from "./session-fixture.ts";

let s: SessionFixture;

beforeAll(async () => {
  s = await openSessionIn(
    {
      workers: { w: { command: ["true"], sandbox: { inherit: true } } },
      files: { "src/a": "a", "project/a": "of the directory named project" },
      sandbox: { root: { root: ".", readonly: true }, mode: undefined, zones: undefined },
    },
    { engine: memoryEngine({ programs: {} }).open },
  );
});

afterAll(async () => {
  await s[Symbol.asyncDispose]();
});

async function told(tool: string, input: unknown): Promise<string> {
  const result = await s.tool(tool, input);
  return result.ok ? result.text : `${result.code}: ${result.message}`;
}

describe("a file of the root form", () => {
  it("has two names for tools, and a refusal gives both", async () => {
    for (const path of ["/src/a", "/project/src/a", "src/a", "/project/./src//a"])
      expect(await told("read_file", { path })).toBe("a");
    expect(await told("list_files", { path: "/project/src" })).toBe("/src/a (1 bytes)");
    for (const path of ["/src/none", "/project/src/none"])
      expect(await told("read_file", { path })).toMatch(
        /^NOT_FOUND: Cannot find '\/src\/none'[\s\S]*\nCommands see it at '\/project\/src\/none'\.$/,
      );
  });

  it("in a directory that is named project itself is listed by the name that leads to it", async () => {
    const listed = await told("list_files", { path: "/", pattern: "project/*" });
    expect(listed).toBe("/project/project/a (30 bytes)");
    expect(await told("read_file", { path: "/project/project/a" })).toBe("of the directory named project");
    expect(await told("list_files", { path: "/project/project" })).toBe("/project/project/a (30 bytes)");
  });
});
