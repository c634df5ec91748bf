import { describe, expect, it } from "vitest";
import { retryInMs } from "../../src/fleet/running/result-recorder.ts";

describe("another attempt", () => {
  it.each(["succeeded", "cached", "refused", "denied", "cancelled", "pending"])(
    "is never made where an item %s",
    (status) => {
      expect(retryInMs(status, 1, { retries: 9 })).toBeNull();
    },
  );

  it.each(["failed", "timed_out", "oom_killed"])("is made as often as was asked for where an item %s", (status) => {
    expect([1, 2, 3].map((attempt) => retryInMs(status, attempt, { retries: 2 }))).toEqual([500, 1000, null]);
  });

  it("is made without being asked for where the Engine lost the item, each later than the one before", () => {
    const waits = [1, 2, 3, 4, 5, 6].map((attempt) => retryInMs("lost", attempt, { retries: 0 }));
    expect(waits).toEqual([500, 1000, 2000, 4000, 8000, null]);
    expect(retryInMs("lost", 20, { retries: 30 })).toBe(30_000);
  });
});
