import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { applyEdits, placesIn } from "../../src/files/edit/edited-content.ts";
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

describe("edits that are made to keep Corral busy", () => {
  it("are searched for in time that does not multiply the file by the text to replace", { timeout: 20_000 }, () => {
    const old = `aaaaab${"a".repeat(1_000_000)}`;
    expect(() => applyEdits("/f", "a".repeat(9_000_000), [{ old, new: "c" }])).toThrow("was not found");
  });

  it("are refused at the step that would outgrow the largest file", () => {
    const doubling = Array.from({ length: 40 }, () => ({ old: "a", new: "aa", all: true }));
    expect(() => applyEdits("/f", "a".repeat(1000), doubling)).toThrow(/longer than|too much text at once/);
  });

  it("are refused where they are too much work together", () => {
    const back = Array.from({ length: 1000 }, (_, index) => ({
      old: "ab"[index % 2] ?? "",
      new: "ba"[index % 2] ?? "",
      all: true,
    }));
    expect(() => applyEdits("/f", "a".repeat(900_000), back)).toThrow("too much text at once");
  });

  it("find what the language's own search finds", () => {
    const letters = fc.string({ unit: fc.constantFrom("a", "b"), maxLength: 40 });
    const wanted = fc.string({ unit: fc.constantFrom("a", "b"), minLength: 1, maxLength: 6 });
    fc.assert(
      fc.property(letters, wanted, (text, old) => {
        expect(placesIn(text, old)).toHaveLength(text.split(old).length - 1);
        expect(placesIn(text, old)[0] ?? -1).toBe(text.indexOf(old));
      }),
    );
  });
});
