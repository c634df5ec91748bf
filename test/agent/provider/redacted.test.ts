import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { ask, askAgain, PATIENCE } from "../../../src/agent/asked-again.ts";
import type { ModelAnswer } from "../../../src/agent/events.ts";
import { redacted } from "../../../src/agent/open-model.ts";
import { ScriptModel } from "../../../src/agent/open-script.ts";
import type { LanguageModel, StreamPart } from "../../../src/agent/spending.ts";
import { Redactor } from "../../../src/secrets/read-secret.ts";

const KEY = "sk-canary-51c0ffee";
/** As JSON may have it. */
const ESCAPED = [...KEY].map((letter) => `\\u00${letter.charCodeAt(0).toString(16)}`).join("");
const END: StreamPart = {
  type: "finish",
  finishReason: { unified: "stop", raw: undefined },
  usage: {
    inputTokens: { total: 1, noCache: undefined, cacheRead: undefined, cacheWrite: undefined },
    outputTokens: { total: 1, text: undefined, reasoning: undefined },
  },
};

const redactor = new Redactor([KEY]);

/** A model that streams this, with so much time before each part. */
function streaming(parts: readonly StreamPart[], pauseMs = 0): LanguageModel {
  const model = new ScriptModel("s", []);
  model.doStream = async () => ({
    stream: ReadableStream.from(
      (async function* () {
        for (const part of [{ type: "stream-start" as const, warnings: [] }, ...parts, END]) {
          if (pauseMs > 0) await delay(pauseMs);
          yield part;
        }
      })(),
    ) as ReadableStream<StreamPart>,
  });
  return redacted(model, redactor);
}

async function heard(parts: readonly StreamPart[], pauseMs = 0): Promise<{ answer: ModelAnswer; told: string }> {
  const redact = (text: string): string => redactor.text(text);
  const redactPieces = () => redactor.pieces();
  const redactValue = (value: unknown): unknown => redactor.value(value);
  const model = streaming(parts, pauseMs);
  const opened = { name: "m", model, images: "never" as const, price: null, redact, redactPieces, redactValue };
  const pieces: string[] = [];
  const listener = { text: (piece: string) => void pieces.push(piece), lost: () => {} };
  const question = { opened, system: "", messages: [{ role: "user" as const, content: "Hello" }], tools: [] };
  const answer = await ask(question, listener, 200, new AbortController().signal);
  return { answer, told: pieces.join("") };
}

const call = (id: string, toolName: string, input: string): StreamPart => ({
  type: "tool-call",
  toolCallId: id,
  toolName,
  input,
});

describe("a model without its key", () => {
  it("says what it says but for the key, however that is cut, in two texts that come by turns", async () => {
    const letters = [...`a ${KEY} b`];
    const { answer, told } = await heard([
      { type: "text-start", id: "1" },
      { type: "reasoning-start", id: "r" },
      ...letters.flatMap((delta): StreamPart[] => [
        { type: "text-delta", id: "1", delta },
        { type: "reasoning-delta", id: "r", delta },
      ]),
      { type: "text-end", id: "1" },
      { type: "reasoning-end", id: "r" },
    ]);
    expect([told, answer.text]).toEqual(["a [secret] b", "a [secret] b"]);
    expect(JSON.stringify(answer)).not.toContain(KEY);
    expect(JSON.stringify(answer.messages)).toContain('"reasoning"');
  });

  it("says none that two of its texts make together", async () => {
    const texts = [KEY.slice(0, 7), KEY.slice(7)].flatMap((delta, at): StreamPart[] => [
      { type: "text-start", id: `${at}` },
      { type: "text-delta", id: `${at}`, delta },
      { type: "text-end", id: `${at}` },
    ]);
    const { answer, told } = await heard(texts);
    expect([told, answer.text]).toEqual(["[secret]", "[secret]"]);
  });

  it("keeps the end of a text that only began like a key", async () => {
    const delta = `it is ${KEY.slice(0, -1)}`;
    const { told } = await heard([
      { type: "text-start", id: "1" },
      { type: "text-delta", id: "1", delta },
      { type: "text-end", id: "1" },
    ]);
    expect(told).toBe(delta);
  });

  it("calls without it: in names, ids, and inputs, also those that are no JSON", async () => {
    const { answer } = await heard([
      call(`id-${KEY}`, `tool-${KEY}`, `{"a":"${ESCAPED}"}`),
      call("2", "t", `{"${KEY}": [${KEY}`),
    ]);
    expect(JSON.stringify(answer)).not.toContain(KEY);
    expect(answer.calls).toMatchObject([
      { id: "id-[secret]", tool: "tool-[secret]", input: { a: "[secret]" } },
      { id: "2", input: '{"[secret]": [[secret]' },
    ]);
  });

  it("gives no input on that it cannot clean", async () => {
    const depth = 100_000;
    const input = `${"[".repeat(depth)}"${ESCAPED}"${"]".repeat(depth)}`;
    const { stream } = await streaming([call("1", "t", input)]).doStream({ prompt: [] });
    await expect(Array.fromAsync(stream)).rejects.toMatchObject({ code: "ANSWER_TOO_LARGE" });
  });

  it("lets a bug of its own through for what it is", async () => {
    const bug = new TypeError("x is not a function");
    class Broken extends Redactor {
      override value(): never {
        throw bug;
      }
    }
    const model = redacted(streaming([call("1", "t", "{}")]), new Broken([KEY]));
    const noKey = { redact: String, redactPieces: () => redactor.pieces(), redactValue: String };
    const opened = { name: "m", model, images: "never" as const, price: null, ...noKey };
    const question = { opened, system: "", messages: [{ role: "user" as const, content: "Hello" }], tools: [] };
    const around = { emit: () => {}, lost: () => {}, spent: () => null };
    await expect(askAgain(question, PATIENCE, around, new AbortController().signal)).rejects.toBe(bug);
  });

  it("leaves the inputs of calls as they are but for that", async () => {
    const input = '{"__proto__":{"a":1},"n":1.5,"list":[null,true,"\\u2028"]}';
    const { answer } = await heard([call("1", "t", input)]);
    // What stands for it in the conversation; the package itself takes a `__proto__` for no input at all.
    expect(answer.calls).toHaveLength(1);
    expect(({} as { a?: number }).a).toBeUndefined();
    const plain = await heard([call("1", "t", '{"n":1.5,"list":[null,true,"\\u2028"]}')]);
    expect(plain.answer.calls[0]?.input).toEqual({ n: 1.5, list: [null, true, "\u2028"] });
  });

  it("is not silent while the input of a call comes, however long that takes; and it counts once", async () => {
    const pieces = Array.from(
      { length: 8 },
      (_, at): StreamPart => ({
        type: "tool-input-delta",
        id: "1",
        delta: at === 0 ? '{"a":"' : at === 7 ? '"}' : KEY,
      }),
    );
    const { answer } = await heard(
      [
        { type: "tool-input-start", id: "1", toolName: "t" },
        ...pieces,
        { type: "tool-input-end", id: "1" },
        call("1", "t", `{"a":"${KEY.repeat(6)}"}`),
      ],
      60,
    );
    expect(answer.calls).toMatchObject([{ input: { a: "[secret]".repeat(6) } }]);
    expect(answer.characters).toBe(8 + KEY.length * 6);
  });

  it("that says nothing for too long is left", async () => {
    await expect(heard([{ type: "text-start", id: "1" }], 250)).rejects.toMatchObject({ code: "MODEL_UNAVAILABLE" });
  });
});
