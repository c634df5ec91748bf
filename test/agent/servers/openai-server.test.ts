import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { describe, expect, it } from "vitest";
import { hear, partsOf } from "./heard.ts";
import { itSpeaks, type Spoken } from "./model-server.contract.ts";
import { openAiServer } from "./openai-server.ts";

const NO_ANSWER = "onError, text rejects AI_NoOutputGeneratedError";
const THROWS = "throws AI_APICallError 200 retryable, text rejects AI_APICallError";

const compatible: Spoken = {
  serve: openAiServer,
  // Without `includeUsage` this package does not ask for the usage of a stream, and gets none.
  model: (baseURL, apiKey) => createOpenAICompatible({ name: "local", baseURL, apiKey, includeUsage: true })("local-1"),
  path: "/v1/chat/completions",
  outcomes: {
    "cut before the first event": THROWS,
    "cut after the first event": THROWS,
    "ends before the first event": "reports AI_InvalidResponseDataError, onError, finish error, text resolves",
    "ends within the text": "reports AI_InvalidResponseDataError, onError, finish error, text resolves",
    "reports an overload before any output":
      "reports AI_StreamProviderError - final, onError, finish error, text resolves",
    "reports an overload within the text":
      "reports AI_StreamProviderError - final, onError, finish error, text resolves",
    "sends events that are no JSON": "reports AI_JSONParseError, onError, finish error, text resolves",
    "sends events of an unknown shape": "reports AI_TypeValidationError, onError, finish error, text resolves",
    "sends a page": "reports AI_InvalidResponseDataError, onError, finish error, text resolves",
  },
  toolError: { role: "tool", content: "refused" },
  imagesOfTools: 0,
  lateResult: 400,
};

itSpeaks("@ai-sdk/openai-compatible", compatible);

itSpeaks("@ai-sdk/openai-compatible with tool results of several parts", {
  ...compatible,
  model: (baseURL, apiKey) =>
    createOpenAICompatible({
      name: "local",
      baseURL,
      apiKey,
      includeUsage: true,
      supportsMultiPartToolContent: true,
    })("local-1"),
  imagesOfTools: 1,
});

itSpeaks("@ai-sdk/openai", {
  serve: openAiServer,
  model: (baseURL, apiKey) => createOpenAI({ baseURL, apiKey })("gpt-5"),
  path: "/v1/responses",
  outcomes: {
    "cut before the first event": `reports AI_APICallError 200 retryable, ${NO_ANSWER}`,
    "cut after the first event": `reports AI_APICallError 200 retryable, ${NO_ANSWER}`,
    "ends before the first event": "finish interrupted, text resolves",
    "ends within the text": "finish interrupted, text resolves",
    "reports an overload before any output": `reports AI_APICallError 503 retryable, ${NO_ANSWER}`,
    "reports an overload within the text":
      "reports AI_StreamProviderError 503 retryable, onError, finish error, text resolves",
    "sends events that are no JSON": "reports AI_JSONParseError, onError, finish error, text resolves",
    "sends events of an unknown shape": "reports AI_TypeValidationError, onError, finish error, text resolves",
    "sends a page": "finish interrupted, text resolves",
  },
  toolError: { type: "function_call_output", call_id: "call_a", output: '{"error":"refused"}' },
  imagesOfTools: 1,
  lateResult: 200,
});

describe("the server of chat completions", () => {
  it("tells the usage of a stream to those alone who ask for it", async () => {
    await using server = await openAiServer([{ type: "turn", turn: { text: "Hello" } }]);
    const heard = await hear(createOpenAICompatible({ name: "local", baseURL: server.url })("local-1"));
    expect(heard.text).toBe("Hello");
    expect(partsOf(heard, "finish-step")[0]?.usage.inputTokens).toBeUndefined();
    expect(server.requests[0]?.key).toBe("");
  });
});

describe("the server of responses", () => {
  it.each([
    [true, ["user", "item_reference", "function_call", "function_call_output"]],
    [false, ["user", "assistant", "function_call", "function_call_output"]],
  ])("is sent a call whole, and a text by reference where it may store (%s)", async (store, kinds) => {
    await using server = await openAiServer([
      { type: "turn", turn: { text: "I say it.", calls: [{ name: "say", input: { text: "a" } }] } },
      { type: "turn", turn: { text: "Said." } },
    ]);
    const model = createOpenAI({ baseURL: server.url, apiKey: "sk-1" })("gpt-4.1");
    const heard = await hear(model);
    const [text] = partsOf(heard, "text-start");
    const [call] = partsOf(heard, "tool-call");
    if (text === undefined || call === undefined) throw new Error("The model did not say and call.");
    const { toolCallId, toolName, input, providerMetadata } = call;
    expect([text.providerMetadata, providerMetadata]).toMatchObject([
      { openai: { itemId: "msg_0" } },
      { openai: { itemId: "fc_0_0" } },
    ]);
    const content = [
      { type: "text" as const, text: heard.text, providerOptions: text.providerMetadata ?? {} },
      { type: "tool-call" as const, toolCallId, toolName, input, providerOptions: providerMetadata ?? {} },
    ];
    const output = { type: "text" as const, value: "a" };
    const said = await hear(model, {
      providerOptions: { openai: { store } },
      messages: [
        { role: "user", content: "Hello" },
        { role: "assistant", content },
        { role: "tool", content: [{ type: "tool-result", toolCallId, toolName, output }] },
      ],
    });
    expect(said.text).toBe("Said.");
    expect(server.requests[1]?.messages.map(({ type, role }) => role ?? type)).toEqual(kinds);
  });
});
