import { execFileSync, spawnSync } from "node:child_process";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  clipped,
  escapedJson,
  printable,
  printableLine,
  shellWord,
  toldApart,
  visibleLine,
  visibleName,
  visibleParts,
} from "../../src/text/visible.ts";
import { hostileText, RAW } from "./hostile-text.ts";

const HIDDEN: readonly (readonly [string, string, string])[] = [
  ["a right-to-left override", "\u202Etxt.exe", "\\u{202e}txt.exe"],
  ["an isolate", "a\u2066b\u2069", "a\\u{2066}b\\u{2069}"],
  ["a space without width", "pay\u200Bpal", "pay\\u{200b}pal"],
  ["a tag", "a\u{E0041}", "a\\u{e0041}"],
  ["an escape", "\u001B[2J", "\\u{1b}[2J"],
  ["a return", "safe\revil", "safe\\u{d}evil"],
  ["half of a pair", "a\uD800b", "a\\u{d800}b"],
  ["a separator of lines", "a\u2028b", "a\\u{2028}b"],
  ["fillers that are letters", "\u3164\u115f\u1160\uffa0", "\\u{3164}\\u{115f}\\u{1160}\\u{ffa0}"],
  ["vowels that are drawn as nothing", "a\u17b4\u17b5", "a\\u{17b4}\\u{17b5}"],
  ["a joiner of graphemes", "a\u034f", "a\\u{34f}"],
  ["a blank of Braille", "a\u2800b", "a\\u{2800}b"],
  ["selectors, also that for emoji", "a\u{E0101}\ufe0f\ufe00", "a\\u{e0101}\\u{fe0f}\\u{fe00}"],
  ["blanks that are not the plain one", "a\u00a0\u2003\u3000b", "a\\u{a0}\\u{2003}\\u{3000}b"],
  ["a mark without a letter", "\u0301a/\u0338b", "\\u{301}a/\\u{338}b"],
  ["a mark on what is hidden", "a\u034f\u0301", "a\\u{34f}\\u{301}"],
  ["the fifth mark on a letter", "e\u0301\u0302\u0303\u0304\u0305\u0306", "e\u0301\u0302\u0303\u0304\\u{305}\\u{306}"],
  ["what no font has", "\ue000\u{10ffff}\u0378", "\\u{e000}\\u{10ffff}\\u{378}"],
];

