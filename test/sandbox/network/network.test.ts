import { describe, expect, it } from "vitest";
import { canonicalNetwork, meetNetwork, networkExcesses } from "../../../src/sandbox/network/network.ts";
import { type AllowedNetwork, type Network, type NetworkRule, parseTarget } from "../../../src/sandbox/network/rule.ts";

const allow = (...rules: (string | NetworkRule)[]): AllowedNetwork => ({
  allow: rules.map((rule) => (typeof rule === "string" ? { to: rule } : rule)),
});
const to = "a.org:443";
const key = { "x-key": { secret: "a" } };

/** `a.org:443 methods`: each rule that exceeds, and in what. */
function excesses(asked: Network, has: Network, ceiling: "caller" | "policy" = "caller"): string[] {
  return networkExcesses(asked, has, ceiling).map((excess) => {
    if (excess.kind === "rule") return `${excess.rule.to} ${excess.term}`;
    return excess.kind === "limit" ? excess.limit : excess.kind === "dynamic" ? `ask ${excess.within}` : excess.kind;
  });
}

describe("canonicalNetwork", () => {
  it("takes an empty list for no network", () => {
    expect(canonicalNetwork(allow())).toBe(false);
    expect(meetNetwork(true, allow())).toBe(false);
    expect(networkExcesses(allow(), false)).toEqual([]);
  });

  it("writes each rule one way only, and none that another includes", () => {
    expect(canonicalNetwork(allow("b.org:80", "A.org:*", to, "b.org:80"))).toEqual(allow("a.org:*", "b.org:80"));
    const rule = {
      to: "A.org.:443",
      methods: ["post", "GET"],
      paths: ["/b/**", "/b/c", "/a"],
      addresses: ["10.0.0.0/9", "10.128.0.0/9"],
    };
    expect(canonicalNetwork(allow(rule))).toEqual(
      allow({ to, methods: ["GET", "POST"], paths: ["/a", "/b/**"], addresses: ["10.0.0.0/8"] }),
    );
    const set = { "X-Key": { secret: "a" }, "A-Key": { secret: "b" } };
    expect(canonicalNetwork(allow({ to: "a.org:80", tls: false, set }))).toEqual(
      allow({ to: "a.org:80", set: { "a-key": { secret: "b" }, "x-key": { secret: "a" } } }),
    );
    expect(canonicalNetwork(allow({ to: "a.org:80", tls: false }))).toEqual(allow({ to: "a.org:80", tls: false }));
  });

  it("keeps a rule that sets a header beside the tunnel that includes its requests", () => {
    expect(canonicalNetwork(allow(to, { to, methods: ["GET"], set: key }, { to, methods: ["GET"] }))).toEqual(
      allow({ to, methods: ["GET"], set: key }, to),
    );
  });

  it("keeps one of two rules that mean the same", () => {
    const [whole, parts] = [
      { to, paths: ["/a/**"] },
      { to, paths: ["/a/*", "/a/*/", "/a/*/**"] },
    ];
    expect(canonicalNetwork(allow(whole, parts))).toEqual(allow(parts));
  });

  it("keeps the label of a preset, from which the environment is made", () => {
    const packages = { kind: "npm", use: [] } as const;
    expect(canonicalNetwork(allow(to, { to, methods: ["GET"], packages }))).toEqual(
      allow({ to, methods: ["GET"], packages }, to),
    );
    expect(canonicalNetwork(allow({ to, methods: ["GET"] }, { to, methods: ["GET"], packages }))).toEqual(
      allow({ to, methods: ["GET"], packages }),
    );
  });

  it.each([
    ["no method", { to, methods: [] }],
    ["no path", { to, paths: [] }],
    ["only paths that are none", { to, paths: ["a", "/a/../b"] }],
    ["no address", { to, addresses: [] }],
    ["only addresses that are none", { to, addresses: ["a", "1.2.3.4.5"] }],
    ["no file", { to, artifacts: [] }],
    ["a file that no digest accepts", { to, artifacts: [{ path: "/a", digests: [] }] }],
    ["no host", { to: "nonsense" }],
  ])("has no rule with %s", (_, rule) => {
    expect(canonicalNetwork(allow(rule))).toBe(false);
    expect(excesses(allow(rule), true)).toEqual([`${rule.to} to`]);
  });
});

