import { describe, expect, it } from "vitest";
import { parseJson } from "../../src/json/parse-json.ts";

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
