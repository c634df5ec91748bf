import { APICallError } from "ai";
import { describe, expect, it } from "vitest";
import { ask, modelFailureOf } from "../../src/agent/asked-again.ts";
import { ModelFailure } from "../../src/agent/events.ts";
import { APIS, openedAt } from "./provider-apis.ts";
import type { Behaviour, ModelTurn } from "./servers/behaviour.ts";

const KEY = "sk-canary-51c0ffee";
const TURN: ModelTurn = {
  text: "It goes on for some time, and then it does not go on.",
  usage: { input: 3, output: 4 },
};
const NOW = Date.parse("2026-11-22T08:00:00Z");

const plain = (text: string): string => text;

function refusal(headers: Record<string, string>): APICallError {
  const request = { url: "http://127.0.0.1/v1", requestBodyValues: {} };
  return new APICallError({ message: "Slow down.", ...request, statusCode: 429, responseHeaders: headers });
}

const AGAIN = ["MODEL_UNAVAILABLE", 0];
const NEVER = ["MODEL_REFUSED", null];

const BEHAVIOURS: Readonly<Record<string, [Behaviour, typeof AGAIN | typeof NEVER, RegExp]>> = {
  "a wrong request": [{ type: "status", status: 400 }, NEVER, /answered with HTTP status 400: The server answers 400/],
  "a wrong key": [{ type: "status", status: 401 }, NEVER, /answered with HTTP status 401/],
  "a forbidden model": [{ type: "status", status: 403 }, NEVER, /answered with HTTP status 403/],
  "an unknown model": [{ type: "status", status: 404 }, NEVER, /answered with HTTP status 404/],
  "too long a request": [{ type: "status", status: 413 }, NEVER, /answered with HTTP status 413/],
  "a rate limit": [{ type: "status", status: 429 }, AGAIN, /answered with HTTP status 429/],
  "a broken server": [{ type: "status", status: 500 }, AGAIN, /answered with HTTP status 500/],
  "a gateway without its server": [
    { type: "status", status: 502, body: "<html>" },
    AGAIN,
    /answered with HTTP status 502/,
  ],
  "an overload": [{ type: "status", status: 529 }, AGAIN, /answered with HTTP status 529/],
  "a connection left before any answer": [{ type: "drop" }, AGAIN, /could not be reached/],
  "a cut before the first event": [{ type: "cut", after: 0, turn: TURN }, AGAIN, /broke off/],
  "a cut within the text": [{ type: "cut", after: 8, turn: TURN }, AGAIN, /broke off/],
  "a silent end before the first event": [{ type: "stop-short", after: 0, turn: TURN }, AGAIN, /broke off/],
  "a silent end within the text": [{ type: "stop-short", after: 8, turn: TURN }, AGAIN, /broke off/],
  "an overload within the text": [{ type: "stream-error", after: 8, turn: TURN }, AGAIN, /overloaded/],
  "events that are no JSON": [{ type: "garbage" }, AGAIN, /broke off/],
  "events of an unknown shape": [{ type: "garbage", what: "shape" }, AGAIN, /broke off/],
  "a page for people": [{ type: "garbage", what: "page" }, AGAIN, /broke off/],
  "two calls with one id": [
    { type: "turn", turn: { calls: ["1", "2"].map((text) => ({ name: "say", input: { text }, id: "same" })) } },
    AGAIN,
    /two calls with the same id/,
  ],
};

describe.each(APIS)("what fails at $api", (spoken) => {
  async function failureAt(behaviour: Behaviour): Promise<ModelFailure> {
    await using server = await spoken.serve([behaviour]);
    const opened = await openedAt(spoken, server.url, { key: KEY });
    const question = { opened, system: "", messages: [{ role: "user" as const, content: "Hello" }], tools: [] };
    const asked = ask(question, { text: () => {}, lost: () => {} }, 60_000, new AbortController().signal);
    return await asked.then(
      () => Promise.reject(new Error("it answered")),
      (error: unknown) => modelFailureOf(error, opened.redact, () => NOW),
    );
  }

  // The package for other servers gives such a call an id of its own, so that there is nothing wrong with it.
  const cases = Object.entries(BEHAVIOURS).filter(
    ([name]) => spoken.api !== "openai-compatible" || name !== "two calls with one id",
  );

  it.each(cases)("is told by %s", async (_, [behaviour, [code, retryAfterMs], text]) => {
    const failure = await failureAt(behaviour);
    expect(failure).toMatchObject({ code, retryAfterMs });
    expect(failure.message).toMatch(text);
  });

  it("is refused, where the provider refuses only in the middle of its answer and says so by a status", async () => {
    const failure = await failureAt({
      type: "stream-error",
      after: 4,
      turn: TURN,
      code: "invalid_request_error",
      message: "That may not be asked.",
    });
    expect(failure.message).toContain("That may not be asked.");
    expect(failure.code).toBe(spoken.api === "openai-compatible" ? "MODEL_UNAVAILABLE" : "MODEL_REFUSED");
  });

  it("never tells the key that the server repeats", async () => {
    const messages = [
      (await failureAt({ type: "echo-key", where: "error" })).message,
      (await failureAt({ type: "stream-error", after: 4, turn: TURN, message: `I know ${KEY}!` })).message,
      (await failureAt({ type: "status", status: 500, body: `no JSON, but ${KEY}` })).message,
    ];
    expect(messages.join("\n")).not.toContain(KEY);
    expect(messages[0]).toContain("[secret]");
  });
});

describe("how long a provider asks to be left alone", () => {
  it.each<[Record<string, string>, number]>([
    [{}, 0],
    [{ "retry-after": "7" }, 7000],
    [{ "retry-after": "0.5" }, 500],
    [{ "retry-after-ms": "1500" }, 1500],
    [{ "retry-after-ms": "20", "retry-after": "7" }, 20],
    [{ "retry-after-ms": "soon", "retry-after": "7" }, 7000],
    [{ "retry-after": "Sun, 22 Nov 2026 08:00:30 GMT" }, 30_000],
    [{ "retry-after": "Sun, 22 Nov 2026 07:00:00 GMT" }, 0],
    [{ "retry-after": "later" }, 0],
    [{ "retry-after": "-3" }, 0],
  ])("is read from %j", (headers, waitMs) => {
    expect(modelFailureOf(refusal(headers), plain, () => NOW).retryAfterMs).toBe(waitMs);
  });
});

describe("an error in Corral's words", () => {
  it("is the failure itself, where it is one already", () => {
    const failure = new ModelFailure("SCRIPT_FAILED", "no more");
    expect(modelFailureOf(failure, plain, () => NOW)).toBe(failure);
  });

  it.each([[undefined], [null], ["a text"], [{ type: "error", message: "in a shape of its own" }], [new Error("")]])(
    "says what there is to say of %j",
    (error) => {
      expect(modelFailureOf(error, plain, () => NOW).message).toMatch(/^The model's answer broke off: /);
    },
  );

  it("is short, in one line, and no half of a key is at its end", () => {
    const redact = (text: string): string => text.replaceAll(KEY, "[secret]");
    for (let at = 990; at <= 1000; at += 1) {
      const { message } = modelFailureOf(
        new Error(`${"a\n".repeat(at / 2)}${KEY}${"b".repeat(5000)}`),
        redact,
        () => NOW,
      );
      expect(message.length).toBeLessThan(1100);
      expect(message).not.toContain("\n");
      expect(message).not.toContain(KEY.slice(0, 4));
    }
  });
});
