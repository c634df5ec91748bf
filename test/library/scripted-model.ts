import { MockLanguageModelV4 } from "ai/test";

/** One answer of the model: what it says, or the tools that it calls, each with its input. */
export type ScriptedStep = string | readonly (readonly [tool: string, input: unknown])[];

type Generated = Awaited<ReturnType<MockLanguageModelV4["doGenerate"]>>;

const USAGE: Generated["usage"] = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
};

/** A model of the `ai` package that answers what is said here, and remembers what it was asked. */
export function scriptedModel(...steps: readonly ScriptedStep[]): MockLanguageModelV4 {
  return new MockLanguageModelV4({ doGenerate: steps.map(generated) });
}

function generated(step: ScriptedStep, at: number): Generated {
  const says = typeof step === "string";
  return {
    content: says
      ? [{ type: "text", text: step }]
      : step.map(([toolName, input], index) => ({
          type: "tool-call",
          toolCallId: `call-${at + 1}-${index + 1}`,
          toolName,
          input: JSON.stringify(input),
        })),
    finishReason: { unified: says ? "stop" : "tool-calls", raw: undefined },
    usage: USAGE,
    warnings: [],
  };
}
