import type { Duplex } from "node:stream";
import { expect } from "vitest";
import { type Attack, absent, attacked, type Tried, type World } from "./arena.ts";
import { AT_PROXY, connectTo, raw } from "./shapes.ts";
import type { Sites } from "./sites.ts";

/* Clients, hosts and resolvers that begin something and do not go on. Each is given up within 20 seconds (src/egress/model/outlet.ts). */

async function open(sites: Sites): Promise<World> {
  const silent = (socket: Duplex): void => void socket.resume();
  const site = await sites.open("site", {
    ports: { 443: { kind: "bytes", talk: silent }, 7000: { kind: "echo" }, 8080: { kind: "http" } },
  });
  const addresses = [`${site.address}/32`];
  return {
    network: {
      allow: [
        { to: "tunnel.test:7000", addresses },
        { to: "looked.test:8080", tls: false, addresses },
        { to: "secured.test:443", methods: ["GET"], addresses },
        { to: "stuck.test:7000", addresses },
        { to: "*.wild.test:7000", addresses },
      ],
    },
    answers: {
      "tunnel.test": [site.address],
      "looked.test": [site.address],
      "secured.test": [site.address],
      "a.wild.test": [site.address],
      "stuck.test": () => new Promise(() => {}),
    },
  };
}

const TUNNEL = { host: "tunnel.test", port: 7000 };
const LOOKED = { host: "looked.test", port: 8080 };

const slow = (title: string, attempt: Attack["attempt"], check?: Attack["check"]): Attack => ({
  title,
  attempt: (canary) => ({ ...attempt(canary), seconds: 25 }),
  check: (tried) => {
    absent(tried);
    expect(tried.outcome.ms).toBeLessThan(22_000);
    check?.(tried);
  },
});

const told =
  (to: string, reason: string) =>
  ({ report }: Tried): void =>
    expect(report.denied).toContainEqual(expect.objectContaining({ to, reason }));

attacked("who does not go on", open, [
  slow("a client in its headers", (canary) => raw(LOOKED, `GET /${canary} HTTP/1.1\r\nHost: looked.test`)),
  slow("a client in its headers, which sends a byte now and then", (canary) => ({
    ...LOOKED,
    steps: [
      ["send", `GET /${canary} HTTP/1.1\r\nX: `],
      ...Array.from(
        { length: 10 },
        () =>
          [
            ["send", "x"],
            ["pause", 2000],
          ] as const,
      ).flat(),
    ],
  })),
  slow("a client in the line that asks the proxy", (canary) => raw(AT_PROXY, `CONNECT ${canary}`)),
  slow(
    "a client of the proxy, after a first request",
    (canary) => ({
      ...AT_PROXY,
      steps: [["send", `GET http://x.test/ HTTP/1.1\r\nHost: x.test\r\n\r\nGET http://${canary}`]],
    }),
    undefined,
  ),
  slow("a client in its hello", () => raw(TUNNEL, "\x16\x03\x01\x02\x00\x01\x00\x01")),
  slow("a client in its hello, behind CONNECT", () =>
    connectTo("a.wild.test:7000", ["send", "\x16\x03\x01\x02\x00\x01\x00"]),
  ),
  slow("a client in its first line on a tunnel", (canary) => raw(TUNNEL, `GET /${canary}`)),
  slow("a client in empty lines", () => raw(TUNNEL, "\r\n\r\n\r\n")),
  slow(
    "a resolver",
    (canary) => raw({ host: "stuck.test", port: 7000 }, `${canary}\n`),
    told("stuck.test:7000", "unresolved"),
  ),
  slow(
    "a host in its TLS handshake",
    (canary) =>
      raw(
        { host: "secured.test", port: 80 },
        `GET /${canary} HTTP/1.1\r\nHost: secured.test\r\nConnection: close\r\n\r\n`,
      ),
    told("secured.test:443", "unreachable"),
  ),
]);
