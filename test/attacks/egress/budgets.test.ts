import type { Duplex } from "node:stream";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { NetworkReport } from "../../../src/sandbox/network/judge.ts";
import type { NetworkLimits } from "../../../src/sandbox/network/rule.ts";
import { openProject, type ProjectFixture, sh } from "../../run/project-fixture.ts";
import { type Attempt, attemptsJson, type Outcome, outcomesOf } from "./attempt.ts";
import { countingResolver } from "./counting-resolver.ts";
import { CLIENT, environmentWith, runWith } from "./in-cell.ts";
import { get, raw, request } from "./shapes.ts";
import { openSites, type Site, type Sites } from "./sites.ts";

/* What a network may use is exact: what does not fit is refused, what fits is not, and called workers use the same budget. */

let sites: Sites;
let site: Site;
let project: ProjectFixture;

const CODE = "curl -s -o /dev/null -w '%{http_code} ' http://plain.test:8080/x";

/** Prints how many bytes a host without an end sent until it was closed. */
const READS =
  'perl -MIO::Socket::INET -e \'$s = IO::Socket::INET->new("site.test:7001"); print $s "go\\n"; $n += length($b) while read($s, $b, 4096); print 0 + $n, "\\n"\'';

beforeAll(async () => {
  sites = openSites();
  site = await sites.open("site", {
    ports: { 7000: { kind: "echo" }, 7001: { kind: "bytes", talk: endless }, 8080: { kind: "http" } },
  });
  const network = {
    allow: [{ to: "plain.test:8080", tls: false, addresses: [`${site.address}/32`] }],
    limits: { requests: 4 },
  };
  const tunnel = {
    allow: [{ to: "site.test:7001", addresses: [`${site.address}/32`] }],
    limits: { download: 100_000 },
  };
  const both = { allow: [...network.allow, ...tunnel.allow], limits: { ...network.limits, ...tunnel.limits } };
  project = await openProject(
    {
      workers: {
        client: { image: "corral/python", command: CLIENT },
        caller: {
          command: sh(`${CODE}; corral-call called; ${CODE}; ${CODE}`),
          sandbox: { network },
          calls: ["called"],
        },
        called: { command: sh(`${CODE}; ${CODE}`), sandbox: { network: { allow: network.allow } } },
        downloads: {
          command: sh(`corral-call middle; ${READS}`),
          sandbox: { network: tunnel },
          calls: ["middle"],
        },
        middle: { command: sh("corral-call reads"), sandbox: { network: { allow: tunnel.allow } }, calls: ["reads"] },
        reads: { command: sh(READS), sandbox: { network: { allow: tunnel.allow } } },
      },
      policy: "default",
      sandbox: { network: both },
    },
    { networkHost: { resolveName: async () => [site.address] } },
  );
});

afterAll(async () => {
  await project[Symbol.asyncDispose]();
  await sites[Symbol.asyncDispose]();
});

function endless(socket: Duplex): void {
  const more = (): void => {
    while (!socket.destroyed && socket.write(Buffer.alloc(10_000, "x")));
  };
  socket.on("drain", more);
  more();
}

/** Tries one after the other. */
async function tried(limits: NetworkLimits, attempts: Readonly<Record<string, Attempt>>) {
  const addresses = [`${site.address}/32`];
  const network = {
    allow: [
      ...[7000, 7001].map((port) => ({ to: `site.test:${port}`, addresses })),
      { to: "plain.test:8080", tls: false as const, addresses },
    ],
    limits,
  };
  const names = { "site.test": [site.address], "plain.test": [site.address] };
  const environment = environmentWith(project, { resolver: countingResolver(names) });
  const result = await runWith(environment, "client", network, { attempts: attemptsJson(attempts), atOnce: 1 });
  expect(result, result.stderr).toMatchObject({ status: "succeeded" });
  return { outcomes: outcomesOf(result.stdout), report: result.network as NetworkReport };
}

const TUNNEL = { host: "site.test", port: 7000 };
const PLAIN = { host: "plain.test", port: 8080 };
const sends = (bytes: number): Attempt => raw(TUNNEL, `${"u".repeat(bytes - 1)}\n`, ["end"]);
const posts = (bytes: number, ...lines: string[]): Attempt =>
  raw(
    PLAIN,
    request(
      "POST",
      "/x",
      ["Host: plain.test:8080", "Connection: close", `Content-Length: ${bytes}`, ...lines],
      "p".repeat(bytes),
    ),
  );
