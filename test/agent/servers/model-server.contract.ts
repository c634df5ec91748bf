import {
  APICallError,
  generateText,
  InvalidToolInputError,
  type JSONValue,
  type LanguageModel,
  type ModelMessage,
} from "ai";
import { describe, expect, it } from "vitest";
import type { Behaviour, ModelTurn } from "./behaviour.ts";
import { hear, outcomeOf, partsOf, SAY_SCHEMA, TOOLS } from "./heard.ts";
import type { Behaviours, ModelServer } from "./model-server.ts";

/** A server and the package that speaks to it. */
export interface Spoken {
  serve(behaviours: Behaviours): Promise<ModelServer>;
  model(url: string, key: string): LanguageModel;
  /** The path its requests go to. */
  path: string;
  /** How the cases end that the packages treat each in its own way; each is a line of `outcomeOf`. */
  outcomes: Record<keyof typeof UNLIKE, string>;
  /** What `error-text` of a tool becomes; and how many images of a tool's result arrive as images. */
  toolError: JSONValue;
  imagesOfTools: number;
  /** The status of the answer to a request that has another message between a call and its result. */
  lateResult: 200 | 400;
}

const KEY = "sk-canary-51c0ffee";
/** Two, three and four bytes a character, an emoji of several parts and a letter whose accent is a character of its own. */
const TEXT = "Grüße an 世界, 👩‍👩‍👧 und e\u0301!";
const TURN: ModelTurn = {
  text: TEXT,
  calls: [
    { name: "say", input: { text: 'h"é\\é\n世' } },
    { name: "say", input: { text: "the second" } },
  ],
  usage: { input: 100, output: 20, cached: 30 },
};
/** A picture of one pixel. */
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/** A call of the model and its result, as the next request has them. */
function afterCall(result: Extract<ModelMessage, { role: "tool" }>["content"][number]): ModelMessage[] {
  return [
    { role: "user", content: "Hello" },
    {
      role: "assistant",
      content: [{ type: "tool-call", toolCallId: "call_a", toolName: "say", input: { text: "a" } }],
    },
    { role: "tool", content: [result] },
  ];
}

const UNLIKE = {
  "cut before the first event": { type: "cut", after: 0, turn: TURN },
  "cut after the first event": { type: "cut", after: 1, turn: TURN },
  "ends before the first event": { type: "stop-short", after: 0, turn: TURN },
  "ends within the text": { type: "stop-short", after: 8, turn: TURN },
  "reports an overload before any output": { type: "stream-error", after: 0, turn: TURN },
  "reports an overload within the text": { type: "stream-error", after: 8, turn: TURN },
  "sends events that are no JSON": { type: "garbage" },
  "sends events of an unknown shape": { type: "garbage", what: "shape" },
  "sends a page": { type: "garbage", what: "page" },
} as const satisfies Record<string, Behaviour>;

