import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { inputEnvironment } from "../../../src/run/model/job.ts";

describe("the variables of an input", () => {
  it("are the JSON, and each member that is a text, a number, true or false", () => {
    const input = { folder: "/text/a b", "page-count": 7, isNew: true, none: null, list: [1], inner: { x: 1 } };
    expect(inputEnvironment(input)).toEqual({
      CORRAL_INPUT: JSON.stringify(input),
      CORRAL_FIELD_FOLDER: "/text/a b",
      CORRAL_FIELD_PAGE_COUNT: "7",
      CORRAL_FIELD_ISNEW: "true",
    });
    expect(inputEnvironment("text")).toEqual({ CORRAL_INPUT: '"text"' });
    expect(inputEnvironment([1])).toEqual({ CORRAL_INPUT: "[1]" });
    expect(inputEnvironment(undefined)).toEqual({});
  });

  it("are left out where no variable can hold the value, or two members would be one", () => {
    const large = "x".repeat(70_000);
    const input = { nul: "a\0b", lone: "\ud800", large, a: "1", A: "2", "": "3", "..": "4", ok: "5" };
    const { CORRAL_INPUT, ...fields } = inputEnvironment(input);
    expect(fields).toEqual({ CORRAL_FIELD_OK: "5" });
    expect(CORRAL_INPUT).toBeUndefined();
    const many = Object.fromEntries(Array.from({ length: 300 }, (_, n) => [`f${n}`, "y".repeat(1000)]));
    const bytes = Object.entries(inputEnvironment(many)).reduce(
      (sum, [name, value]) => sum + name.length + value.length,
      0,
    );
    expect(bytes).toBeLessThan(128 * 1024);
  });

  it("are names and values that a program can be given, whatever the input is", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (input) => {
        for (const [name, value] of Object.entries(inputEnvironment(input))) {
          expect(name).toMatch(/^CORRAL_(INPUT|FIELD_[A-Z0-9_]*[A-Z0-9][A-Z0-9_]*)$/);
          expect(value).not.toContain("\0");
        }
      }),
    );
  });
});
