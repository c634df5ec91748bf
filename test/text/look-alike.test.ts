import { describe, expect, it } from "vitest";
import { lookAlikeTexts } from "../../src/text/look-alike.ts";

describe("names that look alike", () => {
  it.each([
    ["of two alphabets", ["/o/сору", "/o/copy"], "names in /o look alike: \\u{441}\\u{43e}\\u{440}\\u{443}, copy"],
    ["by what is drawn as nothing", ["/o/a", "/o/a\u200b"], 'names in /o look alike: a, "a\\u{200b}"'],
    ["in case alone", ["/o/README", "/o/readme"], "names in /o look alike: README, readme"],
    ["by how a mark is written", ["/o/caf\u00e9", "/o/cafe\u0301"], "names in /o look alike: caf\\u{e9}, cafe\\u{301}"],
    ["by full width", ["/o/Ｃ０", "/o/CO"], "names in /o look alike: \\u{ff23}\\u{ff10}, CO"],
    ["by l, I and 1", ["/o/l1", "/o/lI"], "names in /o look alike: l1, lI"],
    ["by letters that run together", ["/o/modern", "/o/modem"], "names in /o look alike: modern, modem"],
    ["by a dash", ["/o/a\u2010b", "/o/a-b"], "names in /o look alike: a\\u{2010}b, a-b"],
    ["of directories above them", ["/сору/x", "/copy/y"], "names look alike: \\u{441}\\u{43e}\\u{440}\\u{443}, copy"],
    ["within a word", ["/o/p\u0430ypal"], "a name in /o has \\u{430}, which looks like a: p\\u{430}ypal"],
    ["as what parts names", ["/o/a\u2215b"], "a name in /o has \\u{2215}, which looks like /: a\\u{2215}b"],
  ])("are pointed out: %s", (_, paths, text) => {
    expect(lookAlikeTexts(paths)).toEqual([text]);
  });

  it("are not found where there are none", () => {
    const paths = [
      "/o/отчёт.docx",
      "/o/日本語abc.txt",
      "/o/résumé",
      "/o/resume",
      "/o/naïve",
      "/o/x²",
      "/o/a/same",
      "/o/b/same",
    ];
    expect(lookAlikeTexts([...paths, ...paths])).toEqual([]);
    expect(lookAlikeTexts(Array.from({ length: 120 }, (_, at) => `/o/file-${at}.txt`))).toEqual([]);
  });

  it("are counted beyond a few, and what was not compared is said", () => {
    const many = Array.from({ length: 50 }, (_, at) => [`/o/b${at}x`, `/o/B${at}x`]).flat();
    expect(lookAlikeTexts(many)).toHaveLength(21);
    expect(lookAlikeTexts(many).at(-1)).toBe("30 more names look like others");
    expect(lookAlikeTexts(Array.from({ length: 10_000 }, (_, at) => `/n${at}`))).toEqual([]);
    expect(lookAlikeTexts(Array.from({ length: 10_001 }, (_, at) => `/n${at}`))).toEqual([
      "too many names to compare: only the first 10000 were",
    ]);
  });

  it("are found together, whichever of them comes last and looks like the others", () => {
    // The first two differ in case and in `rn`; the third looks like both.
    for (const paths of [
      ["/o/modem", "/o/MODERN", "/o/modern"],
      ["/o/MODERN", "/o/modem", "/o/modern"],
    ])
      expect(lookAlikeTexts(paths)).toEqual([expect.stringMatching(/^names in \/o look alike: \w+, \w+, modern$/)]);
  });
});
