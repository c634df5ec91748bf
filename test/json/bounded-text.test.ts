import { describe, expect, it } from "vitest";
import { boundedText } from "../../src/json/parse-json.ts";

/** Yields chunks, and counts how many were read. */
function stream(...chunks: (Buffer | string)[]) {
  const read = { chunks: 0 };
  async function* all(): AsyncGenerator<Buffer | string> {
    for (const chunk of chunks) {
      read.chunks += 1;
      yield chunk;
    }
  }
  return { all: all(), read };
}

describe("the text of a stream", () => {
  it("is all of it, with characters that are split between chunks", async () => {
    const bytes = Buffer.from("aé€");
    const { all } = stream(bytes.subarray(0, 2), bytes.subarray(2, 4), bytes.subarray(4), "!");
    expect(await boundedText(all, { maxBytes: 7 })).toBe("aé€!");
  });

  it("is null beyond the limit, and the rest is not read", async () => {
    const { all, read } = stream("abc", "de", "f");
    expect(await boundedText(all, { maxBytes: 4 })).toBeNull();
    expect(read.chunks).toBe(2);
  });

  it("is null without room for a chunk, and the rest is read up to the limit for what is dropped", async () => {
    const { all, read } = stream("abc", "de", "f", "g", "h");
    const limits = { maxBytes: 100, maxDroppedBytes: 6, take: (bytes: number) => bytes !== 2 };
    expect(await boundedText(all, limits)).toBeNull();
    expect(read.chunks).toBe(4);
  });
});
