import { generateText, isStepCount, simulateStreamingMiddleware, streamText, wrapLanguageModel } from "ai";
import { describe, expect, it } from "vitest";
import type { AgentTool } from "../../src/agent/events.ts";
import { aiTools } from "../../src/library/tool-functions.ts";
import { scriptedModel } from "./scripted-model.ts";

describe("a tool for `ai` that fails", () => {
  it("tells the model nothing of the host, and the program why", async () => {
    const trouble = new Error("connect ENOENT /home/me/secret/docker.sock");
    const failing = {
      name: "fails",
      description: "",
      inputSchema: { type: "object" },
      parallel: true,
      run: async () => {
        throw trouble;
      },
    };
    const model = scriptedModel([["fails", {}]], "Then not.");
    const tools = aiTools([failing], "never");
    const { steps } = await generateText({ model, tools, prompt: "Go.", stopWhen: isStepCount(2) });
    const [part] = steps[0]?.content.filter(({ type }) => type === "tool-error") ?? [];
    expect(part?.type === "tool-error" && (part.error as Error).cause).toBe(trouble);
    const told = JSON.stringify(model.doGenerateCalls[1]?.prompt);
    expect(told).toContain("outside of this sandbox");
    expect(told).not.toContain("secret");
  });
});

describe("a command for `ai`", () => {
  it("shows what it has printed while it runs, cut at its beginning, and gives the model its answer alone", async () => {
    const more = Promise.withResolvers<void>();
    const exec: AgentTool = {
      name: "exec",
      description: "",
      inputSchema: { type: "object" },
      parallel: false,
      hasOutput: true,
      async run(_, __, onOutput) {
        const [half, rest] = [Buffer.from("ä").subarray(0, 1), Buffer.from("ä").subarray(1)];
        onOutput?.("stdout", Buffer.from(`${"x".repeat(20_000)}one`));
        onOutput?.("stdout", half);
        onOutput?.("stderr", Buffer.from("!"));
        await more.promise;
        onOutput?.("stdout", rest);
        return { ok: true, code: null, text: "all of it" };
      },
    };
    const scripted = scriptedModel([["exec", {}]], "Done.");
    const model = wrapLanguageModel({ model: scripted, middleware: simulateStreamingMiddleware() });
    const { fullStream } = streamText({
      model,
      tools: aiTools([exec], "never"),
      prompt: "Go.",
      stopWhen: isStepCount(2),
    });
    const outputs: { preliminary: boolean | undefined; text: string }[] = [];
    for await (const part of fullStream) {
      if (part.type !== "tool-result") continue;
      outputs.push({ preliminary: part.preliminary, text: (part.output as { text: string }).text });
      more.resolve();
    }
    expect(outputs[0]?.preliminary).toBe(true);
    expect(outputs[0]?.text).toHaveLength(16_000);
    expect(outputs[0]?.text).toMatch(/xone!$/);
    expect(outputs.at(-1)).toEqual({ preliminary: undefined, text: "all of it" });
    const prompt = JSON.stringify(scripted.doGenerateCalls[1]?.prompt);
    expect(prompt).toContain("all of it");
    expect(prompt).not.toContain("one!");
  });
});
