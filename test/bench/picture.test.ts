import { describe, expect, it } from "vitest";
import { chartOf } from "../../bench/outcome/chart.ts";
import { pictureOf } from "../../bench/outcome/picture.ts";
import { groupOf } from "../../bench/outcome/report.ts";
import { smallReport } from "./report-fixture.ts";

describe("the picture of a bench", () => {
  it("has a panel for each comparison that was measured, with Corral on each driver", () => {
    const svg = pictureOf(smallReport());
    expect(svg.match(/class="title"/g)).toHaveLength(3);
    expect(svg).toContain("One command in a new container");
    expect(svg).toContain(">warm claim to result, on runc<");
    expect(svg.match(/<rect class="ours"/g)).toHaveLength(2);
    expect(svg.match(/<rect class="(other|weaker)"/g)).toHaveLength(4);
  });

  it("says which contenders isolate less, only if it shows one", () => {
    expect(pictureOf(smallReport())).toMatch(/>bwrap \*<[\s\S]*\* no limit of memory/);
    const groups = smallReport().groups.filter(({ name }) => name !== "runs");
    expect(pictureOf({ ...smallReport(), groups })).not.toContain("* no limit");
  });

  it("names the command, the machine, its load and the day below it", () => {
    const svg = pictureOf(smallReport());
    expect(svg).toContain("npm run bench -- --quick");
    expect(svg).toContain("2 cores (A &amp; B), 8 GB, Linux 6.1.0, Docker Engine 20.10.24, runc 1.1.5, Node 24.0.0");
    expect(svg).toContain("load 0.3 before, 3.0 after");
    expect(svg).toContain("2026-01-02");
  });

  it("has colours for a light and for a dark page, and a ground of its own", () => {
    const svg = pictureOf(smallReport());
    expect(svg).toContain("@media (prefers-color-scheme: dark)");
    expect(svg).toContain('<rect class="ground"');
  });

  it("is empty but for its caption if nothing was measured", () => {
    const svg = pictureOf({
      ...smallReport(),
      groups: [groupOf("runs", "R", "ms", [{ name: "docker run", values: [] }])],
    });
    expect(svg).not.toMatch(/NaN|Infinity|undefined|class="title"/);
  });
});

describe("a chart", () => {
  it("draws bars from 0 on one scale, with their numbers, and no name in it is markup", () => {
    const bars = [
      { name: "<b>", value: 50, kind: "ours" as const },
      { name: "c", value: 100, kind: "other" as const },
    ];
    const svg = chartOf([{ title: "T & U", unit: "ms", moreIsBetter: false, bars }], ["caption"]);
    const widths = [...svg.matchAll(/<rect class="(?:ours|other)"[^>]* width="([\d.]+)"/g)].map(([, width]) =>
      Number(width),
    );
    expect(widths[1]).toBe((widths[0] ?? 0) * 2);
    expect(svg).toContain("&lt;b&gt;");
    expect(svg).not.toContain("<b>");
    expect(svg).toContain("T &amp; U");
    expect(svg).toContain("ms, less is better");
  });

  it("breaks a long caption between words", () => {
    const words = Array.from({ length: 60 }, (_, index) => `word-${index}`);
    const lines = [...chartOf([], [words.join(" ")]).matchAll(/class="small">([^<]*)</g)].map(([, line = ""]) => line);
    expect(lines.length).toBeGreaterThan(3);
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(120);
    expect(lines.join(" ").split(" ")).toEqual(words);
  });
});
