import { Terminal } from "@xterm/headless";
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

describe("what a program that has the whole terminal draws", () => {
  const NOTHING = `${ESC}\\`;

  function drawn(...pieces: readonly (string | Uint8Array)[]): string {
    const screen = workerTextTo(TERMINAL, { isScreen: true });
    return pieces.map((piece) => screen.piece(piece)).join("");
  }

  it.each([
    [
      "colours, another screen, moved cursors and the mouse",
      `${ESC}[?1049h${ESC}[2J${ESC}[3;4H${ESC}[38;5;1mé${ESC}[?1003h`,
    ],
    ["where the cursor is, and what kind of terminal it is", `${ESC}[6n${ESC}[c${ESC}[>c`],
    ["another character set, a saved cursor, a reset", `${ESC}(0\u000eq\u000f${ESC}7${ESC}8${ESC}c`],
  ])("has %s", (_, sequence) => {
    expect(drawn(`a${sequence}b`)).toBe(`a${sequence}b`);
  });

  it.each([
    ["a title", `${ESC}]0;title\u0007`],
    ["the clipboard", `${ESC}]52;c;aGk=${ESC}\\`],
    ["a string that another sequence ends", `${ESC}]52;c;aGk=${ESC}[0m`],
    ["strings of a device", `${ESC}P$qm${ESC}\\${ESC}P+q544e${ESC}\\`],
    ["strings of other kinds", `${ESC}_x${ESC}\\${ESC}^x${ESC}\\${ESC}Xx${ESC}\\${ESC}kx${ESC}\\`],
    ["the same by control characters of 8 bits", "\u009d0;x\u009c\u0090$qm\u009c"],
    ["a question after its title, and a window that moves", `${ESC}[21t${ESC}[3;0;0t\u009b20t`],
    ["a question after its name", "\u0005"],
    ["another encoding", `${ESC}%@`],
    ["a sequence with control characters within", `${ESC}\u0000]0;x\u0007${ESC}[2\u00001t`],
    ["one that another one cuts", `${ESC}[2${ESC}]0;x\u00071t`],
  ])("lacks %s, however it is cut", (_, sequence) => {
    const bytes = Buffer.from(`a${sequence}b`);
    const whole = drawn(bytes);
    expect(reached(whole)).toEqual([]);
    expect(whole.replaceAll(NOTHING, "")).toMatch(/^a.*b$/s);
    for (let at = 1; at < bytes.length; at += 1) expect(drawn(bytes.subarray(0, at), bytes.subarray(at))).toBe(whole);
  });

  it("is tried with a terminal that would take these for itself", () => {
    expect(reached(`${ESC}]52;c;aGk=\u0007${ESC}P$qm${ESC}\\${ESC}[21t`)).toEqual(["string", "device", "window"]);
  });

  it("reaches nothing beyond the screen of a real terminal, whatever is printed", () => {
    const bits = [
      ESC,
      "[",
      "]",
      "P",
      "_",
      "k",
      "%",
      "@",
      "2",
      "1",
      ";",
      "t",
      "c",
      "52",
      "\\",
      "\u0007",
      "\u0000",
      "\u0018",
      "\u009b",
      "\u009d",
      "\u009c",
      "é",
    ];
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...bits), { maxLength: 40 }), fc.nat(40), (parts, at) => {
        const bytes = Buffer.from(parts.join(""));
        expect(reached(drawn(bytes.subarray(0, at), bytes.subarray(at)))).toEqual([]);
      }),
      { numRuns: 500 },
    );
  });

  it("ends a sequence without end, and leaves no mode behind", () => {
    expect(drawn(`${ESC}[${"1".repeat(300)}`, "t")).toBe(`${NOTHING}t`);
    expect(workerTextTo(TERMINAL, { isScreen: true }).end()).toContain(`${ESC}[?1003l`);
  });
});

/** What of a text a terminal would take for itself. */
function reached(text: string): string[] {
  const windowOptions = { getWinTitle: true, getIconTitle: true, setWinPosition: true, minimizeWin: true };
  const terminal = new Terminal({ cols: 80, rows: 24, allowProposedApi: true, logLevel: "off", windowOptions });
  const found: string[] = [];
  const told = (what: string) => (): boolean => {
    found.push(what);
    return true;
  };
  for (const id of [0, 1, 2, 4, 8, 9, 10, 11, 12, 52, 5252, 521])
    terminal.parser.registerOscHandler(id, told("string"));
  for (const final of ["q", "t", "c", "P"])
    for (const intermediates of ["", "$", "+"])
      terminal.parser.registerDcsHandler({ intermediates, final }, told("device"));
  terminal.parser.registerCsiHandler({ final: "t" }, told("window"));
  // Written at once, so that the parser has seen it when this returns.
  (terminal as unknown as { _core: { writeSync(text: string): void } })._core.writeSync(text);
  terminal.dispose();
  return found;
}
