import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { canonicalNetwork, meetNetwork, networkExcesses } from "../../../src/sandbox/network/network.ts";
import type { Network } from "../../../src/sandbox/network/rule.ts";

const networkExceeds = (asked: Network, has: Network) => networkExcesses(asked, has).length > 0;
const allow = (...entries: string[]): Network => ({ allow: entries.map((to) => ({ to })) });

/** Says by plain comparison whether a network lets one connection out; knows nothing of entries inside entries. */
function lets(network: Network, host: string, port: number): boolean {
  if (typeof network === "boolean") return network;
  return network.allow.some(({ to }) => {
    const [pattern = "", wanted = ""] = to.split(":");
    const hostFits = pattern.startsWith("*.") ? host.endsWith(pattern.slice(1)) : host === pattern;
    return hostFits && (wanted === "*" || Number(wanted) === port);
  });
}

const hosts = ["a.org", "b.a.org", "c.b.a.org", "b.org"];
const ports = [80, 443];
const patterns = fc.constantFrom(...hosts, "*.a.org", "*.b.a.org", "*.org");
const entries = fc.tuple(patterns, fc.constantFrom("80", "443", "*")).map((pair) => pair.join(":"));
const networks: fc.Arbitrary<Network> = fc.oneof(
  { weight: 1, arbitrary: fc.boolean() },
  { weight: 6, arbitrary: fc.array(entries, { maxLength: 4 }).map((list) => allow(...list)) },
);
const everywhere = hosts.flatMap((host) => ports.map((port) => [host, port] as const));

describe("meetNetwork and networkExcesses", () => {
  it("takes an empty list for no network", () => {
    expect(canonicalNetwork(allow())).toBe(false);
    expect(meetNetwork(true, allow())).toBe(false);
    expect(networkExceeds(allow(), false)).toBe(false);
  });

  it("gives what both allow, written one way only", () => {
    expect(meetNetwork(allow("*.a.org:443"), allow("b.a.org:*", "a.org:443"))).toEqual(allow("b.a.org:443"));
    expect(canonicalNetwork(allow("b.org:80", "A.org:*", "a.org:443", "b.org:80"))).toEqual(
      allow("a.org:*", "b.org:80"),
    );
  });

  it("does not take a host for one below itself, nor a port for every port", () => {
    expect(networkExceeds(allow("a.org:443"), allow("*.a.org:443"))).toBe(true);
    expect(networkExceeds(allow("evila.org:443"), allow("*.a.org:443"))).toBe(true);
    expect(networkExceeds(allow("a.org:*"), allow("a.org:443"))).toBe(true);
    expect(networkExceeds(allow("c.b.a.org:443"), allow("*.a.org:443"))).toBe(false);
    expect(networkExceeds(true, allow("a.org:443"))).toBe(true);
  });

  it("lets an entry that is not well formed open nothing", () => {
    expect(networkExceeds(allow("nonsense"), true)).toBe(true);
    expect(meetNetwork(allow("nonsense"), true)).toBe(false);
  });

  it("agrees with connections tried one by one", () => {
    fc.assert(
      fc.property(networks, networks, (a, b) => {
        const met = meetNetwork(a, b);
        const exact = everywhere.every(([host, port]) => {
          return lets(met, host, port) === (lets(a, host, port) && lets(b, host, port));
        });
        const worse = everywhere.some(([host, port]) => lets(a, host, port) && !lets(b, host, port));
        return exact && (!worse || networkExceeds(a, b)) && !networkExceeds(met, a) && !networkExceeds(met, b);
      }),
      { numRuns: 1000 },
    );
  });

  it("is commutative, and changes nothing when met with itself", () => {
    fc.assert(
      fc.property(networks, networks, (a, b) => {
        expect(meetNetwork(a, b)).toEqual(meetNetwork(b, a));
        expect(meetNetwork(a, a)).toEqual(canonicalNetwork(a));
      }),
      { numRuns: 300 },
    );
  });
});
