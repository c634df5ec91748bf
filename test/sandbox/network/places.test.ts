import { describe, expect, it } from "vitest";
import { networkEnvironment } from "../../../src/isolation/plan/plan.ts";
import { networkPlaces, PROXY } from "../../../src/sandbox/network/rule.ts";

describe("the places of an allow list in a cell", () => {
  it("are an address for each name, and the ports at which it is reached", () => {
    const { names, listeners } = networkPlaces({
      allow: [{ to: "a.test:443" }, { to: "a.test:80" }, { to: "b.test:443", methods: ["GET"] }],
    });
    expect(names).toEqual([
      { name: "a.test", address: "127.88.1.1" },
      { name: "b.test", address: "127.88.1.2" },
    ]);
    expect(listeners.map(({ address, port, host }) => `${address}:${port} ${host}`)).toEqual([
      "127.88.1.1:443 a.test",
      "127.88.1.1:80 a.test",
      "127.88.1.2:80 b.test",
      "127.88.1.2:443 b.test",
    ]);
  });

  it("lead a service of the host at loopback through the proxy: these names are the cell's own", () => {
    const allow = [{ to: "127.0.0.1:8080", addresses: ["127.0.0.1/32"] }, { to: "localhost:8081" }];
    expect(networkPlaces({ allow })).toEqual({ names: [], listeners: [PROXY] });
    const network = { allow };
    const planned = { rules: [], ...networkPlaces(network), proxy: true };
    expect(networkEnvironment(planned, network).NO_PROXY).toBe("::1");
    const other = { allow: [{ to: "*.example.org:443" }] };
    expect(networkEnvironment({ rules: [], ...networkPlaces(other), proxy: true }, other).NO_PROXY).toBe(
      "localhost,127.0.0.1,::1",
    );
  });

  it("stay where they are when more is granted: what is new comes after them", () => {
    const before = networkPlaces({ allow: [{ to: "m.test:443" }, { to: "z.test:443" }] });
    const allow = ["a.test:443", "m.test:443", "m.test:80", "z.test:443"].map((to) => ({ to }));
    const after = networkPlaces({ allow }, before);
    expect(after.names).toEqual([...before.names, { name: "a.test", address: "127.88.1.3" }]);
    expect(after.listeners.slice(0, 2)).toEqual(before.listeners);
    expect(after.listeners.slice(2).map(({ address, port, host }) => [address, port, host])).toEqual([
      ["127.88.1.3", 443, "a.test"],
      ["127.88.1.1", 80, "m.test"],
    ]);
    // A name that was revoked keeps its address: another one never gets it.
    expect(networkPlaces({ allow: [{ to: "b.test:443" }] }, after).names.at(-1)).toEqual({
      name: "b.test",
      address: "127.88.1.4",
    });
  });

  it("hold the proxy for a worker that may be granted hosts, though it has none yet", () => {
    const network = { allow: [], dynamic: { within: ["*.example.org:443"], max: 8 } };
    expect(networkPlaces(network)).toEqual({ names: [], listeners: [PROXY] });
    expect(networkPlaces({ allow: [] }).listeners).toEqual([]);
  });
});
