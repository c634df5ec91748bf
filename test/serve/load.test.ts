import { describe, expect, it } from "vitest";
import { serviceKills } from "../../bench/service/kill.ts";
import { serviceLoad } from "../../bench/service/load.ts";

const isLong = process.env.CORRAL_LONG === "1";
const print = (): void => {};

describe("a service under load", () => {
  it("loses no event of any run, and answers, with clients that never read", { timeout: 300_000 }, async () => {
    const size = isLong
      ? { seconds: 60, clients: 50, runs: 20, silent: 5 }
      : { seconds: 5, clients: 8, runs: 3, silent: 2 };
    const { lost, errors, followed, lists } = await serviceLoad({ ...size, print });
    expect({ lost, errors }).toEqual({ lost: [], errors: [] });
    expect(followed).toBeGreaterThanOrEqual(size.runs);
    expect(lists).toBeGreaterThan(size.clients);
  });

  it("that is killed leaves nothing, loses nothing and counts nothing twice", { timeout: 300_000 }, async () => {
    const size = isLong ? { kills: 10, items: 120 } : { kills: 2, items: 12 };
    expect(await serviceKills({ ...size, print })).toEqual([]);
  });
});
