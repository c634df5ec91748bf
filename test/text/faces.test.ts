import { stripVTControlCharacters } from "node:util";
import fc from "fast-check";
import pc from "picocolors";
import { describe, expect, it } from "vitest";
import { diffText } from "../../src/cli/changes/targets.ts";
import { textDiff } from "../../src/files/diff/text-diff.ts";
import { escaped } from "../../src/fleet/report/measures/gathered.ts";
import { questionForm } from "../../src/mcp/connection/client-approver.ts";
import {
  type AskedOfPerson,
  choiceTexts,
  EVERYTHING,
  questionText,
} from "../../src/operations/wording/question-text.ts";
import { cutDiff, parseDiff } from "../../src/serve/web/text/diff.ts";
import { lookAlikeTexts } from "../../src/text/look-alike.ts";
import { visibleLine, visibleName } from "../../src/text/visible.ts";
import { hostileText, RAW } from "./hostile-text.ts";

const PLAIN = pc.createColors(false);
/** So many, of a few different ones: a generator of long lists makes mostly short ones. */
const many = (of: fc.Arbitrary<string>, count: number) =>
  fc
    .array(of, { minLength: 1, maxLength: 8 })
    .map((some) => Array.from({ length: count }, (_, at) => some[at % some.length] ?? ""));
const namesOf = (count: number) =>
  many(hostileText(5), count).map((all) => all.map((name, at) => `/out/${at}${name.replaceAll("\0", "")}`));
const contents = fc.nat({ max: 120 }).chain((count) => many(hostileText(6), count).map((lines) => lines.join("\n")));
/** As the API has it: each file with its name, and its lines. */
const diffs = fc.array(fc.tuple(hostileText(4), contents), { maxLength: 3 }).map((files) =>
  files.flatMap(([name, content]) => {
    const hunks = textDiff(Buffer.alloc(0), Buffer.from(content.replaceAll("\0", "")));
    return hunks === null || hunks.length === 0
      ? []
      : ["--- /dev/null", `+++ ${visibleName(`/out/${name}`)}`, ...hunks];
  }),
);
/** At a terminal, 20 paths and 60 lines are shown at first. */
const sizes = fc.tuple(fc.constantFrom(1, 3, 4, 20, 21, 45), fc.constantFrom(0, 1, 30, 60, 61, 150));
const questions = sizes
  .chain(([paths, lines]) => fc.tuple(namesOf(paths), many(hostileText(4), lines), hostileText()))
  .map(
    ([paths, lines, why]): AskedOfPerson => ({
      ...{ worker: "w", operations: ["write"], paths, runs: 1, why },
      ...(lines.length === 0 ? {} : { diff: lines.map((line) => `+${visibleLine(line)}`).join("\n") }),
    }),
  );
describe("what a person is asked", () => {
  it("is all shown at the terminal, or counted with no yes until it is shown", () => {
    const reached = { more: 0, all: 0 };
    fc.assert(
      fc.property(questions, fc.integer({ min: 50, max: 200 }), (question, columns) => {
        const whole = questionText(question, columns, PLAIN, EVERYTHING);
        const { above, rest, message } = questionText(question, columns, PLAIN);
        expect(whole.rest).toEqual([]);
        for (const line of [...above, ...rest, message]) expect(stripVTControlCharacters(line)).not.toMatch(RAW);
        const announcements = above.filter((line) => /^ {2}┊ and \d+ more( lines of the changes)?$/.test(line));
        expect(above.length - announcements.length + rest.length).toBe(whole.above.length);
        const isYes = (left: number): boolean =>
          choiceTexts(question, left).some(({ value }) => !["no", "all"].includes(value));
        reached[rest.length > 0 ? "more" : "all"] += 1;
        expect([isYes(rest.length), isYes(0)]).toEqual([rest.length === 0, true]);
        // Where no line is broken, each path has its own.
        const wide = questionText(question, 10_000, PLAIN, EVERYTHING).above;
        if (question.paths.length > 3)
          expect(wide).toEqual(expect.arrayContaining(question.paths.map((path) => `  ┊ ${visibleName(path)}`)));
        const alike = lookAlikeTexts(question.paths);
        expect(wide.slice(0, alike.length)).toEqual(alike.map((text) => `  ┊ careful: ${text}`));
      }),
      { numRuns: 60 },
    );
    expect(Math.min(reached.more, reached.all)).toBeGreaterThan(5);
  });

  it("is all in the form of a client of MCP, or not asked there", () => {
    fc.assert(
      fc.property(questions, (question) => {
        const form = questionForm(question, false);
        expect(form?.message.replaceAll("\n", "") ?? "").not.toMatch(RAW);
        expect(form?.message.split("\n").length ?? 0).toBe(
          form === null ? 0 : questionText(question, 100, PLAIN, EVERYTHING).above.length + 1,
        );
      }),
      { numRuns: 40 },
    );
  });

  it("is all drawn on the page, or counted with its name, for every limit", () => {
    fc.assert(
      fc.property(diffs, fc.nat({ max: 200 }), (lines, room) => {
        const files = parseDiff(lines);
        const cut = cutDiff(files, room);
        const count = (some: typeof files): number =>
          some.flatMap(({ hunks }) => hunks).reduce((sum, { rows }) => sum + rows.length, 0);
        const left = cut.left.reduce((sum, one) => sum + one.lines, 0);
        expect(count(cut.files) + left).toBe(count(files));
        expect(count(cut.files)).toBe(Math.min(room, count(files)));
        expect(cut.files.map(({ headings }) => headings)).toEqual(files.map(({ headings }) => headings));
        // Nothing of the text is in neither rows nor headings but the heads of hunks.
        const heads = lines.filter((line) => line.startsWith("@@ ")).length;
        expect(count(files) + files.reduce((sum, { headings }) => sum + headings.length, 0)).toBe(lines.length - heads);
      }),
      { numRuns: 100 },
    );
  });

  it("has no hidden character in the lines of the API, in a diff at the terminal, and in a report", () => {
    fc.assert(
      fc.property(diffs, hostileText(), (lines, key) => {
        for (const line of lines) expect(line.replaceAll("\t", "")).not.toMatch(RAW);
        for (const line of diffText(lines.join("\n"), 60, PLAIN).split("\n")) expect(line).not.toMatch(RAW);
        expect(escaped(key)).not.toMatch(RAW);
      }),
      { numRuns: 60 },
    );
  });
});
