import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { clipped, visibleParts, visibleText } from "../../../src/serve/web/text/visible.ts";

describe("a text that a worker chose", () => {
  it.each([
    ["a right-to-left override", "\u202Etxt.exe", "\\u{202e}txt.exe"],
    ["an isolate", "a\u2066b\u2069", "a\\u{2066}b\\u{2069}"],
    ["a space without width", "pay\u200Bpal", "pay\\u{200b}pal"],
    ["a tag", "a\u{E0041}", "a\\u{e0041}"],
    ["an escape", "\u001B[2J", "\\u{1b}[2J"],
    ["a return", "safe\revil", "safe\\u{d}evil"],
    ["half of a pair", "a\uD800b", "a\\u{d800}b"],
    ["a separator of lines", "a\u2028b", "a\\u{2028}b"],
    ["a filler that is a letter", "a\u3164b", "a\\u{3164}b"],
    ["a blank of Braille", "a\u2800b", "a\\u{2800}b"],
    ["a selector that holds data", "a\u{E0101}", "a\\u{e0101}"],
  ])("shows %s by its code", (_, text, shown) => {
    expect(visibleText(text)).toBe(shown);
  });

  it.each(["plain", "déjà vu", "日本語", "a\tb\nc", "✔\uFE0F 🐑", "שלום"])("leaves %j as it is", (text) => {
    expect(visibleParts(text)).toEqual([{ text, isHidden: false }]);
  });

  it("loses nothing and keeps nothing hidden", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (text) => {
        const parts = visibleParts(text);
        const back = parts.map(({ text, isHidden }) =>
          isHidden ? String.fromCodePoint(parseInt(text.slice(2), 16)) : text,
        );
        expect(back.join("")).toBe(text);
        expect(
          parts.some(({ text, isHidden }) => !isHidden && /[\u202A-\u202E\u2066-\u2069\u200B-\u200F]/.test(text)),
        ).toBe(false);
      }),
    );
  });

  it("is clipped between characters", () => {
    expect(clipped("abcdef", 4)).toBe("abc…");
    expect(clipped("ab🐑d", 4)).toBe("ab…");
  });
});
