import { describe, expect, it } from "vitest";
import { formatBytes, formatDuration } from "../../src/text/amounts.ts";

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
