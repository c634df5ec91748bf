import { describe, expect, it } from "vitest";
import { changesApplied } from "../../src/audit/records.ts";
import { boundedJson } from "../../src/audit/trail.ts";

const read = (value: object): Record<string, unknown> => JSON.parse(boundedJson(value));

describe("what a record holds", () => {
  it("is kept as it is where it is short", () => {
    const value = { type: "x", a: "b", n: null, list: [{ c: 1 }], yes: true };
    expect(read(value)).toEqual(value);
  });

  it("is cut, text by text and list by list, with how much there was", () => {
    const { text, list } = read({ type: "x", text: "a".repeat(5000), list: Array.from({ length: 1234 }, () => "p") });
    expect(text).toBe(`${"a".repeat(4096)}… (904 more characters)`);
    expect(list).toHaveLength(1001);
    expect((list as unknown[]).at(-1)).toEqual({ more: 234 });
  });

  it("leaves out what is not there, and has no text that is no Unicode", () => {
    expect(read({ type: "x", none: undefined, odd: "\ud800" })).toEqual({ type: "x", odd: "\ufffd" });
  });

  it("is cut harder where all of it is too long, so that no record is longer than 256 KiB", () => {
    const paths = Array.from({ length: 100_000 }, (_, index) => ({
      path: `/out/${"d".repeat(2000)}/${index}`,
      kind: "create",
      outcome: "applied",
    }));
    const json = boundedJson(changesApplied({ id: "r", run: "r", root: "r", worker: "w" }, paths));
    expect(json.length).toBeLessThan(256 * 1024);
    expect(JSON.parse(json)).toMatchObject({ run: "r", counts: { applied: 100_000 } });
  });

  it("counts bytes, so that a text of another script makes no longer record", () => {
    const paths = Array.from({ length: 60 }, () => "\u6587".repeat(4096));
    expect(Buffer.byteLength(boundedJson({ type: "x", paths }))).toBeLessThan(256 * 1024);
  });

  it("stays bounded for what no record is", () => {
    const wide = (depth: number): object =>
      Object.fromEntries(
        Array.from({ length: 40 }, (_, index) => [`${"n".repeat(300)}${index}`, depth > 0 ? wide(depth - 1) : "v"]),
      );
    expect(boundedJson({ type: "x", ...wide(2) }).length).toBeLessThan(256 * 1024);
  });
});
