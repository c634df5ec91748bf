import { describe, expect, it } from "vitest";
import { addressAllowed, allowedText, judgeRequest, rulesFor } from "../../../src/sandbox/network/judge.ts";
import { canonicalNetwork, meetNetwork, networkExcesses } from "../../../src/sandbox/network/network.ts";
import type { AllowedNetwork } from "../../../src/sandbox/network/rule.ts";

const api = { to: "api.example.org:443", methods: ["GET"], paths: ["/repos/*/issues", "/v1/**"] };
const keyed = {
  to: "api.example.org:443",
  methods: ["GET", "POST"],
  paths: ["/v1/messages"],
  set: { "x-api-key": { secret: "key" } },
};
const network: AllowedNetwork = {
  allow: [
    api,
    keyed,
    { to: "*.pkg.example.org:443" },
    { to: "db.example.org:5432", addresses: ["10.1.0.0/16"] },
    { to: "web.example.org:*" },
  ],
};

const ask = (host: string, port: number, method?: string, path?: string) =>
  judgeRequest(network, { host, port, ...(method && { method }), ...(path && { path }) });

describe("rulesFor", () => {
  it("finds the rules of a host in any case and with a dot at its end", () => {
    expect(rulesFor(network, "API.Example.org.", 443)).toEqual([api, keyed]);
    expect(rulesFor(network, "a.b.pkg.example.org", 443)).toHaveLength(1);
    expect(rulesFor(network, "web.example.org", 9)).toHaveLength(1);
  });

  it.each([
    ["pkg.example.org", 443],
    ["xpkg.example.org", 443],
    ["api.example.org", 80],
    ["api.example.org..", 443],
    ["api.example.org\0.pkg.example.org", 443],
    ["api.example.org:443@x.pkg.example.org", 443],
    ["[x].pkg.example.org", 443],
    ["", 443],
  ] as const)("finds none for %j, port %d", (host, port) => {
    expect(rulesFor(network, host, port)).toEqual([]);
  });
});

