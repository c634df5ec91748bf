import { describe, expect, it } from "vitest";
import { serviceKills } from "../../bench/service/kill.ts";
import { serviceLoad } from "../../bench/service/load.ts";
import { AT_LENGTH } from "../tiers/at-length.ts";

const print = (): void => {};

describe("a service under load", () => {
  it("loses no event of any run, and answers, with clients that never read", { timeout: 300_000 }, async () => {
    const size = AT_LENGTH
      ? { seconds: 60, clients: 50, runs: 20, silent: 5 }
      : { seconds: 3, clients: 8, runs: 3, silent: 2 };
    const { lost, errors, followed, lists } = await serviceLoad({ ...size, print });
    expect({ lost, errors }).toEqual({ lost: [], errors: [] });
    expect(followed).toBeGreaterThanOrEqual(size.runs);
    expect(lists).toBeGreaterThan(size.clients);
  });

  // Shortly, `restart.test.ts` kills a service.
  it.runIf(AT_LENGTH)(
    "that is killed leaves nothing, loses nothing and counts nothing twice (CORRAL_LONG=1)",
    {
      timeout: 300_000,
    },
    async () => {
      expect(await serviceKills({ kills: 10, items: 120, print })).toEqual([]);
    },
  );
});
