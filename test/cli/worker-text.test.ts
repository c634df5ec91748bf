import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { workerTextTo } from "../../src/cli/terminal/worker-text.ts";

const TERMINAL = { isTTY: true } as NodeJS.WriteStream;
const ESC = "\u001b";
const RESET = `${ESC}[0m`;

/** What a terminal gets of these pieces. */
function shown(...pieces: readonly (string | Uint8Array)[]): string {
  const text = workerTextTo(TERMINAL);
  return [...pieces.map((piece) => text.piece(piece)), text.end()].join("");
}

describe("what a worker prints, on a terminal", () => {
  it.each([
    ["a title", `${ESC}]0;title\u0007`],
    ["the clipboard", `${ESC}]52;c;aGk=${ESC}\\`],
    ["a cleared screen", `${ESC}[2J${ESC}[H`],
    ["a question that the terminal answers", `${ESC}[c${ESC}[6n${ESC}P$qm${ESC}\\`],
    ["another screen and the mouse", `${ESC}[?1049h${ESC}[?1003h`],
    ["another character set", `${ESC}(0\u000e`],
    ["a reset", `${ESC}c`],
    ["an operating system command that does not end", `${ESC}]0;title`],
    ["an escape at the end", ESC],
    ["a control character of 8 bits in UTF-8", "\u009b2J\u009d0;x\u009c"],
    ["keys", "\u0008\u007f\u0000\u0007"],
    ["a reversed line", "\u202eabc"],
    ["a sequence with a control character within", `${ESC}[3\u00071m`],
  ])("has %s as text", (_, hostile) => {
    const text = shown(`before ${hostile} after`);
    expect(text).not.toMatch(/[^\P{C}\n]/u);
    expect(text).toMatch(/^before .*\\u\{[0-9a-f]+\}.* after$/);
  });

  it("has a byte that is no UTF-8, such as a control character of 8 bits, as U+FFFD", () => {
    expect(shown(Buffer.from([0x61, 0x9b, 0x32, 0x4a, 0xc2]))).toBe("a\ufffd2J\ufffd");
  });

  it("keeps colours, tabs and the ends of lines, and leaves no colour behind any piece", () => {
    expect(shown("a\tb\r\nc\rd\n")).toBe("a\tb\r\nc\rd\n");
    expect(shown(`${ESC}[1;31mred`, " still\n", `${ESC}[m${ESC}[Kplain`)).toBe(
      `${ESC}[1;31mred${RESET}${ESC}[1;31m still\n${RESET}${ESC}[1;31m${ESC}[m${ESC}[Kplain`,
    );
    expect(shown(`${ESC}[38;5;8mgrey${ESC}[48:2::1:2:3mx`)).toContain(`${ESC}[38;5;8mgrey${ESC}[48:2::1:2:3mx`);
  });

  it("hides no text by a style", () => {
    expect(shown(`${ESC}[8mhidden`)).toBe("hidden");
    expect(shown(`${ESC}[1;08;32mhidden`)).toBe(`${ESC}[1;32mhidden${RESET}`);
  });

  it("is the same however it is cut, and has nothing but text and styles", () => {
    const bits = [
      ESC,
      "[",
      "]",
      "0",
      "8",
      "38",
      ";",
      ":",
      "m",
      "K",
      "J",
      "c",
      "\u0007",
      "\u009b",
      "\r",
      "\n",
      "\t",
      "é",
      "👍🏽",
    ];
    const texts = fc.array(fc.oneof(fc.constantFrom(...bits), fc.string({ unit: "binary", maxLength: 3 })));
    const cuts = fc.array(fc.nat(40), { maxLength: 6 });
    fc.assert(
      fc.property(texts, cuts, (parts, at) => {
        const bytes = Buffer.from(parts.join(""));
        const places = [0, ...at.map((each) => Math.min(each, bytes.length)).sort((a, b) => a - b), bytes.length];
        const pieces = places.slice(1).map((end, index) => bytes.subarray(places[index], end));
        // biome-ignore lint/suspicious/noControlCharactersInRegex: what may be left is what is looked for.
        const STYLE = /\u001b\[(?:[\d;:]*m|0?K)/g;
        const whole = shown(bytes);
        expect(shown(...pieces).replace(STYLE, "")).toBe(whole.replace(STYLE, ""));
        expect(shown(...pieces).replace(STYLE, "")).not.toMatch(/[^\P{Cc}\n\t\r]/u);
        expect(
          whole
            .match(STYLE)
            ?.filter((style) => style.endsWith("m"))
            .at(-1) ?? RESET,
        ).toMatch(/\[(0*|0+;.*|;.*)m$/);
      }),
    );
  });
});

it("bytes are exact where there is no terminal, and with --raw", () => {
  const bytes = Buffer.from([0x1b, 0x5d, 0x9b, 0xc2]);
  const piped = workerTextTo({ isTTY: false } as NodeJS.WriteStream);
  expect([piped.piece(bytes), piped.end()]).toEqual([bytes, ""]);
  const raw = workerTextTo(TERMINAL, { raw: true });
  expect([raw.piece(bytes), raw.end()]).toEqual([bytes, RESET]);
});
