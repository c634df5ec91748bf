import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, it } from "vitest";
import { ask } from "../../src/agent/asked-again.ts";
import { APIS, openedAt, type SpokenApi } from "../agent/provider-apis.ts";

const LARGE = "A".repeat(12 * 1024 * 1024);

/** An answer of few words, with something large beside them that nobody hears, and that the next question would tell again. */
const UNHEARD: Readonly<Record<SpokenApi["api"], readonly object[]>> = {
  anthropic: [
    { type: "message_start", message: { id: "m", role: "assistant", content: [], usage: { input_tokens: 1 } } },
    { type: "content_block_start", index: 0, content_block: { type: "redacted_thinking", data: LARGE } },
    { type: "content_block_stop", index: 0 },
    { type: "content_block_start", index: 1, content_block: { type: "text", text: "Hello." } },
    { type: "content_block_stop", index: 1 },
    { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 1 } },
    { type: "message_stop" },
  ],
  openai: [
    { type: "response.created", response: { id: "r", created_at: 1, model: "m" } },
    { type: "response.output_item.added", output_index: 0, item: { type: "image_generation_call", id: "i" } },
    {
      type: "response.output_item.done",
      output_index: 0,
      item: { type: "image_generation_call", id: "i", result: LARGE },
    },
    {
      type: "response.completed",
      response: { incomplete_details: null, usage: { input_tokens: 1, output_tokens: 1 } },
    },
  ],
  "openai-compatible": [
    {
      id: "c",
      choices: [
        {
          index: 0,
          delta: { tool_calls: [{ index: 0, id: LARGE, type: "function", function: { name: "t", arguments: "{}" } }] },
        },
      ],
    },
    {
      id: "c",
      choices: [{ index: 0, delta: {}, finish_reason: "tool_calls" }],
      usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
    },
  ],
};

/** What comes of asking a server that answers every request so. */
async function askedAt(spoken: SpokenApi, status: number, type: string, body: string): Promise<unknown> {
  const server = createServer((request, response) => {
    request.resume().once("end", () => response.writeHead(status, { "content-type": type }).end(body));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    const opened = await openedAt(spoken, `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`);
    const question = { opened, system: "", messages: [{ role: "user" as const, content: "Hello" }], tools: [] };
    const heard = { text: () => {}, lost: () => {} };
    return await ask(question, heard, 60_000, new AbortController().signal).catch((error: unknown) => error);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

describe.each(APIS)("a hostile server for $api", (spoken) => {
  it("has nothing kept that is larger than any answer, also where none of it is heard", async () => {
    const events = UNHEARD[spoken.api].map((event) => `data: ${JSON.stringify(event)}\n\n`);
    expect(await askedAt(spoken, 200, "text/event-stream", events.join(""))).toMatchObject({
      code: "ANSWER_TOO_LARGE",
    });
  });

  it("reads no more of an error than a person would, and still reports its status", async () => {
    const body = JSON.stringify({ type: "error", error: { type: "x", message: "\u20ac ".repeat(3_000_000) } });
    const failure = await askedAt(spoken, 401, "application/json", body);
    expect(failure).toMatchObject({
      code: "MODEL_REFUSED",
      message: expect.stringContaining("answered with HTTP status 401"),
    });
    expect((failure as Error).message).not.toContain("\u20ac");
  });
});
