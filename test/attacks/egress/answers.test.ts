import type { Duplex } from "node:stream";
import { expect } from "vitest";
import { type Attack, absent, allowed, attacked, refused, type Tried, type World } from "./arena.ts";
import { makeCertificates } from "./certificates.ts";
import { get, raw, request } from "./shapes.ts";
import type { Sites } from "./sites.ts";

/* Hosts that are allowed and hostile: what they answer reaches the cell only if it can be read in one way. */

const OK = "HTTP/1.1 200 OK\r\n";

/** What a host says to a request, by the first part of its path. */
const ANSWERS: Readonly<Record<string, string>> = {
  "two lengths": `${OK}Content-Length: 5\r\nContent-Length: 50\r\n\r\nhello`,
  "a length and chunks": `${OK}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
  "an unknown encoding": `${OK}Transfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n`,
  "a length that is no number": `${OK}Content-Length: five\r\n\r\nhello`,
  "a bare CR in a header": `${OK}X: a\rContent-Length: 0\r\n\r\nhello`,
  "a NUL in a header": `${OK}X: a\0b\r\nContent-Length: 5\r\n\r\nhello`,
  "a folded header": `${OK}X: a\r\n b\r\nContent-Length: 5\r\n\r\nhello`,
  "a line that is no header": `${OK}no header\r\n\r\nhello`,
  "an upgrade that nobody asked for":
    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: any\r\n\r\nhello",
  "no HTTP": "SSH-2.0-OpenSSH_9.2\r\n",
  nothing: "",
  "a header of 1 MB": `${OK}X: ${"x".repeat(1_000_000)}\r\n\r\n`,
  "20,000 headers": `${OK}${"a: 1\r\n".repeat(20_000)}\r\n`,
};

const NO_BODY: Readonly<Record<string, string>> = {
  "HEAD with a body": `${OK}Content-Length: 14\r\n\r\nnobody's bytes`,
  "204 with a body": "HTTP/1.1 204 No Content\r\n\r\nnobody's bytes",
  "304 with a body": "HTTP/1.1 304 Not Modified\r\n\r\nnobody's bytes",
};

const OTHER: Readonly<Record<string, string>> = {
  interim: `${"HTTP/1.1 102 Processing\r\n\r\n".repeat(20_000)}${OK}Content-Length: 2\r\n\r\nok`,
  cut: `${OK}Content-Length: 1000\r\n\r\nonly this`,
  "cut-chunks": `${OK}Transfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\n`,
  led: `${OK}Strict-Transport-Security: max-age=1000\r\nAlt-Svc: h3=":443"\r\nContent-Length: 2\r\n\r\nok`,
};

const PATHS = { ...ANSWERS, ...NO_BODY, ...OTHER };
const pathOf = (name: string): string => `/${Object.keys(PATHS).indexOf(name)}/`;

function talk(socket: Duplex): void {
  socket.once("data", (chunk: Buffer) => {
    const index = Number(/^[A-Z]+ \/([0-9]+)\//.exec(chunk.toString("latin1"))?.[1]);
    socket.end(Object.values(PATHS)[index] ?? "", "latin1");
  });
}

const CERTIFICATES = ["otherName", "expired", "selfSigned"] as const;

async function open(sites: Sites): Promise<World> {
  const certificates = await makeCertificates([
    "good.test",
    ...CERTIFICATES.map((kind) => `${kind.toLowerCase()}.test`),
  ]);
  const hostile = await sites.open("hostile", { ports: { 8080: { kind: "bytes", talk } } });
  const secured = await Promise.all(
    (["good", ...CERTIFICATES] as const).map((kind) =>
      sites.open(kind, { ports: { 443: { kind: "http", certificate: certificates[kind] } } }),
    ),
  );
  const plain = await sites.open("plain", { ports: { 443: { kind: "http" } } });
  const names = [...secured, plain].map(({ name, address }) => [`${name.toLowerCase()}.test`, address] as const);
  return {
    network: {
      allow: [
        { to: "hostile.test:8080", methods: ["GET", "HEAD"], tls: false, addresses: [`${hostile.address}/32`] },
        ...names.map(([name, address]) => ({ to: `${name}:443`, methods: ["GET"], addresses: [`${address}/32`] })),
      ],
    },
    answers: {
      "hostile.test": [hostile.address],
      ...Object.fromEntries(names.map(([name, address]) => [name, [address]])),
    },
    authority: certificates.authority,
  };
}

const AT = { host: "hostile.test", port: 8080 };

const answer =
  (name: string, method = "GET"): Attack["attempt"] =>
  (canary) =>
    raw(AT, request(method, `${pathOf(name)}${canary}`, ["Host: hostile.test:8080", "Connection: close"]));

const badGateway = ({ outcome }: Tried): void => expect(outcome.got).toMatch(/^HTTP\/1\.1 502 /);

attacked("a hostile host that answers", open, [
  ...Object.keys(ANSWERS).map((title): Attack => ({ title, attempt: answer(title), check: badGateway })),
  ...Object.keys(NO_BODY).map(
    (title): Attack => ({
      title,
      attempt: answer(title, title.startsWith("HEAD") ? "HEAD" : "GET"),
      check: ({ outcome }) => {
        expect(outcome.got).toMatch(/^HTTP\/1\.1 (200|204|304|502) /);
        expect(outcome.got).not.toContain("nobody's bytes");
      },
    }),
  ),
  {
    title: "20,000 interim answers",
    attempt: answer("interim"),
    check: ({ outcome }) => {
      expect(outcome.end).not.toBe("open");
      expect(outcome.bytes).toBeLessThan(2000);
    },
  },
  {
    title: "less than it says: the client sees that it is cut",
    attempt: answer("cut"),
    check: ({ outcome }) => {
      expect(outcome.end).not.toBe("open");
      expect(outcome.bytes).toBeLessThan(1000);
    },
  },
  {
    title: "chunks without an end: the client sees that it is cut",
    attempt: answer("cut-chunks"),
    check: ({ outcome }) => {
      expect(outcome.end).not.toBe("open");
      expect(outcome.got).not.toContain("0\r\n\r\n");
    },
  },
  {
    title: "with what would lead the client away from plain HTTP",
    attempt: answer("led"),
    check: ({ outcome }) => {
      expect(outcome.got).toMatch(/^HTTP\/1\.1 200 /);
      expect(outcome.got).not.toMatch(/strict-transport|alt-svc/i);
    },
  },
  {
    title: "over TLS, with a certificate for its name: it is allowed",
    attempt: (canary) => raw({ host: "good.test", port: 80 }, get("good.test", `/${canary}`)),
    check: allowed,
  },
  ...CERTIFICATES.map((kind): Attack => {
    const host = `${kind.toLowerCase()}.test`;
    return {
      title: `over TLS, with a certificate that is not its own: ${kind}`,
      attempt: (canary) => raw({ host, port: 80 }, get(host, `/${canary}`)),
      check: (tried) => {
        refused(tried);
        badGateway(tried);
        expect(tried.report.denied).toContainEqual(
          expect.objectContaining({ to: `${host}:443`, reason: "unreachable" }),
        );
      },
    };
  }),
  {
    title: "in the clear at its port for TLS",
    attempt: (canary) => raw({ host: "plain.test", port: 80 }, get("plain.test", `/${canary}`)),
    check: (tried) => {
      absent(tried);
      badGateway(tried);
    },
  },
]);