const asks = (): Attempt => raw(PLAIN, get("plain.test:8080", "/x"));
const bytesOf = (outcomes: ReadonlyMap<string, Outcome>) => [...outcomes.values()].map(({ bytes }) => bytes);
const statusesOf = (outcomes: ReadonlyMap<string, Outcome>) =>
  [...outcomes.values()].map(({ got }) => /^HTTP\/1\.1 ([0-9]+)/.exec(got)?.[1]);

describe("the budget of a network", () => {
  it("for uploads through a tunnel", async () => {
    const before = site.arrived.length;
    const { outcomes, report } = await tried(
      { uploadBytes: 1000 },
      { a: sends(600), b: sends(600), c: sends(400), d: sends(2) },
    );
    expect(bytesOf(outcomes)).toEqual([600, 0, 400, 0]);
    expect(site.arrived.length - before).toBe(1000);
    expect(report.allowed).toEqual([expect.objectContaining({ to: "site.test:7000", up: 1000, down: 1000 })]);
    expect(report.denied).toEqual([expect.objectContaining({ to: "site.test:7000", reason: "limit", count: 2 })]);
  });

  it("for uploads in requests, also of GET", async () => {
    const withBody = raw(
      PLAIN,
      request("GET", "/x", ["Host: plain.test:8080", "Connection: close", "Content-Length: 50000"], "g".repeat(50_000)),
    );
    const { outcomes } = await tried(
      { uploadBytes: 100_000 },
      { a: posts(60_000), b: posts(60_000), c: withBody, d: posts(38_000) },
    );
    expect(statusesOf(outcomes)).toEqual(["200", "429", "429", "200"]);
  });

  it("for downloads", async () => {
    const { outcomes, report } = await tried(
      { downloadBytes: 100_000 },
      { a: raw({ host: "site.test", port: 7001 }, "go\n") },
    );
    expect(outcomes.get("a")?.end).not.toBe("open");
    expect(outcomes.get("a")?.bytes).toBeLessThanOrEqual(100_000);
    expect(report.allowed[0]?.down).toBeLessThanOrEqual(100_000);
    expect(report.denied[0]).toMatchObject({ reason: "limit" });
  });

  it("for requests, also several on one connection", async () => {
    const three = raw(
      PLAIN,
      `${request("GET", "/1", ["Host: plain.test:8080"]).repeat(2)}${get("plain.test:8080", "/3")}`,
    );
    const { outcomes } = await tried({ requests: 4 }, { a: three, b: asks(), c: asks() });
    expect(outcomes.get("a")?.got.match(/HTTP\/1\.1 200/g)).toHaveLength(3);
    expect(statusesOf(outcomes)).toEqual(["200", "200", "429"]);
  });

  it("for connections at once", async () => {
    const holds = (ms: number): Attempt => ({
      ...TUNNEL,
      steps: [["send", "x\n"], ["until", "x\n"], ["pause", ms], ["end"]],
    });
    const network = {
      allow: [{ to: "site.test:7000", addresses: [`${site.address}/32`] }],
      limits: { connections: 2 },
    };
    const environment = environmentWith(project, { resolver: countingResolver({ "site.test": [site.address] }) });
    const attempts = attemptsJson({ a: holds(1500), b: holds(1500), c: holds(1500), d: holds(1500) });
    const result = await runWith(environment, "client", network, { attempts, atOnce: 4 });
    expect([...outcomesOf(result.stdout).values()].filter(({ got }) => got === "x\n")).toHaveLength(2);
    expect(result.network?.denied).toEqual([expect.objectContaining({ reason: "limit", count: 2 })]);
  });

  it("is that of the workers that it calls too", async () => {
    const result = await project.run("caller");
    expect(result.stdout).toBe("200 200 200 200 429 ");
    expect(result.calls).toMatchObject([{ worker: "called", status: "succeeded" }]);
  });

  it("for downloads is used up by a worker two calls below, and nothing is left above", async () => {
    const result = await project.run("downloads");
    const below = result.calls[0]?.calls[0];
    const [down, left] = [Number(below?.stdout), Number(result.stdout.trim().split("\n").at(-1))];
    expect(down).toBeGreaterThan(0);
    expect(down + left).toBeLessThanOrEqual(100_000);
    expect(below?.network?.denied).toMatchObject([{ to: "site.test:7001", reason: "limit" }]);
    expect(result.network?.denied).toMatchObject([{ to: "site.test:7001", reason: "limit" }]);
    expect(result.network?.allowed.reduce((sum, each) => sum + each.down, 0)).toBe(left);
  });
});
