import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { addressAllowed, judgeRequest } from "../../../src/sandbox/network/judge.ts";
import { canonicalNetwork, meetNetwork, networkExcesses } from "../../../src/sandbox/network/network.ts";
import { isLookedInto, type Network } from "../../../src/sandbox/network/rule.ts";
import { AT_LENGTH } from "../../tiers/at-length.ts";
import {
  ADDRESSES,
  type Attempt,
  allows,
  attempts,
  HOSTS,
  lists,
  METHODS,
  networks,
  PATHS,
  PORTS,
} from "./arbitraries.ts";

/** A list of rules takes some milliseconds, and every run of the tests tries others. */
const RUNS = AT_LENGTH ? 100 : 40;

const tries = fc.array(attempts, { minLength: 200, maxLength: 200 });

/** Everything that can be told apart: what no list names stands for the rest. */
const EVERYTHING: readonly Attempt[] = HOSTS.flatMap((host) =>
  PORTS.flatMap((port) =>
    ADDRESSES.flatMap((address) => [
      { host, port, address, kind: "bytes" as const, method: "", path: "", plain: false, key: "own" as const },
      ...METHODS.flatMap((method) =>
        PATHS.flatMap((path) =>
          (["absent", "own", "a", "b"] as const).flatMap((key) =>
            [true, false].map((plain) => ({ host, port, address, kind: "http" as const, method, path, plain, key })),
          ),
        ),
      ),
    ]),
  ),
);

describe("networks of random rules", () => {
  it("allow in canonical form what they allowed, and have one form only", () => {
    fc.assert(
      fc.property(networks, tries, (network, some) => {
        const canonical = canonicalNetwork(network);
        expect(canonicalNetwork(canonical)).toEqual(canonical);
        for (const attempt of some) expect(allows(canonical, attempt), show(attempt)).toBe(allows(network, attempt));
      }),
      { numRuns: 3 * RUNS },
    );
  });

  it("meet in exactly what both allow, whichever comes first", () => {
    fc.assert(
      fc.property(lists, lists, tries, (a, b, some) => {
        const met = meetNetwork(a, b, "itself");
        expect(meetNetwork(b, a, "itself")).toEqual(met);
        expect(canonicalNetwork(met)).toEqual(met);
        for (const attempt of some)
          expect(allows(met, attempt), show(attempt)).toBe(allows(a, attempt) && allows(b, attempt));
      }),
      { numRuns: 5 * RUNS },
    );
  });

  it("give a callee what it asks and its caller has, where addresses that are not named are the caller's", () => {
    fc.assert(
      fc.property(networks, networks, tries, (asked, has, some) => {
        const met = meetNetwork(asked, has);
        for (const attempt of some) {
          const asks = allows(asked, attempt, typeof has === "boolean" || asked === true ? {} : { addresses: "any" });
          expect(allows(met, attempt), show(attempt)).toBe(asks && allows(has, attempt));
        }
      }),
      { numRuns: 5 * RUNS },
    );
  });

  it("keep any secret under a policy, and nothing else that it does not allow", () => {
    fc.assert(
      fc.property(lists, networks, tries, (asked, has, some) => {
        const met = meetNetwork(asked, has, "policy");
        for (const attempt of some) {
          const asks = allows(asked, attempt, typeof has === "boolean" ? {} : { addresses: "any" });
          expect(allows(met, attempt), show(attempt)).toBe(asks && allows(has, attempt, { secrets: "any" }));
        }
      }),
      { numRuns: 3 * RUNS },
    );
  });

  it("exceed another exactly if they allow something that it does not", () => {
    let inside = 0;
    fc.assert(
      fc.property(lists, lists, fc.boolean(), (a, b, narrow) => {
        const asked = narrow ? meetNetwork(a, b, "itself") : a;
        const exceeds = networkExcesses(asked, b, "itself").length > 0;
        const more = EVERYTHING.find((attempt) => allows(asked, attempt) && !allows(b, attempt));
        expect(exceeds, JSON.stringify(more)).toBe(more !== undefined);
        if (!exceeds && asked !== false) inside += 1;
      }),
      { numRuns: 120 },
    );
    expect(inside).toBeGreaterThan(20);
  });

  it("never have more than any caller above them", () => {
    fc.assert(
      fc.property(networks, fc.array(networks, { minLength: 1, maxLength: 5 }), tries, (root, chain, some) => {
        const callers: Network[] = [root];
        for (const asked of chain) {
          const caller = callers.at(-1) as Network;
          const child = meetNetwork(asked, caller);
          expect(networkExcesses(child, caller)).toEqual([]);
          // What exceeds nothing is had whole, but for headers that are the caller's.
          if (networkExcesses(asked, caller).length === 0 && asked !== true && asked !== false)
            for (const attempt of some)
              if (attempt.key !== "own" && allows(asked, attempt) && allows(caller, attempt))
                expect(allows(child, attempt), show(attempt)).toBe(true);
          callers.push(child);
        }
        const child = callers.at(-1) as Network;
        for (const attempt of some)
          if (allows(child, attempt))
            expect(
              callers.every((each) => allows(each, attempt)),
              show(attempt),
            ).toBe(true);
      }),
      { numRuns: 3 * RUNS },
    );
  });

  it("are judged as they allow, and the judge names a rule that allows it", () => {
    fc.assert(
      fc.property(lists, tries, (list, some) => {
        const network = canonicalNetwork(list);
        if (typeof network === "boolean") return;
        for (const { host, port, kind, method, path } of some) {
          const request = kind === "bytes" ? { host, port } : { host, port, method, path };
          const judgement = judgeRequest(network, request);
          const allowed = (address: string, plain: boolean, key: Attempt["key"]) =>
            allows(network, { host, port, kind, method, path, address, plain, key });
          const isAllowed = ADDRESSES.some((address) =>
            [true, false].some((plain) => allowed(address, plain, kind === "bytes" ? "own" : "absent")),
          );
          // A block of addresses that holds none of those that are tried here still makes a rule.
          if (isAllowed) expect(judgement.ok, JSON.stringify(request)).toBe(true);
          if (!judgement.ok) continue;
          const { rule } = judgement;
          for (const address of ADDRESSES) {
            const only = { allow: [rule] };
            const plain = isLookedInto(rule) ? port === 80 || rule.tls === false : true;
            const key = rule.set === undefined ? "absent" : (rule.set["x-key"]?.secret as Attempt["key"]);
            expect(addressAllowed(rule, address), address).toBe(
              allows(only, { host, port, kind, method, path, address, plain, key }),
            );
          }
        }
      }),
      { numRuns: 100 },
    );
  });
});

function show(attempt: Attempt): string {
  return JSON.stringify(attempt);
}
