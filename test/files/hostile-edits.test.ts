import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { applyEdits, placesIn } from "../../src/files/edit/edited-content.ts";

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
