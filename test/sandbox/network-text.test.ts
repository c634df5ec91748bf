import { describe, expect, it } from "vitest";
import { NETWORK_TERMS, type NetworkExcess, type NetworkRule, shownRule } from "../../src/sandbox/network/rule.ts";
import { excessText, networkText, networkTexts, ruleText } from "../../src/sandbox/wording.ts";

const whole: NetworkRule = {
  to: "a.org:443",
  methods: ["GET", "POST"],
  paths: ["/v1/**"],
  set: { "x-api-key": { secret: "example" } },
  without: ["x-user"],
  addresses: ["10.1.0.0/16"],
  tls: false,
  packages: { kind: "npm", use: [] },
  artifacts: [{ path: "/a", digests: ["sha512-a"] }],
};

describe("the text of a rule", () => {
  it("has every term", () => {
    expect(ruleText({ to: "a.org:443" })).toBe("a.org:443");
    expect(ruleText(shownRule(whole))).toBe(
      "a.org:443 (GET POST, /v1/**, 1 files of lock files, sets x-api-key from secret example, without x-user, at 10.1.0.0/16, plain HTTP, packages npm)",
    );
  });
});

describe("the text of a network", () => {
  it("has rules, limits and what may be asked for", () => {
    const network = {
      allow: [{ to: "a.org:443" }],
      limits: { uploadBytes: 1024, downloadBytes: 2048, requests: 5, connections: 2 },
      dynamic: { within: ["*.b.org:443"], max: 8 },
    };
    expect(networkTexts(network)).toEqual([
      "a.org:443",
      "at most upload 1 KiB, download 2 KiB, 5 requests, 2 connections at once",
      "may ask for *.b.org:443 (at most 8)",
    ]);
    expect([true, false].map(networkText)).toEqual(["every host", "none"]);
  });

  it("is bounded", () => {
    const allow = Array.from({ length: 100 }, (_, index) => ({ to: `h${index}:1` }));
    expect(networkText({ allow })).toMatch(/h19:1, and 80 more$/);
  });
});

describe("the text of what exceeds", () => {
  it("names what is more, in each term", () => {
    const texts = NETWORK_TERMS.map((term) => excessText({ kind: "rule", rule: whole, term }));
    expect(texts).toEqual([
      "a.org:443",
      "a.org:443 as a tunnel (its requests are looked into: name `methods` or `paths`)",
      "a.org:443 without TLS",
      "a.org:443 with GET POST",
      "a.org:443 with /v1/**",
      "a.org:443 with other files than those of the lock file",
      "a.org:443 at 10.1.0.0/16",
      "a.org:443 with x-api-key from secret example",
    ]);
    const every: NetworkExcess[] = [
      { kind: "all" },
      { kind: "rule", rule: { to: "a.org:443" }, term: "methods" },
      { kind: "rule", rule: { to: "a.org:443" }, term: "paths" },
      { kind: "limit", limit: "uploadBytes", asked: 2048, has: 1024 },
      { kind: "dynamic", within: "b.org:443" },
      { kind: "dynamicMax", asked: 9, has: 8 },
    ];
    expect(every.map(excessText)).toEqual([
      "every host",
      "a.org:443 with every method",
      "a.org:443 with every path",
      "upload 2 KiB",
      "b.org:443 (to ask for)",
      "9 hosts to ask for",
    ]);
  });
});
