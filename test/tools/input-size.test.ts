import { expect, it } from "vitest";
import type { Hands } from "../../src/tools/hands.ts";
import { runTool } from "../../src/tools/run-tool.ts";

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