describe("judgeRequest", () => {
  it("lets a tunnel carry everything", () => {
    expect(ask("x.pkg.example.org", 443)).toMatchObject({ ok: true });
    expect(ask("x.pkg.example.org", 443, "DELETE", "/any/../thing")).toMatchObject({ ok: true });
  });

  it("takes the rule that sets most headers of those that allow the request", () => {
    expect(ask("api.example.org", 443, "GET", "/v1/messages?a=/../b")).toEqual({ ok: true, rule: keyed });
    expect(ask("api.example.org", 443, "GET", "/v1/models")).toEqual({ ok: true, rule: api });
    expect(ask("api.example.org", 443, "POST", "/v1/messages")).toEqual({ ok: true, rule: keyed });
  });

  it("says why, and what is allowed there", () => {
    expect(ask("other.org", 443)).toEqual({
      ok: false,
      reason: "host",
      detail:
        "other.org:443 is not allowed. Allowed: http://api.example.org/ (GET /repos/*/issues /v1/**), http://api.example.org/ (GET POST /v1/messages), *.pkg.example.org:443, db.example.org:5432, web.example.org:*.",
    });
    expect(ask("api.example.org", 443)).toMatchObject({ reason: "tls", detail: /Use http:\/\/api\.example\.org\// });
    expect(ask("api.example.org", 443, "PUT", "/v1/x")).toMatchObject({ reason: "method" });
    expect(ask("api.example.org", 443, "POST", "/v1/models")).toMatchObject({
      reason: "path",
      detail:
        "This path is not allowed for POST to api.example.org:443. Allowed: http://api.example.org/ (GET POST /v1/messages).",
    });
  });

  it.each([
    "/v1/../x",
    "/v1/%2e%2E/x",
    "/v1/..;a/x",
    "/v1//x",
    "/v1/a%2fb",
    "/v1/a%5Cb",
    "/v1/a\\b",
    "/v1/a%00",
    "/v1/",
    "v1/x",
    "/v1/é",
  ])("does not let %j be a path below /v1", (path) => {
    expect(ask("api.example.org", 443, "GET", path)).toMatchObject({ ok: false, reason: "path" });
  });

  it("does not take `*` for a segment that is empty", () => {
    expect(ask("api.example.org", 443, "GET", "/repos/a/issues")).toMatchObject({ ok: true });
    expect(ask("api.example.org", 443, "GET", "/repos/*/issues")).toMatchObject({ ok: true });
    expect(ask("api.example.org", 443, "GET", "/repos//issues")).toMatchObject({ ok: false });
    expect(ask("api.example.org", 443, "GET", "/repos/a/b/issues")).toMatchObject({ ok: false });
  });

  it("allows of a lock file's host only the files that it names", () => {
    const locked: AllowedNetwork = {
      allow: [{ to: "r.org:443", artifacts: [{ path: "/a.tgz", digests: ["sha512-x"] }] }],
    };
    expect(judgeRequest(locked, { host: "r.org", port: 443, method: "GET", path: "/a.tgz?x" })).toMatchObject({
      ok: true,
    });
    expect(judgeRequest(locked, { host: "r.org", port: 443, method: "GET", path: "/b.tgz" })).toMatchObject({
      reason: "path",
    });
    expect(judgeRequest(locked, { host: "r.org", port: 443 })).toMatchObject({ reason: "tls" });
  });
});

describe("addressAllowed", () => {
  it("allows public addresses only, in any form of text", () => {
    const anywhere = { to: "a.org:443" };
    for (const address of ["1.1.1.1", "2606:4700::1111", "172.32.0.1"])
      expect(addressAllowed(anywhere, address), address).toBe(true);
    const kept = [
      "10.0.0.1",
      "127.0.0.1",
      "169.254.169.254",
      "100.64.0.1",
      "172.31.0.1",
      "192.168.1.1",
      "0.0.0.0",
      "224.0.0.1",
      "255.255.255.255",
      "168.63.129.16",
    ];
    const kept6 = [
      "::",
      "::1",
      "::ffff:1.1.1.1",
      "64:ff9b::101:101",
      "2002:101:101::",
      "fe80::1",
      "fd00:ec2::254",
      "ff02::1",
      "2001:db8::1",
      "2001::1",
    ];
    for (const address of [...kept, ...kept6, "fe80::1%eth0", "1.1.1", "01.1.1.1", "", "a.org"])
      expect(addressAllowed(anywhere, address), address).toBe(false);
  });

  it("allows of a rule with addresses only these", () => {
    const rule = { to: "db:5432", addresses: ["10.1.0.0/16", "fd00::/8"] };
    expect(
      ["10.1.255.1", "10.2.0.1", "1.1.1.1", "fd12::1", "::ffff:10.1.0.1"].map((each) => addressAllowed(rule, each)),
    ).toEqual([true, false, false, true, false]);
  });
});

describe("allowedText", () => {
  it("names each place as programs write it", () => {
    expect(
      allowedText({
        allow: [{ to: "a.org:8080", tls: false }, { to: "b.org:80", methods: ["GET"] }, { to: "c.org:22" }],
      }),
    ).toEqual(["http://a.org:8080/", "http://b.org/ (GET)", "c.org:22"]);
  });
});

describe("a refused host that the run may be granted", () => {
  it("is told to be asked for, and no other", () => {
    const dynamic = { within: ["*.example.org:443"], max: 8 };
    const detail = (host: string, port: number): string => {
      const judged = judgeRequest({ allow: [], dynamic }, { host, port });
      return judged.ok ? "" : judged.detail;
    };
    const asked = "The user is asked if this run may reach it: try again in a while.";
    expect(detail("api.example.org", 443)).toBe(`api.example.org:443 is not allowed. Allowed: none. ${asked}`);
    expect(detail("api.example.org", 80)).toBe("api.example.org:80 is not allowed. Allowed: none.");
  });
});

describe("rules of lock files", () => {
  const digest = `sha256-${"A".repeat(43)}=`;
  const packages = { kind: "npm" as const, use: [] };

  it("give way to rules for the index on the same host", () => {
    const files = { to: "a.example:443", methods: ["GET"], artifacts: [{ path: "/**", digests: [digest] }] };
    const index = { to: "a.example:443", methods: ["GET"], paths: ["/simple/a/"] };
    const network = { allow: [files, index] };
    const request = { host: "a.example", port: 443, method: "GET" };
    expect(judgeRequest(network, { ...request, path: "/simple/a/" })).toEqual({ ok: true, rule: index });
    expect(judgeRequest(network, { ...request, path: "/simple/b/" })).toEqual({ ok: true, rule: files });
  });

  it("take the index of a package of a scope as npm writes it, and nothing else that is escaped", () => {
    const rule = { to: "a.example:443", methods: ["GET"], paths: ["/npm/@s/a"], packages };
    const ok = (path: string, each: typeof rule | Omit<typeof rule, "packages"> = rule) =>
      judgeRequest({ allow: [each] }, { host: "a.example", port: 443, method: "GET", path }).ok;
    expect(ok("/npm/@s%2fa")).toBe(true);
    expect(ok("/npm/@s%2Fa?write=true")).toBe(true);
    for (const path of [
      "/npm%2f@s/a",
      "/npm/@s%2fa%2fb",
      "/npm/@s%2f..",
      "/npm/x%2fa",
      "/npm/@s%2fa/b",
      "/npm/@s%252fa",
    ])
      expect(ok(path), path).toBe(false);
    const { packages: _, ...other } = rule;
    expect(ok("/npm/@s%2fa", other)).toBe(false);
  });

  it("are below the path of a preset, or exceed it", () => {
    const preset = { allow: [{ to: "a.example:443", methods: ["GET"], paths: ["/npm/**"] }] };
    const locked = (path: string) => ({
      allow: [{ to: "a.example:443", methods: ["GET"], artifacts: [{ path, digests: [digest] }] }],
    });
    expect(networkExcesses(locked("/npm/a.tgz"), preset)).toEqual([]);
    expect(networkExcesses(locked("/npm/**"), preset)).toEqual([]);
    expect(networkExcesses(locked("/other/a.tgz"), preset)).toMatchObject([{ kind: "rule", term: "paths" }]);
    expect(meetNetwork(locked("/npm/a.tgz"), preset)).toEqual(locked("/npm/a.tgz"));
    expect(meetNetwork(locked("/**"), preset)).toEqual(locked("/npm/**"));
  });

  it("take seconds of a processor to compare if they have thousands of paths and digests", () => {
    const paths = Array.from({ length: 5000 }, (_, index) => `/p${index}`);
    const artifacts = Array.from({ length: 20_000 }, (_, index) => ({ path: `/p/-/${index}.tgz`, digests: [digest] }));
    const many = Array.from({ length: 100_000 }, (_, index) => `sha256-${index}`);
    const allow = [
      { to: "a.example:443", paths, packages },
      { to: "a.example:443", artifacts, packages },
      { to: "b.example:443", artifacts: [{ path: "/**", digests: many }] },
    ];
    const start = process.threadCpuUsage();
    const network = canonicalNetwork({ allow });
    expect(networkExcesses(network, network)).toEqual([]);
    expect(meetNetwork(network, network)).toEqual(network);
    const { user, system } = process.threadCpuUsage(start);
    expect((user + system) / 1000).toBeLessThan(5000);
  });
});
