import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ModelFailure } from "../../../src/agent/events.ts";
import { type ScriptedAnswer, ScriptModel } from "../../../src/agent/open-script.ts";
import type { ModelRequest, StreamPart } from "../../../src/agent/spending.ts";

const REQUEST: ModelRequest = { prompt: [{ role: "user", content: [{ type: "text", text: "Hello" }] }] };

async function partsOf(model: ScriptModel): Promise<StreamPart[]> {
  const { stream } = await model.doStream(REQUEST);
  return await Array.fromAsync(stream);
}

const answer = fc.record<ScriptedAnswer>({
  say: fc.oneof(fc.string(), fc.constantFrom("", " ", "\n\n", "a  b \n", "  a", "😀 😀")),
  calls: fc.array(fc.record({ tool: fc.string({ minLength: 1 }), input: fc.dictionary(fc.string(), fc.jsonValue()) }), {
    maxLength: 4,
  }),
  usage: fc.option(fc.record({ input: fc.nat(), output: fc.nat() })),
});

describe("a model whose part a script plays", () => {
  it("streams as every model does: a start, texts and calls that begin and end, and one finish", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(answer, { maxLength: 5 }), async (answers) => {
        const model = new ScriptModel("s.yaml", answers);
        const ids = new Set<string>();
        for (const { say, calls, usage } of answers) {
          const parts = await partsOf(model);
          expect(parts[0]).toEqual({ type: "stream-start", warnings: [] });
          const finish = parts.at(-1);
          expect(parts.filter(({ type }) => type === "finish")).toEqual([finish]);
          expect(finish).toMatchObject({
            finishReason: { unified: calls.length > 0 ? "tool-calls" : "stop" },
            usage: { inputTokens: { total: usage?.input }, outputTokens: { total: usage?.output } },
          });
          const texts = parts.filter(({ type }) => type.startsWith("text-"));
          expect(texts.map(({ type }) => type).filter((type) => type !== "text-delta")).toEqual(
            say === "" ? [] : ["text-start", "text-end"],
          );
          expect(parts.flatMap((part) => (part.type === "text-delta" ? [part.delta] : [])).join("")).toBe(say);
          const called = parts.flatMap((part) => (part.type === "tool-call" ? [part] : []));
          expect(called.map(({ toolName }) => toolName)).toEqual(calls.map(({ tool }) => tool));
          for (const { toolCallId, input } of called) {
            expect(() => JSON.parse(input)).not.toThrow();
            expect(ids.has(toolCallId)).toBe(false);
            ids.add(toolCallId);
          }
        }
        await expect(partsOf(model)).rejects.toThrow(ModelFailure);
      }),
    );
  });

  it("says a long text at once, also one of nothing but blanks", async () => {
    const begunAt = performance.now();
    const say = `a${" ".repeat(50_000)}`;
    const [blank, ended] = [" ".repeat(50_000), `${say}b`];
    const model = new ScriptModel(
      "s.jsonl",
      [blank, say, ended].map((text) => ({ say: text, calls: [], usage: null })),
    );
    for (const text of [blank, say, ended]) {
      const said = (await partsOf(model)).flatMap((part) => (part.type === "text-delta" ? [part.delta] : []));
      expect(said.join("")).toBe(text);
    }
    expect(performance.now() - begunAt).toBeLessThan(10_000);
  });

  it("says that it has nothing more to say, as often as it is asked, and that asking again is of no use", async () => {
    const model = new ScriptModel("s.yaml", []);
    for (const _ of [1, 2])
      await expect(partsOf(model)).rejects.toMatchObject({
        code: "SCRIPT_FAILED",
        retryAfterMs: null,
        message: "The script s.yaml has only 0 answers, but the agent needs another one.",
      });
  });
});
