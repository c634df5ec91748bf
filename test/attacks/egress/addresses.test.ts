import { networkInterfaces } from "node:os";
import { expect } from "vitest";
import { type Attack, allowed, attacked, refused, type Tried, type World } from "./arena.ts";
import { connectTo, raw } from "./shapes.ts";
import type { Sites } from "./sites.ts";

/* What an allowed name leads to. A name may be in the hands of the attacker; the addresses that it leads to are judged. */

/** The most that a name of an attacker can lead to, without `addresses`. A name for each. */
const NOT_PUBLIC: Readonly<Record<string, readonly string[]>> = {
  "this machine": ["127.0.0.1"],
  "this machine, by another loopback address": ["127.8.9.10"],
  "this machine, by IPv6": ["::1"],
  "no address": ["0.0.0.0"],
  "no address of IPv6": ["::"],
  "the metadata of clouds": ["169.254.169.254"],
  "the metadata of a cloud, by IPv6": ["fd00:ec2::254"],
  "the metadata of Azure": ["168.63.129.16"],
  "the private network 10/8": ["10.0.0.1"],
  "the private network 172.16/12": ["172.31.255.255"],
  "the private network 192.168/16": ["192.168.1.1"],
  "the private networks of IPv6": ["fc00::1"],
  "a provider's network": ["100.64.0.1"],
  "the link, by IPv6": ["fe80::1"],
  "the link, with a zone": ["fe80::1%lo"],
  multicast: ["224.0.0.1"],
  "multicast of IPv6": ["ff02::1"],
  broadcast: ["255.255.255.255"],
  "a reserved address": ["240.0.0.1"],
  "IPv4 in IPv6": ["::ffff:127.0.0.1"],
  "a private address in IPv6": ["::ffff:10.0.0.1"],
  "IPv4 in IPv6, in hexadecimal": ["::ffff:7f00:1"],
  "IPv4 in IPv6, the old form": ["::127.0.0.1"],
  NAT64: ["64:ff9b::7f00:1"],
  "6to4": ["2002:7f00:1::"],
  Teredo: ["2001:0:7f00:1::"],
  documentation: ["192.0.2.1", "2001:db8::1"],
  "a text that is no address": ["localhost"],
  "a short form": ["127.1"],
  "an octal form": ["0177.0.0.1"],
  "a number": ["2130706433"],
  "an address and a port": ["127.0.0.1:7000"],
  "an empty text": [""],
  nothing: [],
};

const hostOf = (index: number): string => `n${index}.addresses.test`;

const OWN = Object.values(networkInterfaces())
  .flatMap((each) => each ?? [])
  .filter(({ internal, family }) => !internal && family === "IPv4")
  .map(({ address }) => address);

async function open(sites: Sites): Promise<World> {
  const good = await sites.open("good", { ports: { 7000: { kind: "echo" } } });
  const bad = await sites.open("bad", { ports: { 7000: { kind: "echo" } } });
  const silent = await sites.open("silent", { ports: {} });
  const only = [`${good.address}/32`, `${silent.address}/32`];
  const names = Object.entries(NOT_PUBLIC).map(([, addresses], index) => [hostOf(index), addresses] as const);
  return {
    network: {
      allow: [
        ...names.map(([name]) => ({ to: `${name}:7000` })),
        { to: "own.test:7000" },
        ...["mixed.test", "reversed.test", "dead.test", "rebound.test", "many.test", "failing.test", "v6.test"].map(
          (name) => ({
            to: `${name}:7000`,
            addresses: only,
          }),
        ),
        { to: "*.wild.test:7000", addresses: only },
        { to: "*.public.test:7000" },
        { to: "[::1]:7000", addresses: only },
        { to: "127.0.0.1:7000" },
      ],
      limits: { connections: 200 },
    },
    answers: {
      ...Object.fromEntries(names),
      "own.test": OWN,
      "mixed.test": [bad.address, good.address],
      "reversed.test": [good.address, bad.address],
      "dead.test": [silent.address, bad.address],
      "rebound.test": async (time) => [time === 0 ? good.address : bad.address],
      "a.wild.test": async (time) => [time === 0 ? good.address : bad.address],
      "many.test": [...Array<string>(10_000).fill(bad.address), good.address],
      "failing.test": () => Promise.reject(new Error("the resolver of the host is at 10.0.0.53")),
      "v6.test": [`::ffff:${bad.address}`],
      "a.public.test": [bad.address],
    },
  };
}

