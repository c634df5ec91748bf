import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { parseNameGlob, parsePathGlob } from "../../src/approval/memory.ts";

/** Names with what has a meaning in a pattern or ends a line, but no wildcard. */
const name = fc
  .string({
    unit: fc.constantFrom(..."ab. -_!()[]{}\\+@$^|,#~é😀'\"\n\r\u2028\u2029\u0085"),
    minLength: 1,
    maxLength: 5,
  })
  .filter((text) => text !== "." && text !== "..");

describe("the globs of rules", () => {
  it("match every name by their wildcards: none with a line break escapes a rule that denies", () => {
    fc.assert(
      fc.property(name, (text) => {
        expect(parseNameGlob("*")(text)).toBe(true);
        expect(parsePathGlob("/x/**").matches(`/x/${text}`)).toBe(true);
        expect(parsePathGlob("/x/**").matches(`/x/${text}/${text}`)).toBe(true);
        expect(parsePathGlob("/x/*/y").touches(`/x/${text}/y`)).toBe(true);
      }),
    );
  });

  it("match their own text", () => {
    fc.assert(
      fc.property(name, (text) => {
        expect(parseNameGlob(text)(text)).toBe(true);
        expect(parsePathGlob(`/${text}/q`).touches(`/${text}`)).toBe(true);
      }),
    );
  });
});
