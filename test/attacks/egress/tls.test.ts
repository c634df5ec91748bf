import { expect } from "vitest";
import { type Attack, allowed, attacked, refused, type Tried, type World } from "./arena.ts";
import { makeCertificates } from "./certificates.ts";
import { clientHello, ENCRYPTED_CLIENT_HELLO, PADDING, serverNames } from "./client-hello.ts";
import { AT_PROXY, connectTo, get, overTls, raw } from "./shapes.ts";
import type { Sites } from "./sites.ts";

/* What a client says before TLS protects it. One server answers for every name, as those of a large provider do. */

async function open(sites: Sites): Promise<World> {
  const certificates = await makeCertificates(["exact.test", "fronted.test", "looked.test", "a.wild.test"]);
  const certificate = certificates.good;
  const provider = await sites.open("provider", {
    ports: { 443: { kind: "http", certificate }, 7000: { kind: "echo" } },
  });
  const addresses = [`${provider.address}/32`];
  return {
    network: {
      allow: [
        { to: "exact.test:443", addresses },
        { to: "exact.test:7000", addresses },
        { to: "*.wild.test:443", addresses },
        { to: "looked.test:443", methods: ["GET"], addresses },
      ],
    },
    answers: {
      "exact.test": [provider.address],
      "looked.test": [provider.address],
      "a.wild.test": [provider.address],
    },
    authority: certificates.authority,
  };
}

const EXACT = { host: "exact.test", port: 443 };
const LOOKED = { host: "looked.test", port: 443 };

/** A host that sends back and keeps every byte, so that a hello that passes is seen. */
const BARE = { host: "exact.test", port: 7000 };

const named = (...names: string[]): Buffer => clientHello({ names });
const behind = (first: string, hello: Buffer): Buffer => Buffer.concat([Buffer.from(first, "latin1"), hello]);

/** Hellos that servers and Corral might read in two ways. */
const HELLOS: Readonly<Record<string, (canary: string) => Buffer>> = {
  "with the allowed name first and another second": (canary) => named("exact.test", `${canary}.test`),
  "with another name first and the allowed one second": (canary) => named(`${canary}.test`, "exact.test"),
  "with two extensions for the name": (canary) =>
    clientHello({ names: ["exact.test"], extensions: [[0, serverNames([`${canary}.test`])]] }),
  "with two extensions for the name, of which the second is the allowed one": (canary) =>
    clientHello({ names: [`${canary}.test`], extensions: [[0, serverNames(["exact.test"])]] }),
  "with an empty list of names": (canary) => clientHello({ names: [], extensions: [[PADDING, Buffer.from(canary)]] }),
  "with a NUL in the name": (canary) => named(`exact.test\0.${canary}.test`),
  "with the allowed name in front of another": (canary) => named(`exact.test.${canary}.test`),
  "with Encrypted Client Hello": (canary) =>
    clientHello({ names: ["exact.test"], extensions: [[ENCRYPTED_CLIENT_HELLO, Buffer.from(canary)]] }),
  "with a hello of more than 64 KiB": (canary) =>
    clientHello({ names: ["exact.test"], extensions: [[PADDING, Buffer.alloc(65_430, canary)]] }),
  "with a second hello behind the first, in one record": (canary) =>
    clientHello({ names: ["exact.test"], behind: named(`${canary}.test`).subarray(5) }),
  "with a hello of SSL 2": (canary) =>
    behind("\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10\x01\x00\x80\x03\x00\x80\x07\x00\xc0", Buffer.from(canary)),
  "with something else behind 0x16": (canary) => behind("\x16", Buffer.from(canary.repeat(30))),
  "with empty records in front": (canary) => behind("\x16\x03\x01\0\0\x16\x03\x01\0\0", named(`${canary}.test`)),
  "with the hello of a server": (canary) =>
    behind("\x16\x03\x01\0\x40\x02\0\0\x3c\x03\x03", Buffer.from(canary.repeat(9))),
};

/** No ServerHello came back either: the first bytes of the client never left. */
const noHandshake = (tried: Tried): void => {
  refused(tried);
  expect(tried.outcome.got.startsWith("\x16")).toBe(false);
};

