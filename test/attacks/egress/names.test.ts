import { expect } from "vitest";
import { type Attack, allowed, attacked, refused, type Tried, type World } from "./arena.ts";
import { connectTo, get, raw } from "./shapes.ts";
import type { Sites } from "./sites.ts";

/*
 * The name that a client asks for. `wild.test` is allowed only below itself, by the proxy; `exact.test` has an address in the
 * cell. Every other name leads to a host of the test that waits for visitors, so that a name that gets through is seen.
 */

async function open(sites: Sites): Promise<World> {
  const wild = await sites.open("wild", { ports: { 80: { kind: "http" }, 7000: { kind: "echo" } } });
  const other = await sites.open("other", { ports: { 80: { kind: "http" }, 7000: { kind: "echo" } } });
  return {
    network: {
      allow: [
        { to: "*.wild.test:7000", addresses: [`${wild.address}/32`] },
        { to: "*.wild.test:80", addresses: [`${wild.address}/32`] },
        { to: "exact.test:7000", addresses: [`${wild.address}/32`] },
      ],
    },
    answers: {
      "a.wild.test": [wild.address],
      "b.a.wild.test": [wild.address],
      "exact.test": [wild.address],
      "": [other.address],
    },
    otherwise: [other.address],
  };
}

/** Nothing arrives, and nothing is looked up that no rule allows. */
const unknown = (tried: Tried): void => {
  refused(tried);
  expect(tried.asked.filter((name) => !/^([ab]\.)*wild\.test$|^exact\.test$/.test(name))).toEqual([]);
};

const OTHER_NAMES: Readonly<Record<string, string>> = {
  "another name": "other.test:7000",
  "the parent of a wildcard": "wild.test:7000",
  "a name that only ends like the wildcard": "evilwild.test:7000",
  "the wildcard's name in front of another": "a.wild.test.evil.test:7000",
  "another port": "a.wild.test:7001",
  "port 0": "a.wild.test:0",
  "a port beyond 65535 that wraps around": `a.wild.test:${65_536 + 7000}`,
  "a port with a zero in front": "a.wild.test:07000",
  "a port with a sign": "a.wild.test:+7000",
  "a port in hexadecimal": "a.wild.test:0x1b58",
  "no port": "a.wild.test",
  "an empty port": "a.wild.test:",
  "two ports": "a.wild.test:7000:7000",
  "userinfo that looks like the allowed host": "a.wild.test:7000@other.test:7000",
  "userinfo in front of the allowed host": "other.test@a.wild.test:7000",
  "a NUL behind another name": "other.test\0.wild.test:7000",
  "a NUL behind the allowed name": "a.wild.test\0.other.test:7000",
  "a NUL as an escape": "other.test%00.wild.test:7000",
  "an escaped dot": "other%2etest:7000",
  "an escaped slash": "other.test%2f.wild.test:7000",
  "a slash": "other.test/.wild.test:7000",
  "a backslash": "other.test\\.wild.test:7000",
  "a question mark": "other.test?.wild.test:7000",
  "a number sign": "other.test#.wild.test:7000",
  "an empty label": "a..wild.test:7000",
  "a dot in front": ".wild.test:7000",
  "two dots at the end": "a.wild.test..:7000",
  "a wildcard": "*.wild.test:7000",
  "a very long name": `${"a.".repeat(4000)}wild.test:7000`,
  "a label of 64 characters": `${"a".repeat(64)}.wild.test:7000`,
  "a letter of another script": "a.wi\xd0\x86d.test:7000",
  "full-width letters": "\xef\xbd\x81.wild.test:7000",
  "a soft hyphen": "other.te\xc2\xadst.wild.test:7000",
  "an ideographic full stop": "a.wild\xe3\x80\x82test:7000",
  "a tab behind the name": "a.wild.test\t:7000",
  "the address of the host": "127.0.0.1:7000",
  "an address as one number": "2130706433:7000",
  "an address in hexadecimal": "0x7f.1:7000",
  "an address in octal": "0177.0.0.1:7000",
  "a short address": "127.1:7000",
  "an address that ends like the wildcard": "127.0.0.1.wild.test.:7001",
  "an IPv6 address": "[::1]:7000",
  "IPv4 in IPv6": "[::ffff:127.0.0.1]:7000",
  "a zone": "[fe80::1%25lo]:7000",
  "IPv6 without brackets": "::1:7000",
  "an open bracket": "[::1:7000",
  "the proxy itself": "127.88.0.1:3128",
  localhost: "localhost:7000",
  "the name of the orchestrator in other containers": "host.docker.internal:7000",
};

const absolute = (url: string, host: string): string =>
  `GET ${url} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`;
const PROXY = { host: "127.88.0.1", port: 3128 };

