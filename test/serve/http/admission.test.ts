import type { IncomingMessage } from "node:http";
import { describe, expect, it } from "vitest";
import { isLocalRequest } from "../../../src/mcp/http/server.ts";
import {
  checkMeant,
  type Foreign,
  isFurtherName,
  ownNames,
  tellingForeign,
} from "../../../src/serve/http/admission.ts";

const ADDRESS = { kind: "tcp", host: "127.0.0.1", port: 7420 } as const;

function request(hosts: readonly string[], origin?: string): IncomingMessage {
  const rawHeaders = [...hosts.flatMap((host) => ["Host", host]), ...(origin === undefined ? [] : ["Origin", origin])];
  const headers = { host: hosts[0], ...(origin === undefined ? {} : { origin }) };
  return { method: "POST", url: "/v1/runs", headers, rawHeaders } as unknown as IncomingMessage;
}

/** Whether a service with these names takes it. */
function isTaken(further: readonly string[], hosts: readonly string[], origin?: string): boolean {
  try {
    checkMeant(request(hosts, origin), ownNames(ADDRESS, further), () => {});
    return true;
  } catch {
    return false;
  }
}

describe("a service with --host", () => {
  it.each([
    ["https://corral.test", "corral.test", "https://corral.test"],
    ["https://corral.test", "corral.test:443", "https://corral.test"],
    ["https://corral.test", "CORRAL.test", "https://Corral.test:443"],
    ["https://corral.test:8443", "corral.test:8443", "https://corral.test:8443"],
    ["http://corral.test", "corral.test", "http://corral.test"],
    ["corral.test", "corral.test:7420", "http://corral.test:7420"],
    ["https://corral.test", "127.0.0.1:7420", "http://127.0.0.1:7420"],
    ["https://corral.test", "corral.test", undefined],
  ])("%s takes Host %s with Origin %s", (further, host, origin) => {
    expect(isTaken([further], [host], origin)).toBe(true);
  });

  it.each([
    ["https://corral.test", "corral.test", "http://corral.test"],
    ["https://corral.test", "corral.test", "https://corral.test:8443"],
    ["https://corral.test", "corral.test", "https://evil.test"],
    ["https://corral.test", "corral.test", "null"],
    ["https://corral.test", "corral.test", "https://corral.test.evil.test"],
    ["https://corral.test", "corral.test:7420", undefined],
    ["https://corral.test", "evil.test", "https://corral.test"],
    ["https://corral.test", "127.0.0.1:7420", "https://corral.test"],
    ["https://corral.test:8443", "corral.test", "https://corral.test:8443"],
    ["corral.test", "corral.test:7420", "https://corral.test:7420"],
    ["corral.test", "corral.test", undefined],
  ])("%s refuses Host %s with Origin %s", (further, host, origin) => {
    expect(isTaken([further], [host], origin)).toBe(false);
  });

  it("refuses two Hosts and none, as MCP over HTTP does", () => {
    const two = ["127.0.0.1:7420", "127.0.0.1:7420"];
    expect([isTaken([], two), isTaken([], []), isTaken([], two.slice(1))]).toEqual([false, false, true]);
    const isLocal = (hosts: readonly string[]): boolean => isLocalRequest(request(hosts), 7420);
    expect([isLocal(two), isLocal([]), isLocal(two.slice(1))]).toEqual([false, false, true]);
  });

  it.each(["corral.test", "https://a-b.test", "http://a:8080", "https://a:443"])("takes %s as a name", (text) => {
    expect(isFurtherName(text)).toBe(true);
  });

  it.each(["a:80", "https://a:0", "https://a:65536", "https://a/b", "ftp://a", "https://", "https://u@a", "a b", ""])(
    "does not take %j as a name",
    (text) => {
      expect(isFurtherName(text)).toBe(false);
    },
  );
});

it("what is refused is logged once for each name, with what to set, and so many times at most", () => {
  const logged: [object, string][] = [];
  const tell = tellingForeign({ warn: ((about: object, text: string) => logged.push([about, text])) as never }, 3);
  const foreign: Foreign[] = ["a", "a", "b", "c", "d", "e"].map((host) => ({ host }));
  for (const one of [{ host: "x".repeat(10_000), origin: "https://corral.test" }, ...foreign]) tell(one);
  expect(logged.map(([about]) => about)).toEqual([
    { host: "x".repeat(200), origin: "https://corral.test" },
    { host: "a" },
    { host: "b" },
  ]);
  expect(logged[0]?.[1]).toContain("start it with --host and this origin");
  expect(logged[2]?.[1]).toMatch(/--host https:\/\/NAME\[:PORT\].*Further ones are not logged$/);
});