describe("a text that a worker chose", () => {
  it.each(HIDDEN)("shows %s by its code, on every face", (_, text, shown) => {
    expect(printable(text)).toBe(shown);
    expect(printableLine(text)).toBe(shown);
    expect(visibleLine(text)).toBe(shown);
    expect(visibleName(text)).toBe(`"${shown}"`);
    expect(
      visibleParts(text)
        .map((part) => part.text)
        .join(""),
    ).toBe(shown);
    expect(JSON.parse(escapedJson(JSON.stringify(text)))).toBe(text);
    expect(escapedJson(JSON.stringify(text))).not.toMatch(RAW);
  });

  it.each([
    "plain",
    "déjà vu",
    "déjà vu".normalize("NFD"),
    "日本語",
    "отчёт",
    "नमस्ते",
    "ภาษาไทย",
    "Tiếng Việt".normalize("NFD"),
    "✔ 🐑",
    "/out/שלום.txt",
    "/تقرير/x".replace("/", "/a/"),
  ])("leaves %j as it is", (text) => {
    expect([printable(text), printableLine(text), visibleLine(text), visibleName(text)]).toEqual([
      text,
      text,
      text,
      text,
    ]);
    expect(visibleParts(text)).toEqual([{ text, isHidden: false }]);
  });

  it.each([
    ["alone beside other texts", printableLine("שלום"), "\\u{5e9}\\u{5dc}\\u{5d5}\\u{5dd}"],
    ["with another such word behind them", printable("/a/אב/גד/x"), "/a/\\u{5d0}\\u{5d1}/גד/x"],
    ["with a digit behind them", printable("a אב 3 b"), "a \\u{5d0}\\u{5d1} 3 b"],
    ["with nothing behind them", printable("/out/אב"), "/out/\\u{5d0}\\u{5d1}"],
    ["joined to letters before them", printable("/out/aאב"), "/out/a\\u{5d0}\\u{5d1}"],
    ["with digits of their own", printable("a ٣ب b"), "a \\u{663}\\u{628} b"],
  ])("shows letters that run from right to left by their codes: %s", (_, shown, expected) => {
    expect(shown).toBe(expected);
  });

  it("leaves a whole line of them, which nothing can be moved in", () => {
    expect([printable("a\nשלום עולם!"), visibleLine("+שלום עולם")]).toEqual(["a\nשלום עולם!", "+שלום עולם"]);
    expect(visibleParts("abc שלום 3")).toEqual([{ text: "abc שלום 3", isHidden: false }]);
  });

  it("keeps line breaks and tabs where they belong", () => {
    expect([printable("a\tb\nc"), visibleLine("a\tb\nc"), printableLine("a\tb\nc")]).toEqual([
      "a\\u{9}b\nc",
      "a\tb\\u{a}c",
      "a\\u{9}b c",
    ]);
  });

  it("loses nothing and keeps nothing hidden", () => {
    fc.assert(
      fc.property(hostileText(), (text) => {
        const parts = visibleParts(text);
        const back = parts.map(({ text, isHidden }) =>
          isHidden ? text.replace(/\\u\{([0-9a-f]+)\}/g, (_, hex) => String.fromCodePoint(parseInt(hex, 16))) : text,
        );
        expect(back.join("")).toBe(text);
        const all = [printable(text), printableLine(text), visibleLine(text), visibleName(text), escapedJson(text)];
        for (const shown of [...all, parts.map((part) => part.text).join("")])
          expect(shown.replace(/[\n\t]/g, "")).not.toMatch(RAW);
        // What is shown once is safe: a second face that shows it changes nothing.
        for (const shown of all) expect(printable(shown, "\n\t")).toBe(shown);
      }),
      { numRuns: 300 },
    );
  });

  it("never gives two names the same text", () => {
    fc.assert(
      fc.property(hostileText(), hostileText(), (a, b) => {
        expect(visibleName(a) === visibleName(b)).toBe(a === b);
      }),
    );
    expect(new Set(["a\u200b", "a\\u{200b}", '"a\\u{200b}"', "a"].map((name) => visibleName(name))).size).toBe(4);
  });

  it("is clipped between characters", () => {
    expect(clipped("abcdef", 4)).toBe("abc…");
    expect(clipped("ab🐑d", 4)).toBe("ab…");
  });

  it("is cut to a part of a line without opening what encloses a word", () => {
    expect(printableLine(`/out/שלום${"x".repeat(300)}`, 12)).toMatch(/^\/out\/\\u\{5e9/);
  });
});

const CLIENT = join(import.meta.dirname, "../../python/src/corral/_visible.py");
/** Prints the category of all code points, and what the client makes of each text of its standard input. */
const ASK = `
import importlib.util, json, sys, unicodedata
spec = importlib.util.spec_from_file_location("visible", sys.argv[1])
visible = importlib.util.module_from_spec(spec)
spec.loader.exec_module(visible)
unknown = [c for c in range(0x110000) if unicodedata.category(chr(c)) == "Cn"]
every = [visible.printable("a" + chr(c) + "b") for c in range(0x110000)]
print(json.dumps([unknown, every, [visible.printable(text) for text in json.load(sys.stdin)]]))
`;
const PYTHON = ["/usr/bin/python3", "python3"].find(
  (path) => spawnSync(path, ["-c", "import sys; sys.exit(sys.version_info < (3, 11))"]).status === 0,
);

describe.skipIf(PYTHON === undefined)("the Python client", () => {
  it("shows every character, and every text, as all other faces do", () => {
    const isNew = (text: string): boolean => [...text].some((one) => unknown.has(one.codePointAt(0) ?? 0));
    const texts = fc.sample(hostileText(), 1000);
    const { stdout, stderr } = spawnSync(PYTHON ?? "", ["-c", ASK, CLIENT], {
      ...{ input: JSON.stringify(texts), encoding: "utf8", maxBuffer: 64 * 1024 ** 2 },
    });
    expect(stderr).toBe("");
    const [listed, every, shown] = JSON.parse(stdout) as [number[], string[], string[]];
    // One of the two may know a newer Unicode.
    const unknown = new Set(listed.filter((code) => !/\p{Cn}/u.test(String.fromCodePoint(code))));
    const wrong = every.flatMap((text, code) => {
      const one = `a${String.fromCodePoint(code)}b`;
      return isNew(one) || /\p{Cn}/u.test(one) || printable(one) === text ? [] : [[one, printable(one), text]];
    });
    expect(wrong).toEqual([]);
    const differing = texts.flatMap((text, at) =>
      isNew(text) || printable(text) === shown[at] ? [] : [[text, printable(text), shown[at]]],
    );
    expect(differing).toEqual([]);
  });
});

describe("toldApart", () => {
  it("adds the id to a name that several have, and to no other", () => {
    const nameOf = toldApart([
      { id: "aaaa1111", name: "work" },
      { id: "bbbb2222", name: "work" },
      { id: "cccc3333", name: "big" },
    ]);
    expect(["aaaa1111", "bbbb2222", "cccc3333"].map(nameOf)).toEqual(["work (aaaa)", "work (bbbb)", "big"]);
  });
});

it("is one word that a shell reads as the text, whatever the text has", () => {
  const texts = ["", "/a b/c", "it's", '$HOME `id` \\ "x"', "a;b|c&d", "*", "~/x", "-n", "line\nline", "é"];
  const read = execFileSync("sh", ["-c", `printf '%s\\0' ${texts.map(shellWord).join(" ")}`], { encoding: "utf8" });
  expect(read.split("\0").slice(0, -1)).toEqual(texts);
});

it("has no quotes if it needs none", () => {
  expect(shellWord("/var/lib/corral/changes/0123456789ab/owner")).toBe("/var/lib/corral/changes/0123456789ab/owner");
});