attacked("a name that is not allowed", open, [
  ...Object.entries(OTHER_NAMES).map(
    ([title, authority]): Attack => ({
      title: `${title}: CONNECT`,
      attempt: (canary) => connectTo(authority, ["send", canary]),
      check: unknown,
    }),
  ),
  {
    title: "CONNECT with the bytes in the same segment",
    attempt: (canary) => raw(PROXY, `CONNECT other.test:7000 HTTP/1.1\r\nHost: a.wild.test:7000\r\n\r\n${canary}`),
    check: unknown,
  },
  {
    title: "CONNECT whose Host is allowed",
    attempt: (canary) =>
      raw(
        PROXY,
        "CONNECT other.test:7000 HTTP/1.1\r\nHost: a.wild.test:7000\r\n\r\n",
        ["until", "\r\n\r\n"],
        ["send", canary],
      ),
    check: unknown,
  },
  {
    title: "CONNECT to an allowed host, whose Host is not",
    attempt: (canary) =>
      raw(
        PROXY,
        "CONNECT a.wild.test:7000 HTTP/1.1\r\nHost: other.test:7000\r\n\r\n",
        ["until", "\r\n\r\n"],
        ["send", canary],
      ),
    check: ({ arrived, canary, asked }) => {
      expect(arrived("other")).not.toContain(canary);
      expect(asked).not.toContain("other.test");
    },
  },
  {
    title: "CONNECT with a body",
    attempt: (canary) =>
      raw(PROXY, `CONNECT other.test:7000 HTTP/1.1\r\nHost: other.test:7000\r\nContent-Length: 20\r\n\r\n${canary}`),
    check: unknown,
  },
  {
    title: "another name as an absolute URL",
    attempt: (canary) => raw(PROXY, absolute(`http://other.test/${canary}`, "other.test")),
    check: unknown,
  },
  {
    title: "another name as an absolute URL with an allowed Host",
    attempt: (canary) => raw(PROXY, absolute(`http://other.test/${canary}`, "a.wild.test")),
    check: unknown,
  },
  {
    title: "an allowed URL with another Host",
    attempt: (canary) => raw(PROXY, absolute(`http://a.wild.test/${canary}`, "other.test")),
    check: unknown,
  },
  {
    title: "userinfo in an absolute URL",
    attempt: (canary) => raw(PROXY, absolute(`http://a.wild.test@other.test/${canary}`, "a.wild.test")),
    check: unknown,
  },
  {
    title: "a backslash in an absolute URL",
    attempt: (canary) => raw(PROXY, absolute(`http://other.test\\@a.wild.test/${canary}`, "a.wild.test")),
    check: unknown,
  },
  {
    title: "an https URL in the clear",
    attempt: (canary) => raw(PROXY, absolute(`https://a.wild.test/${canary}`, "a.wild.test")),
    check: unknown,
  },
  {
    title: "an ftp URL",
    attempt: (canary) => raw(PROXY, absolute(`ftp://a.wild.test/${canary}`, "a.wild.test")),
    check: unknown,
  },
  {
    title: "a path alone at the proxy",
    attempt: (canary) => raw(PROXY, get("a.wild.test", `/${canary}`)),
    check: unknown,
  },
  {
    title: "a loop through the proxy",
    attempt: (canary) => raw(PROXY, absolute(`http://127.88.0.1:3128/${canary}`, "127.88.0.1:3128")),
    check: unknown,
  },
  {
    title: "a second request at the proxy to another name",
    attempt: (canary) =>
      raw(
        PROXY,
        `GET http://a.wild.test/first HTTP/1.1\r\nHost: a.wild.test\r\n\r\n${absolute(`http://other.test/${canary}`, "other.test")}`,
      ),
    check: ({ arrived, canary, asked, outcome }) => {
      expect(arrived()).not.toContain(canary);
      expect(asked).not.toContain("other.test");
      expect(outcome.end).not.toBe("open");
    },
  },
  {
    title: "a name of the list, by the cell's own names, at another port",
    attempt: (canary) => raw({ host: "exact.test", port: 7001 }, canary),
    check: unknown,
  },
  {
    title: "a name that the cell does not know, without the proxy",
    attempt: (canary) => raw({ host: "other.test", port: 7000 }, canary),
    check: unknown,
  },
  {
    title: "a host that is allowed: by its name",
    attempt: (canary) => raw({ host: "exact.test", port: 7000 }, `${canary}\n`, ["end"]),
    check: allowed,
  },
  {
    title: "a host that is allowed: by CONNECT",
    attempt: (canary) => connectTo("a.wild.test:7000", ["send", `${canary}\n`], ["end"]),
    check: allowed,
  },
  {
    title: "a host that is allowed: in capitals and with a dot at the end",
    attempt: (canary) => connectTo("B.A.WILD.Test.:7000", ["send", `${canary}\n`], ["end"]),
    check: allowed,
  },
  {
    title: "a host that is allowed: as an absolute URL",
    attempt: (canary) => raw(PROXY, absolute(`http://a.wild.test/${canary}`, "a.wild.test")),
    check: allowed,
  },
]);
