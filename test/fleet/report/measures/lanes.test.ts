import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { lanesOf } from "../../../../src/fleet/report/measures/statistics.ts";

const stretches = fc.array(
  fc
    .tuple(fc.integer({ min: 0, max: 100 }), fc.integer({ min: 1, max: 30 }))
    .map(([startMs, ms]) => ({ startMs, endMs: startMs + ms })),
  { maxLength: 60 },
);

describe("lanesOf", () => {
  it("lets no two overlap in a lane, and makes as many lanes as ever ran at once", () => {
    fc.assert(
      fc.property(stretches, (given) => {
        const lanes = lanesOf(given, 1000) ?? [];
        for (const [index, one] of given.entries()) {
          for (const [other, two] of given.entries()) {
            if (other <= index || lanes[other] !== lanes[index]) continue;
            expect(one.endMs <= two.startMs || two.endMs <= one.startMs).toBe(true);
          }
        }
        const atOnce = given.map(
          ({ startMs }) => given.filter((other) => other.startMs <= startMs && startMs < other.endMs).length,
        );
        expect(Math.max(0, ...lanes.map((lane) => lane + 1))).toBe(Math.max(0, ...atOnce));
      }),
    );
  });

  it("is nothing where there would be too many lanes", () => {
    const together = Array.from({ length: 5 }, () => ({ startMs: 0, endMs: 10 }));
    expect(lanesOf(together, 5)).toEqual([0, 1, 2, 3, 4]);
    expect(lanesOf(together, 4)).toBeNull();
  });
});
