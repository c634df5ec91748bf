import { readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { SHOWN_REPORT, shownOf, withShown } from "../../bench/outcome/pages.ts";
import { pictureOf } from "../../bench/outcome/picture.ts";
import { joined } from "../../bench/outcome/repeated.ts";
import { groupOf, medianOf } from "../../bench/outcome/report.ts";
import { targetsOf } from "../../bench/outcome/targets.ts";
import { smallReport } from "./report-fixture.ts";

const read = (page: string): Promise<string> => readFile(new URL(`../../${page}`, import.meta.url), "utf8");

describe("what pages show of the bench", () => {
  it("is made of docs/bench.json, as `npm run bench -- --from docs/bench.json --pages` does it", async () => {
    const report = JSON.parse(await readFile(SHOWN_REPORT, "utf8"));
    expect(await read("docs/bench.svg")).toBe(pictureOf(report));
    for (const [page, shown] of shownOf(report)) {
      const text = await read(page);
      expect(withShown(text, shown, page)).toBe(text);
    }
  });

  it("replaces only what is between its two lines", () => {
    const [begin, end] = ["<!-- made by `npm run bench -- --pages` -->", "<!-- end -->"];
    const page = `before\n${begin}\n\nold\n\n${end}\nafter\n`;
    expect(withShown(page, "new", "a page")).toBe(`before\n${begin}\n\nnew\n\n${end}\nafter\n`);
    for (const wrong of ["", begin, `${begin}\n${begin}\n\n${end}`, `${end}\n${begin}\n`])
      expect(() => withShown(wrong, "new", "a page")).toThrow(/^a page must have the line/);
  });

  it("has of each row the median and its ratio to the first row", () => {
    const shown = shownOf(smallReport()).get("README.md") ?? "";
    expect(shown).toMatch(/^\| One run +\| +ms \| to docker run \|$/m);
    expect(shown).toMatch(/^\| docker run +\| +210 \| +×1 \|$/m);
    expect(shown).toMatch(/^\| Corral on runc: warm claim to result +\| +50 \| +×0\.238 \|$/m);
    expect(shown).toMatch(/^\| Corral on the Engine: fleet, scrubbed cells +\| +1,200 \| +×120 \|$/m);
  });
});

describe("several reports", () => {
  it("are one: the groups of all, of one that both have the last, and each target from the one that measured it", () => {
    const growth = groupOf("growth", "G", "ms", [
      { name: "Corral on the Engine: an item among 1,000", values: [2] },
      { name: "Corral on the Engine: an item among 10,000", values: [3] },
    ]);
    const runs = groupOf("runs", "R", "ms", [{ name: "docker run", values: [99] }]);
    const later = {
      ...smallReport(),
      command: "second",
      groups: [runs, growth],
      targets: targetsOf([runs, growth]),
    };
    const report = joined([smallReport(), { ...later, machine: { ...later.machine, kernel: "newer" } }]);
    expect(report.machine.kernel).toBe(`${smallReport().machine.kernel} and newer`);
    expect(report.groups.map(({ name }) => name)).toEqual(["rates", "runs", "growth"]);
    expect(medianOf(report.groups, "runs", "docker run")).toBe(99);
    expect(report.command).toBe("npm run bench -- --quick; second");
    expect(report.durationMs).toBe(122_000);
    const measured = Object.fromEntries(report.targets.map(({ what, measured }) => [what, measured]));
    expect(measured["an item among 10,000, on the Engine / among 1,000"]).toBe(1.5);
    expect(measured["scrubbed fleet, on the Engine / docker run at its best"]).toBe(120);
    // An older report does not know of newer targets.
    const older = { ...smallReport(), targets: smallReport().targets.filter(({ what }) => !what.includes("among")) };
    expect(joined([older, later]).targets.find(({ what }) => what.includes("among 10,000"))?.measured).toBe(1.5);
  });
});
