import { structuredPatch } from "diff";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { marksOf, parseDiff } from "../../../src/serve/web/text/diff.ts";

describe("a unified diff", () => {
  it("has the numbers of both versions, and marks what differs in a line", () => {
    const [file] = parseDiff([
      "--- /a",
      "+++ /a",
      "@@ -1,3 +1,3 @@",
      "-the quick fox",
      "+the slow fox",
      " jumps",
      " over",
    ]);
    expect(file?.headings).toEqual(["--- /a", "+++ /a"]);
    expect(file?.hunks[0]?.rows).toEqual([
      { kind: "removed", before: 1, after: null, text: "the quick fox", mark: [4, 9] },
      { kind: "added", before: null, after: 1, text: "the slow fox", mark: [4, 8] },
      { kind: "same", before: 2, after: 2, text: "jumps", mark: null },
      { kind: "same", before: 3, after: 3, text: "over", mark: null },
    ]);
  });

  it("has files that begin at their headings, and never in the middle of a file", () => {
    const lines = [
      ...["--- /a", "+++ /a", "@@ -1,2 +1,2 @@", "--- /etc/passwd", "-- x", "+++ /etc/passwd", "+@@ -1,1 +1,1 @@"],
      ...["modify /b, mode 644 -> 755", "--- /b", "+++ /b", "@@ -0,0 +1,1 @@", "+new", "\\ No newline at end of file"],
    ];
    const files = parseDiff(lines);
    expect(files.map(({ headings }) => headings)).toEqual([
      ["--- /a", "+++ /a"],
      ["modify /b, mode 644 -> 755", "--- /b", "+++ /b"],
    ]);
    expect(files[0]?.hunks[0]?.rows.map(({ kind, text }) => [kind, text])).toEqual([
      ["removed", "-- /etc/passwd"],
      ["removed", "- x"],
      ["added", "++ /etc/passwd"],
      ["added", "@@ -1,1 +1,1 @@"],
    ]);
    expect(files[1]?.hunks[0]?.rows.map(({ kind, after }) => [kind, after])).toEqual([
      ["added", 1],
      ["note", null],
    ]);
  });

  it("gives both versions back", () => {
    const text = fc.array(fc.constantFrom("a", "b", "- a", "+ b", "@@ -1,1 +1,1 @@", "--- /x", "", "\\ c"), {
      maxLength: 12,
    });
    fc.assert(
      fc.property(text, text, (before, after) => {
        const [old, now] = [before, after].map((lines) => lines.map((line) => `${line}\n`).join(""));
        const { hunks } = structuredPatch("", "", old ?? "", now ?? "", "", "", { context: 100 });
        const lines = hunks.flatMap(({ oldStart, oldLines, newStart, newLines, lines }) => [
          `@@ -${oldStart},${oldLines} +${newStart},${newLines} @@`,
          ...lines,
        ]);
        const rows = parseDiff(["--- /a", "+++ /a", ...lines])[0]?.hunks.flatMap(({ rows }) => rows) ?? [];
        const side = (kind: string) =>
          rows.filter((row) => row.kind === "same" || row.kind === kind).map(({ text }) => text);
        if (hunks.length === 0) return;
        expect(side("removed")).toEqual(before);
        expect(side("added")).toEqual(after);
      }),
    );
  });
});

describe("the marks in a line", () => {
  it("are none where the lines have little in common, or are long", () => {
    expect(marksOf("abcdefgh", "zyxwvuts")).toBeNull();
    expect(marksOf("x".repeat(3000), "x".repeat(3001))).toBeNull();
    expect(marksOf("aa", "aaa")).toEqual([
      [2, 2],
      [2, 3],
    ]);
  });
});
