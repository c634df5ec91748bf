import { MockLanguageModelV4 } from "ai/test";

/** A model of the `ai` package that needs no key and no network: it returns its answers, texts or tool calls, in order. */
export function scriptedModel(...answers: readonly (string | { tool: string; input: object })[]): MockLanguageModelV4 {
  return new MockLanguageModelV4({
    doGenerate: answers.map((answer, index) => ({
      content: [
        typeof answer === "string"
          ? { type: "text", text: answer }
          : { type: "tool-call", toolCallId: `${index}`, toolName: answer.tool, input: JSON.stringify(answer.input) },
      ],
      finishReason: { unified: typeof answer === "string" ? "stop" : "tool-calls", raw: undefined },
      usage: {
        inputTokens: { total: 0, noCache: 0, cacheRead: 0, cacheWrite: 0 },
        outputTokens: { total: 0, text: 0, reasoning: 0 },
      },
      warnings: [],
    })),
  });
}