const to = (host: string) => (canary: string) => raw({ host, port: 7000 }, `${canary}\n`, ["end"]);

/** Nothing arrived, and the report has this reason for the host: it was not dialled. */
const told =
  (host: string, reason: string) =>
  (tried: Tried): void => {
    refused(tried);
    expect(tried.report.denied).toContainEqual(expect.objectContaining({ to: `${host}:7000`, reason }));
  };

attacked("an allowed name that leads to", open, [
  ...Object.keys(NOT_PUBLIC).map(
    (title, index): Attack => ({
      title,
      attempt: to(hostOf(index)),
      check: (tried) => {
        refused(tried);
        const reasons = tried.report.denied
          .filter(({ to }) => to === `${hostOf(index)}:7000`)
          .map(({ reason }) => reason);
        expect(reasons).toEqual([
          /^(a text|a short|an octal|a number|an address and|an empty|nothing|the link, with)/.test(title)
            ? expect.stringMatching(/^(address|unresolved)$/)
            : "address",
        ]);
      },
    }),
  ),
  {
    title: "the host's own address in its network",
    attempt: to("own.test"),
    check: told("own.test", OWN.length > 0 ? "address" : "unresolved"),
  },
  { title: "a good address behind a bad one: only the good one is dialled", attempt: to("mixed.test"), check: allowed },
  { title: "a good address in front of a bad one", attempt: to("reversed.test"), check: allowed },
  {
    title: "a good address that is silent, and a bad one",
    attempt: to("dead.test"),
    check: told("dead.test", "unreachable"),
  },
  {
    title: "a good address at first, and then to a bad one",
    attempt: (canary) => ({ host: "rebound.test", port: 7000, steps: [["send", `${canary}\n`], ["end"]] }),
    check: ({ outcome }) => expect(outcome.end).not.toBe("open"),
  },
  {
    title: "a good address at first, and then to a bad one: the second connection",
    attempt: to("rebound.test"),
    check: ({ report }) =>
      expect(report.denied).toContainEqual(
        expect.objectContaining({ to: "rebound.test:7000", reason: "address", count: 1 }),
      ),
  },
  {
    title: "a good address at first, and then to a bad one, by the proxy",
    attempt: (canary) => connectTo("a.wild.test:7000", ["send", `${canary}\n`], ["end"]),
    check: ({ outcome }) => expect(outcome.end).not.toBe("open"),
  },
  {
    title: "a bad one, by the proxy",
    attempt: (canary) => connectTo("a.public.test:7000", ["send", `${canary}\n`], ["end"]),
    check: told("a.public.test", "address"),
  },
  { title: "10,000 addresses", attempt: to("many.test"), check: ({ outcome }) => expect(outcome.end).not.toBe("open") },
  {
    title: "a resolver that fails: its words stay on the host",
    attempt: to("failing.test"),
    check: (tried) => {
      told("failing.test", "unresolved")(tried);
      expect(JSON.stringify(tried.report)).not.toContain("10.0.0.53");
    },
  },
  { title: "a bad address in another form", attempt: to("v6.test"), check: told("v6.test", "address") },
  {
    title: "an address of the list that `addresses` does not name",
    attempt: (canary) => connectTo("[::1]:7000", ["send", `${canary}\n`], ["end"]),
    check: told("[::1]", "address"),
  },
  {
    title: "an address of the list, which is no public one",
    attempt: (canary) => connectTo("127.0.0.1:7000", ["send", `${canary}\n`], ["end"]),
    check: told("127.0.0.1", "address"),
  },
]);
