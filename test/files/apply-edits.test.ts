import { describe, expect, it } from "vitest";
import { applyEdits } from "../../src/files/edit/edited-content.ts";
import type { Edit } from "../../src/files/model/files.ts";

const edited = (text: string, ...edits: Edit[]) => applyEdits("/data/f", text, edits).text;

describe("edits", () => {
  it("replace the text that stands once, literally", () => {
    expect(edited("a.b a+b", { old: "a+b", new: "$& $1" })).toBe("a.b $& $1");
  });

  it("are applied in order, each to what the one before left", () => {
    expect(edited("one", { old: "one", new: "two" }, { old: "two", new: "three" })).toBe("three");
  });

  it("take a bare newline for a CRLF where every line of the file ends in one", () => {
    expect(edited("a\r\nb\r\n", { old: "a\nb", new: "c\nd\ne" })).toBe("c\r\nd\r\ne\r\n");
    expect(edited("a\r\nb\n", { old: "b\n", new: "c\n" })).toBe("a\r\nc\n");
  });

  it("keep a byte order mark", () => {
    expect(edited("\ufeffa", { old: "a", new: "b" })).toBe("\ufeffb");
  });

  it.each<[string, Edit[]]>([
    ["the text to replace was not found. Read the file and copy the text exactly.", [{ old: "none", new: "x" }]],
    [
      "the text to replace was not found. Line 2 begins the same way: compare white space and line ends, and copy the text exactly.",
      [{ old: "  two\n  three", new: "x" }],
    ],
    [
      "the text to replace was found 2 times (lines 1, 4). Include more of the surrounding text to name one place, or replace all.",
      [{ old: "one", new: "x" }],
    ],
    [
      "the text to replace of edit 2 is empty. Give the exact text.",
      [
        { old: "two", new: "2" },
        { old: "", new: "x" },
      ],
    ],
    ["the old and the new text are the same.", [{ old: "two", new: "two" }]],
    ["a call takes 1 to 1000 edits, and this one has 0.", []],
  ])("are refused: %s", (reason, edits) => {
    expect(() => edited("one\ntwo\nthree\none\n", ...edits)).toThrow(`Cannot edit '/data/f': ${reason}`);
  });

  it("name the lines of an ambiguous text of several lines", () => {
    expect(() => edited("a\nb\na\nb\na\nb\n", { old: "a\nb\n", new: "" })).toThrow("lines 1, 3, 5");
  });
});