describe("networkExcesses", () => {
  it("does not take a host for one below itself, nor a port for every port", () => {
    expect(excesses(allow(to, "b.a.org:443"), allow("*.a.org:443"))).toEqual([`${to} to`]);
    expect(excesses(allow("evila.org:443", "c.b.a.org:443"), allow("*.a.org:443"))).toEqual(["evila.org:443 to"]);
    expect(excesses(allow("a.org:*"), allow(to))).toEqual(["a.org:* to"]);
    expect(excesses(true, allow(to))).toEqual(["all"]);
  });

  it("names each rule that exceeds, and the term", () => {
    const has = allow(
      { to, methods: ["GET"], paths: ["/a/**"], addresses: ["10.0.0.0/8"], set: key },
      { to: "plain.org:8080", tls: false },
      { to: "lock.org:443", artifacts: [{ path: "/a.tgz", digests: ["sha512-a"] }] },
    );
    const same = { to, methods: ["GET"], paths: ["/a/b"] };
    const lock = "lock.org:443";
    const asked = allow(
      to,
      { ...same, methods: ["GET", "PUT"] },
      { to, methods: ["GET"] },
      { ...same, paths: ["/a/b", "/c"] },
      { ...same, addresses: ["10.1.0.0/16", "11.0.0.0/8"] },
      { ...same, set: { "x-key": { secret: "b" } } },
      { ...same, set: { ...key, other: { secret: "a" } } },
      { to: "plain.org:8080", methods: ["GET"] },
      { to: lock, artifacts: [{ path: "/a.tgz", digests: ["sha512-a", "sha512-b"] }] },
      { to: lock, artifacts: [{ path: "/b.tgz", digests: ["sha512-a"] }] },
      "b.org:443",
    );
    expect(excesses(asked, has)).toEqual([
      `${to} tunnel`,
      `${to} methods`,
      `${to} paths`,
      `${to} paths`,
      `${to} addresses`,
      `${to} set`,
      `${to} set`,
      "plain.org:8080 tls",
      `${lock} artifacts`,
      `${lock} artifacts`,
      "b.org:443 to",
    ]);
  });

  it("takes the rules of the caller together", () => {
    const has = allow({ to, methods: ["GET"], paths: ["/a/**"] }, { to, methods: ["POST"], paths: ["/a/b", "/a/*/c"] });
    expect(excesses(allow({ to, methods: ["GET", "POST"], paths: ["/a/b"] }), has)).toEqual([]);
    expect(excesses(allow({ to, methods: ["GET", "POST"], paths: ["/a/c"] }), has)).toEqual([`${to} paths`]);
    const below = [["/a/*"], ["/a/*/"], ["/a/*/**"]].map((paths) => ({ to, paths }));
    expect(excesses(allow({ to, paths: ["/a/**"] }), allow(...below))).toEqual([]);
    expect(excesses(allow({ to, paths: ["/a/**"] }), allow(...below.slice(1)))).toEqual([`${to} paths`]);
    const halves = ["10.0.0.0/9", "10.128.0.0/10", "10.192.0.0/10"].map((block) => ({ to, addresses: [block] }));
    expect(excesses(allow({ to, addresses: ["10.0.0.0/8"] }), allow(...halves))).toEqual([]);
    expect(excesses(allow({ to, addresses: ["10.0.0.0/8"] }), allow(...halves.slice(1)))).toEqual([`${to} addresses`]);
  });

  it("lets addresses and files that are not named be the caller's", () => {
    const artifacts = [{ path: "/a.tgz", digests: ["sha512-a"] }];
    const has = allow({ to: "db.org:5432", addresses: ["10.0.0.0/8"] }, { to, artifacts });
    expect(excesses(allow("db.org:5432", { to, methods: ["GET"] }), has)).toEqual([]);
    expect(meetNetwork(allow("db.org:5432", { to, methods: ["GET"] }), has)).toEqual(
      allow({ to, methods: ["GET"], artifacts }, { to: "db.org:5432", addresses: ["10.0.0.0/8"] }),
    );
  });

  it("knows the files of both by their paths, in any list of some thousands", () => {
    const files = Array.from({ length: 5000 }, (_, index) => ({ path: `/${index}.tgz`, digests: [`sha512-${index}`] }));
    const any = { path: "/**", digests: ["sha512-1", "sha512-2"] };
    expect(
      meetNetwork(allow({ to, artifacts: files.slice(0, 4000) }), allow({ to, artifacts: files.slice(3999) })),
    ).toEqual(allow({ to, artifacts: [files[3999] as (typeof files)[0]] }));
    expect(excesses(allow({ to, artifacts: files }), allow({ to, artifacts: files }))).toEqual([]);
    expect(excesses(allow({ to, artifacts: files.slice(1, 3) }), allow({ to, artifacts: [any] }))).toEqual([]);
    expect(excesses(allow({ to, artifacts: [any] }), allow({ to, artifacts: files }))).toEqual([`${to} artifacts`]);
  });

  it("lets private addresses be named only where the caller has them", () => {
    const asked = allow({ to, addresses: ["10.1.0.0/16"] });
    expect(excesses(asked, allow(to))).toEqual([`${to} addresses`]);
    expect(excesses(asked, true)).toEqual([]);
    expect(excesses(allow({ to, addresses: ["8.8.8.0/24"] }), allow(to))).toEqual([]);
    for (const loopback of ["127.0.0.1/32", "::1/128", "0.0.0.0/0", "::ffff:127.0.0.1/128"])
      expect(excesses(allow({ to, addresses: [loopback] }), true), loopback).toEqual([`${to} addresses`]);
  });

  it("lets a secret be set only if the caller sets it, and under any policy", () => {
    const asked = allow({ to, set: key });
    for (const has of [true, allow(to), allow({ to, methods: ["GET"] })] as const)
      expect(excesses(asked, has).length, JSON.stringify(has)).toBe(1);
    for (const has of [true, allow(to)] as const) {
      expect(excesses(asked, has, "policy")).toEqual([]);
      expect(meetNetwork(asked, has, "policy")).toEqual(asked);
    }
  });

  it("holds limits and hosts to ask for against the caller's", () => {
    const has = {
      ...allow(to),
      limits: { uploadBytes: 10, requests: 5 },
      dynamic: { within: ["*.b.org:443"], max: 2 },
    };
    const asked = {
      ...allow(to),
      limits: { uploadBytes: 11, requests: 5, connections: 9 },
      dynamic: { within: [to, "x.b.org:443", "c.org:1"], max: 3 },
    };
    expect(excesses(asked, has)).toEqual(["uploadBytes", "ask c.org:1", "dynamicMax"]);
    expect(excesses({ ...allow(to), limits: { uploadBytes: 99 } }, true)).toEqual([]);
    expect(meetNetwork(asked, has)).toEqual({
      ...allow(to),
      limits: { uploadBytes: 10, requests: 5, connections: 9 },
      dynamic: { within: [to, "x.b.org:443"], max: 2 },
    });
    expect(meetNetwork(allow(to), has)).toEqual({ ...allow(to), limits: { uploadBytes: 10, requests: 5 } });
    const onlyAsks = { allow: [], dynamic: { within: ["x.b.org:443"], max: 1 } };
    expect(meetNetwork(onlyAsks, has)).toEqual({ ...onlyAsks, limits: { uploadBytes: 10, requests: 5 } });
  });
});

