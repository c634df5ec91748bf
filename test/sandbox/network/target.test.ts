import { describe, expect, it } from "vitest";
import { parseTarget } from "../../../src/sandbox/network/rule.ts";

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