/** What holds of each server with each package that speaks to it. */
export function itSpeaks(name: string, spoken: Spoken): void {
  const { serve, model } = spoken;

  describe(`${name}, streaming`, () => {
    it("gets text, calls and usage whole, however the bytes were cut", async () => {
      await using server = await serve([{ type: "turn", turn: TURN }]);
      const heard = await hear(model(server.url, KEY));
      expect(outcomeOf(heard)).toBe("finish tool-calls, text resolves");
      expect(heard.text).toBe(TEXT);
      expect(partsOf(heard, "text-delta").length).toBeGreaterThan(5);
      const calls = partsOf(heard, "tool-call");
      expect(calls.map(({ toolName, input }) => ({ name: toolName, input }))).toEqual(TURN.calls);
      expect(new Set(calls.map(({ toolCallId }) => toolCallId)).size).toBe(2);
      expect(partsOf(heard, "tool-input-delta").length).toBeGreaterThan(5);
      expect(partsOf(heard, "finish-step")[0]?.usage).toMatchObject({
        inputTokens: 100,
        inputTokenDetails: { cacheReadTokens: 30, noCacheTokens: 70 },
        outputTokens: 20,
      });
      expect(await server.requests[0]?.ended).toBe("answered");
    });

    it.each([
      ["stop", "stop"],
      ["length", "length"],
      ["content_filter", "content-filter"],
    ] as const)("is told the end by %s", async (finish, told) => {
      await using server = await serve([{ type: "turn", turn: { text: "So far", finish } }]);
      expect(outcomeOf(await hear(model(server.url, KEY)))).toBe(`finish ${told}, text resolves`);
    });

    it("gets arguments that are no JSON as an invalid call with an error to send back", async () => {
      const turn = { calls: [{ name: "say", input: {} }], rawArguments: '{"text": nope' };
      await using server = await serve([{ type: "turn", turn }]);
      const heard = await hear(model(server.url, KEY));
      expect(outcomeOf(heard)).toBe("finish tool-calls, text resolves");
      const [call] = partsOf(heard, "tool-call");
      expect(call).toMatchObject({ invalid: true, dynamic: true, input: '{"text": nope' });
      expect(InvalidToolInputError.isInstance(call?.error)).toBe(true);
      expect(partsOf(heard, "tool-error")[0]?.error).toMatch(/^AI_InvalidToolInputError: Invalid input for tool say/);
    });

    it.each([
      [400, "final"],
      [401, "final"],
      [404, "final"],
      [408, "retryable"],
      [429, "retryable"],
      [500, "retryable"],
      [529, "retryable"],
    ])("is refused with %i, which is %s", async (status, retry) => {
      await using server = await serve([{ type: "status", status, headers: { "retry-after": "7" } }]);
      const heard = await hear(model(server.url, KEY));
      expect(outcomeOf(heard)).toBe(
        `reports AI_APICallError ${status} ${retry}, onError, text rejects AI_NoOutputGeneratedError`,
      );
      expect(heard.parts.map(({ type }) => type)).toEqual(["start", "error"]);
      const [error] = heard.told;
      if (!APICallError.isInstance(error)) throw new Error("another error", { cause: error });
      expect(error).toMatchObject({ message: `The server answers ${status}.`, statusCode: status });
      expect(error.responseHeaders?.["retry-after"]).toBe("7");
    });

    it("tries again when it is told to, after the time that the server names", async () => {
      const refused: Behaviour = { type: "status", status: 429, headers: { "retry-after-ms": "5" } };
      await using server = await serve([refused, { type: "turn", turn: { text: "Now" } }]);
      const heard = await hear(model(server.url, KEY), { maxRetries: 1 });
      expect(heard.text).toBe("Now");
      expect(server.requests).toHaveLength(2);
    });

    it("is left before any answer", async () => {
      await using server = await serve([{ type: "drop" }]);
      const heard = await hear(model(server.url, KEY));
      expect(outcomeOf(heard)).toBe(
        "reports AI_APICallError - retryable, onError, text rejects AI_NoOutputGeneratedError",
      );
      expect(await server.requests[0]?.ended).toBe("broken");
    });

    it("has the connection cut within the text: the iteration throws, and nothing else tells", async () => {
      await using server = await serve([{ type: "cut", after: 8, turn: TURN }]);
      const heard = await hear(model(server.url, KEY));
      expect(outcomeOf(heard)).toBe("throws AI_APICallError 200 retryable, text rejects AI_APICallError");
      expect(heard.text.length).toBeGreaterThan(0);
      expect(TEXT.startsWith(heard.text)).toBe(true);
      expect(await server.requests[0]?.ended).toBe("broken");
    });

    it.each(Object.entries(UNLIKE))("%s", async (unlike, behaviour) => {
      await using server = await serve([behaviour]);
      expect(outcomeOf(await hear(model(server.url, KEY)))).toBe(spoken.outcomes[unlike as keyof typeof UNLIKE]);
    });

    it.each([
      ["never answers", { type: "hang" }],
      ["stalls within the text", { type: "stall", after: 8, turn: TURN }],
    ] as const)("leaves a server that %s, by its signal", async (_, behaviour) => {
      await using server = await serve([behaviour]);
      const heard = await hear(model(server.url, KEY), { signal: AbortSignal.timeout(300) });
      expect(outcomeOf(heard)).toBe(
        "abort TimeoutError: The operation was aborted due to timeout, text rejects TimeoutError",
      );
      expect(heard.text === "").toBe(behaviour.type === "hang");
      expect(await server.requests[0]?.ended).toBe("broken");
    });

    it("hears its key again, as text, in a call and in an error", async () => {
      await using server = await serve([
        { type: "echo-key", where: "text" },
        { type: "echo-key", where: "call" },
        { type: "echo-key", where: "error" },
      ]);
      expect((await hear(model(server.url, KEY))).text).toBe(`The key is ${KEY}.`);
      const [call] = partsOf(await hear(model(server.url, KEY)), "tool-call");
      expect(call).toMatchObject({ toolName: "say", input: { text: KEY } });
      expect((await hear(model(server.url, KEY))).told[0]).toMatchObject({
        statusCode: 401,
        message: expect.stringContaining(KEY),
        responseBody: expect.stringContaining(KEY),
      });
    });
  });

  describe(`${name}, in one piece`, () => {
    const ask = (url: string) => generateText({ model: model(url, KEY), tools: TOOLS, prompt: "Hello", maxRetries: 0 });

    it("gets text, calls and usage", async () => {
      await using server = await serve([{ type: "turn", turn: TURN }]);
      const { text, toolCalls, usage, finishReason } = await ask(server.url);
      expect({ text, finishReason }).toEqual({ text: TEXT, finishReason: "tool-calls" });
      expect(toolCalls.map(({ toolName, input }) => ({ name: toolName, input }))).toEqual(TURN.calls);
      expect(usage).toMatchObject({ inputTokens: 100, outputTokens: 20, inputTokenDetails: { cacheReadTokens: 30 } });
      expect(server.requests[0]?.stream).toBe(false);
    });

    it.each([
      ["cut", { type: "cut", after: 1, turn: TURN }, { statusCode: 200, isRetryable: true }],
      ["short", { type: "stop-short", after: 1, turn: TURN }, { statusCode: 200, isRetryable: false }],
      ["a page", { type: "garbage", what: "page" }, { statusCode: 200, isRetryable: false }],
      ["an overload", { type: "status", status: 529 }, { statusCode: 529, isRetryable: true }],
    ] as const)("rejects when the answer is %s", async (_, behaviour, fields) => {
      await using server = await serve([behaviour]);
      await expect(ask(server.url)).rejects.toMatchObject({ name: "AI_APICallError", ...fields });
    });
  });

  describe(`the server of ${name}`, () => {
    it("shows what it was sent", async () => {
      await using server = await serve([{ type: "turn", turn: { text: "A dot." } }]);
      const content = [
        { type: "text" as const, text: "What is it?" },
        { type: "file" as const, mediaType: "image/png", data: PNG },
      ];
      await hear(model(server.url, KEY), { instructions: "Be kind.", messages: [{ role: "user", content }] });
      const [request] = server.requests;
      expect(request).toMatchObject({ path: spoken.path, key: KEY, stream: true, system: "Be kind." });
      expect(JSON.stringify(request?.messages)).toContain("What is it?");
      expect(request?.images).toEqual([{ mediaType: "image/png", base64: PNG, inToolResult: false }]);
      expect(request?.tools).toEqual([{ name: "say", description: "Says a text.", schema: SAY_SCHEMA }]);
    });

    it("gets a tool's refusal, and a tool's image as far as the package passes it on", async () => {
      const turn: Behaviour = { type: "turn", turn: { text: "I see." } };
      await using server = await serve([turn, turn]);
      const result = { type: "tool-result" as const, toolCallId: "call_a", toolName: "say" };
      await hear(model(server.url, KEY), {
        messages: afterCall({ ...result, output: { type: "error-text", value: "refused" } }),
      });
      expect(server.requests[0]?.messages.at(-1)).toMatchObject(spoken.toolError as object);
      const file = { type: "file" as const, mediaType: "image/png", data: { type: "data" as const, data: PNG } };
      await hear(model(server.url, KEY), {
        messages: afterCall({ ...result, output: { type: "content", value: [{ type: "text", text: "a.png" }, file] } }),
      });
      expect(JSON.stringify(server.requests[1]?.messages)).toContain(PNG);
      expect(server.requests[1]?.images).toEqual(
        Array(spoken.imagesOfTools).fill({ mediaType: "image/png", base64: PNG, inToolResult: true }),
      );
    });

    it("takes an image beside a tool's result, from the user, where the package makes text of it in the result", async () => {
      await using server = await serve([{ type: "turn", turn: { text: "I see." } }]);
      const output = { type: "text" as const, value: "The image follows." };
      const messages = afterCall({ type: "tool-result", toolCallId: "call_a", toolName: "say", output });
      messages.push({ role: "user", content: [{ type: "file", mediaType: "image/png", data: PNG }] });
      expect(outcomeOf(await hear(model(server.url, KEY), { messages }))).toBe("finish stop, text resolves");
      expect(server.requests[0]?.images).toEqual([{ mediaType: "image/png", base64: PNG, inToolResult: false }]);
    });

    it("refuses a result without its call, and a call without its result, as the API does", async () => {
      const turn: Behaviour = { type: "turn", turn: { text: "Said." } };
      await using server = await serve([turn]);
      const output = { type: "text" as const, value: "said" };
      const messages = afterCall({ type: "tool-result", toolCallId: "call_a", toolName: "say", output });
      expect(outcomeOf(await hear(model(server.url, KEY), { messages }))).toBe("finish stop, text resolves");
      // `ai` refuses to send a call without its result, so a request that it did send is spoiled here: one of the two
      // places that name the call names another, by which the call has no result and the result no call.
      const sent = JSON.stringify(server.requests[0]?.body);
      expect(sent.split("call_a")).toHaveLength(3);
      expect((await post(server, spoken.path, sent.replace("call_a", "call_b"))).status).toBe(400);
      for (const instead of [[], [{ role: "user", content: "Well?" }]]) {
        const changed = withMessages(sent, (list) => [...list.slice(0, -1), ...instead]);
        const unanswered = await post(server, spoken.path, changed);
        expect(unanswered.status).toBe(400);
        expect(await unanswered.text()).toContain("call_a");
      }
    });

    it("takes a result after another message as its API does", async () => {
      const turn: Behaviour = { type: "turn", turn: { text: "Said." } };
      await using server = await serve([turn, turn]);
      const output = { type: "text" as const, value: "said" };
      const messages = afterCall({ type: "tool-result", toolCallId: "call_a", toolName: "say", output });
      await hear(model(server.url, KEY), { messages });
      const sent = JSON.stringify(server.requests[0]?.body);
      const between = (list: unknown[]) => list.toSpliced(-1, 0, { role: "user", content: "Well?" });
      expect((await post(server, spoken.path, withMessages(sent, between))).status).toBe(spoken.lateResult);
    });

    it("says so when it has nothing more to answer", async () => {
      await using server = await serve([]);
      const heard = await hear(model(server.url, KEY));
      expect(heard.told[0]).toMatchObject({
        statusCode: 400,
        message: "The test has no behaviour for request 1.",
        isRetryable: false,
      });
    });

    it("tells what a function of the test threw", async () => {
      await using server = await serve(() => {
        throw new Error("not this request");
      });
      const heard = await hear(model(server.url, KEY));
      expect(heard.told[0]).toMatchObject({ statusCode: 400, message: "The test's behaviour threw: not this request" });
    });

    it("answers as a function says that has seen the request", async () => {
      await using server = await serve((request, index) => ({
        type: "turn",
        turn: { text: `${index}: ${request.system}` },
      }));
      await hear(model(server.url, KEY), { instructions: "One." });
      expect((await hear(model(server.url, KEY), { instructions: "Two." })).text).toBe("1: Two.");
    });
  });
}

function post(server: ModelServer, path: string, body: string): Promise<Response> {
  return fetch(new URL(path, server.url), { method: "POST", body });
}

/** The body of a request with its messages changed, whatever its API calls them. */
function withMessages(sent: string, change: (list: unknown[]) => unknown[]): string {
  const body: Record<string, unknown> = JSON.parse(sent);
  const field = "input" in body ? "input" : "messages";
  return JSON.stringify({ ...body, [field]: change(body[field] as unknown[]) });
}