describe("meetNetwork", () => {
  it("gives what both allow, written one way only", () => {
    expect(meetNetwork(allow("*.a.org:443"), allow("b.a.org:*", to))).toEqual(allow("b.a.org:443"));
  });

  it("closes a header that only one of both sets", () => {
    const closed = { to, methods: ["GET"], without: ["x-key"] };
    expect(meetNetwork(allow({ to, methods: ["GET"] }), allow({ to, set: key }))).toEqual(allow(closed));
    expect(excesses(allow({ to, methods: ["GET"], set: key }), allow(closed))).toEqual([`${to} set`]);
    expect(meetNetwork(allow(closed), allow(closed))).toEqual(allow(closed));
  });

  it("lets a tunnel carry both forms of HTTP, and joins two that differ only at port 80", () => {
    const plain = { to: "a.org:8080", tls: false as const };
    expect(meetNetwork(allow(plain), allow("a.org:8080"))).toEqual(allow(plain));
    const everyPort = allow({ to: "a.org:*", tls: false as const });
    expect(excesses(everyPort, allow({ to: "a.org:*", paths: ["/a"] }))).toEqual(["a.org:* tls"]);
    expect(meetNetwork(everyPort, allow({ to: "a.org:*", paths: ["/a"] }))).toEqual(
      allow({ to: "a.org:80", paths: ["/a"] }),
    );
  });
});

describe("parseTarget", () => {
  it("reads names, addresses, wildcards and ports", () => {
    expect(parseTarget("API.example.org:443")).toEqual({
      ok: true,
      target: { host: "api.example.org", wildcard: false, port: 443 },
    });
    expect(parseTarget("*.example.org:*")).toEqual({
      ok: true,
      target: { host: "example.org", wildcard: true, port: null },
    });
    expect(parseTarget("[::1]:80")).toMatchObject({ ok: true, target: { host: "[::1]" } });
  });

  it.each([
    "example.org",
    "example.org:0",
    "example.org:70000",
    "example.org:080",
    "*:443",
    "a.*.org:1",
    "-a:1",
    ":80",
    "https://example.org:443",
    "::1:80",
    "a b:1",
    "*.[::1]:80",
  ])("refuses %j", (raw) => {
    expect(parseTarget(raw)).toMatchObject({ ok: false });
  });
});
