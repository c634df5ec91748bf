import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { awkwardPieces, deltas } from "./awkward-pieces.ts";
import { openAiServer } from "./openai-server.ts";

describe("the pieces of an answer", () => {
  it("are the whole answer", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary", maxLength: 2000 }), (text) => {
        expect(deltas(text).join("")).toBe(text);
        const bytes = Buffer.from(text);
        expect(Buffer.concat(awkwardPieces(bytes))).toEqual(bytes);
      }),
    );
  });

  it("part a character of several bytes at each of its bytes", () => {
    const pieces = awkwardPieces(Buffer.from("a世b"));
    expect(pieces.map((piece) => Buffer.from(piece).toString("hex"))).toEqual(["61e4", "b8", "9662"]);
  });

  it("reach a client as pieces: some begin inside a character, some inside an event", async () => {
    await using server = await openAiServer([{ type: "turn", turn: { text: "世界 ".repeat(5) } }]);
    const body = JSON.stringify({ model: "m", messages: [], stream: true });
    const answer = await fetch(`${server.url}/chat/completions`, { method: "POST", body });
    const begins: string[] = [];
    for await (const piece of answer.body ?? []) {
      begins.push(((piece[0] ?? 0) & 0xc0) === 0x80 ? "in a character" : piece[0] === 0x64 ? "at d" : "in an event");
    }
    expect(begins.length).toBeGreaterThan(10);
    expect(begins).toContain("in a character");
    expect(begins).toContain("in an event");
  });
});
