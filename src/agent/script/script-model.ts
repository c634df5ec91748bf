import { ModelFailure } from "../failure.ts";
import type { LanguageModel, ModelRequest, ModelStream, StreamPart } from "../opened-model.ts";
import type { ScriptedAnswer } from "./script.ts";

/** Gives the answers of a script in order, whatever it is asked. */
export class ScriptModel implements LanguageModel {
  readonly specificationVersion = "v4";
  readonly provider = "script";
  readonly modelId: string;
  readonly supportedUrls = {};
  readonly #answers: readonly ScriptedAnswer[];
  #next = 0;

  constructor(file: string, answers: readonly ScriptedAnswer[]) {
    this.modelId = file;
    this.#answers = answers;
  }

  async doStream(_request: ModelRequest): Promise<ModelStream> {
    const answer = this.#answers[this.#next];
    if (answer === undefined) {
      const message = `The script ${this.modelId} has only ${this.#answers.length} answers, but the agent needs another one.`;
      throw new ModelFailure("SCRIPT_FAILED", message);
    }
    this.#next += 1;
    return { stream: ReadableStream.from(partsOf(answer, this.#next)) as ReadableStream<StreamPart> };
  }

  async doGenerate(): Promise<never> {
    throw new Error("a script supports only streaming");
  }
}

function partsOf({ say, calls, usage }: ScriptedAnswer, turn: number): StreamPart[] {
  const parts: StreamPart[] = [{ type: "stream-start", warnings: [] }];
  if (say !== "") {
    const id = `text-${turn}`;
    parts.push({ type: "text-start", id });
    // Word by word, as models do.
    for (const delta of say.split(/(?<=\s)(?=\S)/)) parts.push({ type: "text-delta", id, delta });
    parts.push({ type: "text-end", id });
  }
  for (const [index, { tool, input }] of calls.entries()) {
    const toolCallId = `call-${turn}-${index + 1}`;
    parts.push({ type: "tool-call", toolCallId, toolName: tool, input: JSON.stringify(input) });
  }
  parts.push({
    type: "finish",
    usage: {
      inputTokens: { total: usage?.input, noCache: undefined, cacheRead: undefined, cacheWrite: undefined },
      outputTokens: { total: usage?.output, text: undefined, reasoning: undefined },
    },
    finishReason: { unified: calls.length > 0 ? "tool-calls" : "stop", raw: undefined },
  });
  return parts;
}
