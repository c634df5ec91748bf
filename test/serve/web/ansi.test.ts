import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type AnsiLine, AnsiLines, KeptLines } from "../../../src/serve/web/text/ansi.ts";

const textOf = (line: AnsiLine): string => line.map(({ text }) => text).join("");

function linesOf(text: string): string[] {
  const parser = new AnsiLines();
  return [...parser.push(text), parser.rest].map(textOf);
}

describe("text of a terminal", () => {
  it.each([
    ["a cleared screen", "a\x1b[2Jb", "ab"],
    ["a title", "a\x1b]0;title\x07b", "ab"],
    ["a link", "\x1b]8;;javascript:alert(1)\x1b\\click\x1b]8;;\x1b\\", "click"],
    ["a moved cursor", "a\x1b[10;20Hb\x1b[1Ac", "abc"],
    ["a string of a device", "a\x1bPq#0;2;0\x1b\\b", "ab"],
    ["another character set", "a\x1b(0b", "ab"],
    ["a private mode", "\x1b[?1049ha", "a"],
  ])("leaves out %s", (_, text, shown) => {
    expect(linesOf(text)).toEqual([shown]);
  });

  it("has the colours of the page, and ends them", () => {
    const parser = new AnsiLines();
    const [line] = parser.push("\x1b[1;31mred\x1b[0m plain \x1b[38;5;46mgreen\x1b[38;2;0;0;255mblue\x1b[39m\n");
    expect(line?.map(({ text, look }) => [text, look.color, look.isBold])).toEqual([
      ["red", 1, true],
      [" plain ", null, false],
      ["green", 2, false],
      ["blue", 4, false],
    ]);
  });

  it("hides nothing: no colour is that of its ground, and concealed text is shown", () => {
    const parser = new AnsiLines();
    const [line] = parser.push("\x1b[30;40mhidden\x1b[0m\x1b[8mconcealed\n");
    expect(line?.map(({ text, look }) => [text, look.color === look.ground && look.color !== null])).toEqual([
      ["hidden", false],
      ["concealed", false],
    ]);
  });

  it("shows the last of what was written over, and keeps a line that ends with both marks", () => {
    expect(linesOf("10%\r50%\r100%\nnext\r\nlast")).toEqual(["100%", "next", "last"]);
  });

  it("is bounded in each line, and in the length of a sequence", () => {
    const [line = ""] = linesOf("x".repeat(10_000));
    expect(line).toMatch(/^x{4000} … 6000 more characters$/);
    expect(linesOf(`\x1b]${"x".repeat(5000)}\ntext`).at(-1)).toBe("text");
  });

  it("is the same in whatever pieces it comes", () => {
    const alphabet = fc.constantFrom("a", "\n", "\r", "\x1b", "[", "]", "3", "1", ";", "m", "\x07", "\\", "K", "🐑");
    fc.assert(
      fc.property(fc.array(alphabet, { maxLength: 40 }), fc.nat(40), (characters, at) => {
        const whole = characters.join("");
        const parser = new AnsiLines();
        const first = parser.push(whole.slice(0, at));
        const all = [...first, ...parser.push(whole.slice(at)), parser.rest].map(textOf);
        expect(all).toEqual(linesOf(whole));
      }),
      { numRuns: 500 },
    );
  });
});

describe("the lines that are kept", () => {
  it("are the last ones, and the others are counted", () => {
    const kept = new KeptLines();
    const bytes = new TextEncoder();
    for (let round = 0; round < 6; round += 1)
      kept.push(bytes.encode(Array.from({ length: 10_000 }, (_, index) => `${round} ${index}\n`).join("")));
    expect(kept.count + kept.dropped).toBe(60_000);
    expect(kept.count).toBeLessThanOrEqual(50_000);
    expect(textOf(kept.at(kept.count - 1))).toBe("5 9999");
  });

  it("are bounded in characters", () => {
    const kept = new KeptLines();
    const line = new TextEncoder().encode(`${"x".repeat(3999)}\n`);
    for (let count = 0; count < 12_000; count += 1) kept.push(line);
    expect(kept.count * 4000).toBeLessThanOrEqual(8.1 * 1024 ** 2);
  });

  it("join a character that comes in two pieces", () => {
    const kept = new KeptLines();
    const bytes = new TextEncoder().encode("é\n");
    kept.push(bytes.subarray(0, 1));
    kept.push(bytes.subarray(1));
    expect(textOf(kept.at(0))).toBe("é");
  });
});
