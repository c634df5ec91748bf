import { generateText, isStepCount } from "ai";
import { describe, expect, it } from "vitest";
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
