import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { checkShape, parseYaml } from "../../../src/declarations/yaml/document.ts";
import { DeclarationError, type Problem } from "../../../src/declarations/yaml/problem.ts";
import { byKind, map, namedMap } from "../../../src/declarations/yaml/shape.ts";

const schema = map({
  title: z.string(),
  mode: z.enum(["ro", "rw"]).optional(),
  items: namedMap(
    map({ size: z.number() }),
    (name) => (/^[a-z]+$/.test(name) ? null : "must be lower case"),
    3,
  ).optional(),
  either: byKind(
    { switch: z.boolean(), map: map({ allow: z.array(z.string()) }) },
    "must be a switch or a map",
  ).optional(),
});

function problemsIn(text: string, firstLine = 1): string[] {
  const parsed = parseYaml(text, "f.yaml", firstLine);
  const checked = parsed.ok ? checkShape(parsed.document, schema) : parsed;
  return checked.ok ? [] : checked.problems.map(placed);
}

function placed({ line, column, path, message }: Problem): string {
  return `${line}:${column} ${path} ${message}`;
}

describe("problems in a YAML file", () => {
  it("names every wrong value at once, each at its line and column", () => {
    expect(problemsIn("title: 5\nmode: rx\nitems:\n  a: { size: big }\n  B: { sise: 1 }\n")).toEqual([
      '1:8 title must be a text, not 5; write it in quotes: "5"',
      '2:7 mode must be "ro" or "rw", not "rx"',
      '4:14 items.a.size must be a number, not "big"',
      "5:3 items.B must be lower case",
      "5:6 items.B.size is missing",
      "5:8 items.B.sise unknown key `sise`, did you mean `size`?",
    ]);
  });

  it("names the nearest known key of each unknown one, or all of them where none is near", () => {
    expect(problemsIn("titel: a\ntitle: b\nzzzzzzzz: 1\n")).toEqual([
      "1:1 titel unknown key `titel`, did you mean `title`?",
      "3:1 zzzzzzzz unknown key `zzzzzzzz`; known keys: title, mode, items, either",
    ]);
  });

  it("looks only at the form that was meant where a value has several", () => {
    expect(problemsIn("title: a\neither: { alow: [] }\n")).toEqual([
      "2:9 either.allow is missing",
      "2:11 either.alow unknown key `alow`, did you mean `allow`?",
    ]);
    expect(problemsIn("title: a\neither: maybe\n")).toEqual(["2:9 either must be a switch or a map"]);
  });

  it("counts lines from where the text begins in its file", () => {
    expect(problemsIn("mode: ro\ntitle: 1", 2)).toEqual(['3:8 title must be a text, not 1; write it in quotes: "1"']);
  });

  it.each([
    ["title: a\ntitle: b\n", /^2:1 .*unique/],
    ["\ttitle: a\n", /^1:1 .*[Tt]ab/],
    ["title: [a\n", /^\d:\d+ /],
    ["title: !secret a\n", /^1:8 .*tag/i],
    ["title: a\n---\ntitle: b\n", /^2:1 .*multiple documents/],
    ["a: &a [x]\nb: [*a, *a]\n", /^2:5 .*alias/],
    ["base: &b { mode: rw }\n<<: *b\n", /^2:1 .*`<<`/],
    ["__proto__: { title: a }\n", /^1:1 .*`__proto__`/],
    ["title: *nothing\n", /^1:8 /],
    ["items: { __proto__: { size: 1 } }\n", /^1:10 .*`__proto__`/],
  ])("refuses %j at its place", (text, expected) => {
    expect(problemsIn(text)[0]).toMatch(expected);
  });

  it("refuses an alias bomb and a text that is too long without expanding them", () => {
    const bomb = [
      "a: &a [x]",
      ..."bcdefgh".split("").map((key, at) => `${key}: &${key} [${`*${"abcdefgh"[at]},`.repeat(50)}]`),
    ];
    expect(problemsIn(bomb.join("\n"))[0]).toContain("alias");
    expect(problemsIn("a".repeat(300_000))[0]).toContain("300000 characters");
    expect(problemsIn("[".repeat(100_000))).toHaveLength(1);
  });

  it("limits how many names a map may hold", () => {
    expect(problemsIn("title: a\nitems: {a: {}, b: {}, c: {}, d: {}}")).toEqual([
      "2:8 items has 4 entries; at most 3 are allowed",
    ]);
  });

  it("never throws, whatever the text", () => {
    const text = fc.oneof(fc.string(), fc.string({ unit: fc.constantFrom(..."{}[]:,&*!|>-#'\"\n\t a1~?%@`") }));
    fc.assert(
      fc.property(text, (any) => {
        for (const problem of problemsIn(any)) expect(problem).toMatch(/^[1-9]\d*:[1-9]\d* /);
      }),
      { numRuns: 300 },
    );
  });
});

describe("DeclarationError", () => {
  it("lists its problems in the order of their places, in the form that editors link", () => {
    const problem = { file: "b.yaml", line: 2, column: 3, path: "x.y", message: "is wrong" };
    const error = new DeclarationError([problem, { ...problem, line: 1, path: "" }, { ...problem, file: "a.yaml" }]);
    expect(error.message).toBe("a.yaml:2:3: x.y: is wrong\nb.yaml:1:3: is wrong\nb.yaml:2:3: x.y: is wrong");
    expect(error.problems.map(({ line }) => line)).toEqual([2, 1, 2]);
  });
});