attacked("a TLS client", open, [
  {
    title: "may name the host",
    attempt: (canary) => overTls(EXACT, { sni: "exact.test" }, get("exact.test", `/${canary}`)),
    check: allowed,
  },
  {
    title: "may name the host in capitals, cut into segments of four bytes",
    attempt: (canary) => overTls(EXACT, { sni: "EXACT.test", segment: 4 }, get("exact.test", `/${canary}`)),
    check: allowed,
  },
  {
    title: "may cut its hello into records",
    attempt: (canary) => overTls(EXACT, { sni: "exact.test", record: 20 }, get("exact.test", `/${canary}`)),
    check: allowed,
  },
  {
    title: "may use a hello as old libraries make it",
    attempt: () => raw(EXACT, clientHello({ names: ["exact.test"] }).toString("latin1"), ["until", "\x16"], ["reset"]),
    check: ({ outcome }) => expect(outcome.got.startsWith("\x16\x03")).toBe(true),
  },
  {
    title: "may use the proxy",
    attempt: (canary) =>
      connectTo("a.wild.test:443", ["tls", { sni: "a.wild.test" }], ["send", get("a.wild.test", `/${canary}`)]),
    check: allowed,
  },
  {
    title: "that names no host",
    attempt: (canary) => overTls(EXACT, {}, get("exact.test", `/${canary}`)),
    check: noHandshake,
  },
  {
    title: "that names another host (fronting)",
    attempt: (canary) => overTls(EXACT, { sni: "fronted.test" }, get("fronted.test", `/${canary}`)),
    check: noHandshake,
  },
  {
    title: "that names another host, in segments of four bytes",
    attempt: (canary) => overTls(EXACT, { sni: "fronted.test", segment: 4 }, get("fronted.test", `/${canary}`)),
    check: noHandshake,
  },
  {
    title: "that names another host, in records of seven bytes",
    attempt: (canary) => overTls(EXACT, { sni: "fronted.test", record: 7 }, get("fronted.test", `/${canary}`)),
    check: noHandshake,
  },
  {
    title: "that names another host by the proxy",
    attempt: (canary) =>
      connectTo("a.wild.test:443", ["tls", { sni: "fronted.test" }], ["send", get("fronted.test", `/${canary}`)]),
    check: ({ arrived, canary, outcome }) => {
      expect(arrived()).not.toContain(canary);
      expect(outcome.end).toMatch(/^tls: |^eof|^ECONNRESET/);
    },
  },
  {
    title: "that names another host below the wildcard",
    attempt: (canary) =>
      connectTo("a.wild.test:443", ["tls", { sni: "b.wild.test" }], ["send", get("b.wild.test", `/${canary}`)]),
    check: ({ arrived, canary, outcome }) => {
      expect(arrived()).not.toContain(canary);
      expect(outcome.end).not.toBe("open");
    },
  },
  ...Object.entries(HELLOS).map(
    ([title, bytes]): Attack => ({
      title,
      attempt: (canary) => ({ ...BARE, steps: [["send", bytes(canary)], ["fill", "\0", 1], ["end"]] }),
    }),
  ),
  {
    title: "with a hello that says it has 16 MB",
    attempt: (canary) => ({
      ...BARE,
      steps: [
        ["send", "\x16\x03\x01\x40\0\x01\xff\xff\xff"],
        ["fill", canary.repeat(1000), 30],
      ],
    }),
  },
  {
    title: "with a hello that nothing is wrong with: it arrives",
    attempt: (canary) => ({
      ...BARE,
      steps: [
        ["send", clientHello({ names: ["exact.test"], extensions: [[PADDING, Buffer.from(canary)]] })],
        ["until", canary],
        ["end"],
      ],
    }),
    check: allowed,
  },
  {
    title: "to a host that is looked into: an alert, and the report says how",
    attempt: (canary) => overTls(LOOKED, { sni: "looked.test" }, get("looked.test", `/${canary}`)),
    check: (tried) => {
      noHandshake(tried);
      expect(tried.report.denied).toContainEqual(
        expect.objectContaining({
          to: "looked.test:443",
          reason: "tls",
          detail: expect.stringContaining("http://looked.test/"),
        }),
      );
    },
  },
  {
    title: "to a host that is looked into, at its place for HTTP",
    attempt: (canary) =>
      overTls({ host: "looked.test", port: 80 }, { sni: "looked.test" }, get("looked.test", `/${canary}`)),
    check: noHandshake,
  },
  {
    title: "to a host that is looked into may speak HTTP in the clear",
    attempt: (canary) => raw({ host: "looked.test", port: 80 }, get("looked.test", `/${canary}`)),
    check: allowed,
  },
  {
    title: "by CONNECT to an exact host that is looked into",
    attempt: (canary) =>
      connectTo("looked.test:443", ["tls", { sni: "looked.test" }], ["send", get("looked.test", `/${canary}`)]),
    check: ({ arrived, canary }) => expect(arrived()).not.toContain(canary),
  },
  {
    title: "HTTP in the clear on a tunnel, for another host",
    attempt: (canary) => raw(EXACT, get("fronted.test", `/${canary}`)),
  },
  {
    title: "TLS to the proxy",
    attempt: (canary) => overTls(AT_PROXY, { sni: "a.wild.test" }, get("a.wild.test", `/${canary}`)),
    check: noHandshake,
  },
]);
