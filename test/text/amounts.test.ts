import { describe, expect, it } from "vitest";
import {
  agoText,
  counted,
  countText,
  durationText,
  formatBytes,
  formatDuration,
  rateText,
  roughBytesText,
} from "../../src/text/amounts.ts";

describe("units", () => {
  it("use the largest unit that says it exactly", () => {
    expect([268_435_456, 1536, 1024 ** 3, 10_000_000, 0].map(formatBytes)).toEqual([
      "256 MiB",
      "1536 bytes",
      "1 GiB",
      "10000000 bytes",
      "0 bytes",
    ]);
    expect([30_000, 90_000, 3_600_000, 1500, 0].map(formatDuration)).toEqual(["30s", "90s", "1h", "1500ms", "0ms"]);
  });
});

describe("quantities for people", () => {
  it.each([
    [0, "0s"],
    [0.25, "0.3ms"],
    [12.4, "12ms"],
    [999.7, "1s"],
    [1500, "1.5s"],
    [59_949, "59.9s"],
    [59_960, "1m"],
    [123_000, "2m 3s"],
    [3_599_600, "1h"],
    [7_500_000, "2h 5m"],
    [180_000_000, "2d 2h"],
  ])("tells %d milliseconds as %s", (ms, text) => {
    expect(durationText(ms)).toBe(text);
  });

  it("groups digits, and chooses units that are easy to think of", () => {
    expect([countText(0), countText(999), countText(1000), countText(1_234_567)]).toEqual([
      "0",
      "999",
      "1,000",
      "1,234,567",
    ]);
    expect([rateText(0.5), rateText(3.44), rateText(812.3), rateText(0)]).toEqual([
      "30/min",
      "3.4/s",
      "812/s",
      "0/min",
    ]);
    expect([roughBytesText(12), roughBytesText(1.5 * 1024 ** 2), roughBytesText(143 * 1024 ** 2)]).toEqual([
      "12 bytes",
      "1.5 MiB",
      "143 MiB",
    ]);
  });
});

describe("counted", () => {
  it("says one of a kind as one", () => {
    expect([counted(1, "project"), counted(0, "project"), counted(2000, "entry", "entries")]).toEqual([
      "1 project",
      "0 projects",
      "2,000 entries",
    ]);
    expect(countText(100, true)).toBe("100+");
  });
});

describe("agoText", () => {
  it("has the largest unit, and beyond a week the day", () => {
    const now = Date.parse("2030-01-02T00:00:00.000Z");
    const times = ["2030-01-01T23:59:57.000Z", "2030-01-02T00:04:00.000Z", "2029-01-01T00:00:00.000Z"];
    expect(times.map((at) => agoText(at, now))).toEqual(["3 s ago", "in 4 min", "2029-01-01"]);
  });
});
