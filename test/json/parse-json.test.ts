import { describe, expect, it } from "vitest";
import { z } from "zod";
import { boundedText, examine, firstFaults, parseJson } from "../../src/json/parse-json.ts";

describe("parseJson", () => {
  it("reads any JSON, brackets in strings and escaped quotes among it", () => {
    for (const value of [null, 0, "", [], { a: [{ b: '[[["\\"{' }] }, "\\", '"[', `${"[".repeat(1000)}`])
      expect(parseJson(JSON.stringify(value))).toEqual({ ok: true, value });
  });

  it("says what is wrong with what is none", () => {
    for (const text of ["", "{", "nope", '{"a":1}x', '"'])
      expect(parseJson(text)).toEqual({ ok: false, problem: expect.any(String) });
  });

  it("refuses what is nested so deep that writing it out would not end well", () => {
    const nested = (levels: number): string => "[".repeat(levels) + "]".repeat(levels);
    expect(parseJson(nested(500)).ok).toBe(true);
    expect(parseJson(nested(501))).toEqual({ ok: false, problem: "it is nested more than 500 levels deep" });
    expect(parseJson(nested(1_000_000)).ok).toBe(false);
  });
});

const texts = z.strictObject({ list: z.array(z.union([z.string(), z.record(z.string(), z.string())])) });

describe("a value of a stranger", () => {
  it("is reported with all its faults if it is small, and with at most 20 lines", () => {
    const few = examine(texts, { list: [1, "a", 2] });
    expect(few.error?.issues.map(({ path }) => path)).toEqual([
      ["list", 0],
      ["list", 2],
    ]);
    const more = examine(texts, { list: Array(900).fill(1) });
    expect(more.error?.issues.length).toBe(900);
    expect(firstFaults(more.error as z.ZodError).match(/list\[/g)?.length).toBe(20);
  });

  it("is reported with its first fault if it is large, and a sound one is taken whole", () => {
    expect(examine(texts, { list: Array(480_000).fill(1) }).error?.issues.length).toBe(1);
    expect(examine(texts, { list: Array(2000).fill("a") }).data?.list.length).toBe(2000);
  });
});

describe("the names of fields", () => {
  const objects = (count: number, fields: number, name: (at: number) => string): string => {
    const object = (of: number): string =>
      `{${Array.from({ length: fields }, (_, at) => `"${name(of * fields + at)}":1`).join()}}`;
    return `[${Array.from({ length: count }, (_, at) => object(at)).join()}]`;
  };

  it("may be as many as a value needs", () => {
    expect(parseJson(objects(1, 40_000, (at) => `k${at}`)).ok).toBe(true);
    expect(parseJson(objects(100_000, 3, (at) => `k${at % 3}`)).ok).toBe(true);
  });

  it("are refused if there are so many that a parser takes long for them", () => {
    expect(parseJson(objects(4800, 100, (at) => `k${at}`))).toMatchObject({
      ok: false,
      problem: expect.stringContaining("different names"),
    });
    expect(parseJson(objects(40, 10_000, (at) => `k${at % 10_000}`)).ok).toBe(false);
    expect(parseJson(`["${"\\n".repeat(10_000_001)}"]`)).toMatchObject({
      ok: false,
      problem: expect.stringContaining("escaped characters"),
    });
  });

  it("are counted across the pieces in which a text comes", () => {
    const text = `{"${"a".repeat(200_000)}\\"":[{"b":1},"{\\\\"]}`;
    expect(parseJson(text)).toEqual({ ok: true, value: JSON.parse(text) });
  });
});

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
