import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { addressAllowed, judgeRequest, rulesFor } from "../../src/sandbox/network/judge.ts";
import { canonicalNetwork } from "../../src/sandbox/network/network.ts";
import { type AllowedNetwork, isLookedInto, type NetworkRule } from "../../src/sandbox/network/rule.ts";
import { type Attempt, attemptsJson, outcomesOf } from "../attacks/egress/attempt.ts";
import { type Certificates, makeCertificates } from "../attacks/egress/certificates.ts";
import { countingResolver } from "../attacks/egress/counting-resolver.ts";
import { CLIENT, environmentWith, runWith } from "../attacks/egress/in-cell.ts";
import { AT_PROXY, connectTo, get, request } from "../attacks/egress/shapes.ts";
import { openSites, type Site, type Sites } from "../attacks/egress/sites.ts";
import { openProject, type ProjectFixture } from "../run/project-fixture.ts";
import { HOSTS, lists, METHODS, PATHS, PORTS } from "../sandbox/network/arbitraries.ts";
import { isAgain } from "../tiers/again.ts";
import { networkWorlds } from "./network-worlds.ts";

/** A cell for each list, which the host judges whatever made the cell. */
const LISTS = isAgain() ? 3 : 6;
const REQUESTS = 60;
const TIME_LIMIT_MS = 60_000;

/** A request, or without a method a tunnel. */
interface Asked {
  readonly host: string;
  readonly port: number;
  readonly method?: string;
  readonly path?: string;
}

const asked: fc.Arbitrary<Asked> = fc.record({
  host: fc.constantFrom(...HOSTS),
  port: fc.constantFrom(...PORTS),
  method: fc.constantFrom(...METHODS),
  path: fc.constantFrom(...PATHS),
});
const TUNNELS: readonly Asked[] = HOSTS.flatMap((host) => PORTS.map((port) => ({ host, port })));

let sites: Sites;
let site: Site;
let project: ProjectFixture;
let certificates: Certificates;

beforeAll(async () => {
  sites = openSites();
  certificates = await makeCertificates(HOSTS);
  const http = { kind: "http", certificate: certificates.good, alsoPlain: true } as const;
  site = await sites.open("site", { ports: Object.fromEntries(PORTS.map((port) => [port, http])) });
  project = await openProject({ workers: { client: { image: "corral/python", command: CLIENT } }, policy: "default" });
});

afterAll(async () => {
  await project[Symbol.asyncDispose]();
  await sites[Symbol.asyncDispose]();
});

describe("what the validator says of a request, and what a client in the cell meets", () => {
  it(
    "are the same, whatever the list",
    async () => {
      const lines = fc.tuple(lists, fc.array(asked, { minLength: REQUESTS, maxLength: REQUESTS }));
      let tried = 0;
      await fc.assert(
        fc.asyncProperty(lines, async ([raw, requests]) => {
          const network = canonicalNetwork({ allow: raw.allow.filter(isPossible).map(reachable) });
          fc.pre(typeof network !== "boolean" && network.allow.every((rule) => isClear(rule, network)));
          if (typeof network === "boolean") return;
          const meant = requests.map((each) => ({ ...each, port: meantPort(network, each) }));
          const all = [...TUNNELS, ...meant.filter((each) => isUsual(network, each))];
          const expected = all.map((each) => isAllowed(network, each));
          // One that allows none of them says little.
          fc.pre(expected.some(Boolean));
          tried += 1;
          expect(await met(network, network, all)).toEqual(expected);
        }),
        { numRuns: LISTS, interruptAfterTimeLimit: TIME_LIMIT_MS },
      );
      expect(tried).toBeGreaterThan(0);
    },
    2 * TIME_LIMIT_MS,
  );

  // To derive a list is the host's.
  it.skipIf(isAgain())(
    "are the same for a list that is derived from the project's",
    async () => {
      const arena = { hosts: HOSTS, ports: [80, 99], address: site.address };
      await fc.assert(
        fc.asyncProperty(networkWorlds(arena), async ({ project: given, asked: own, tries }) => {
          fc.pre(own.allow.length > 0);
          expect(await met(own, given, tries)).toEqual(tries.map(({ allowed }) => allowed));
        }),
        { numRuns: LISTS, interruptAfterTimeLimit: TIME_LIMIT_MS },
      );
    },
    2 * TIME_LIMIT_MS,
  );
});

/** All of its hosts are at one address, which a rule either names or not. */
function reachable(rule: NetworkRule): NetworkRule {
  const names = rule.addresses === undefined || addressAllowed(rule, "127.0.0.1");
  return { ...rule, addresses: [names ? `${site.address}/32` : "10.0.0.0/8"] };
}

/** A declaration says one of both. */
function isPossible({ to, set, without }: NetworkRule): boolean {
  return to !== "" && (set === undefined || without === undefined);
}

/** `http://NAME/` must mean one port: a declaration with two of them is refused. */
function isClear(rule: NetworkRule, { allow }: AllowedNetwork): boolean {
  if (!isLookedInto(rule) || rule.tls === false || !/:(443|\*)$/.test(rule.to)) return true;
  return !allow.some(({ to }) => /:(80|\*)$/.test(to));
}

/** `http://NAME/` in the cell is port 443 of a host that is looked into there. */
function meantPort(network: AllowedNetwork, { host, port }: Asked): number {
  return port === 80 && isSecured(network, host) ? 443 : port;
}

function isSecured(network: AllowedNetwork, host: string): boolean {
  return rulesFor(network, host, 443).some((rule) => isLookedInto(rule) && rule.tls !== false);
}

/** Nobody speaks HTTP in the clear to a port that is for TLS. */
function isUsual(network: AllowedNetwork, { host, port }: Asked): boolean {
  return port !== 443 || rulesFor(network, host, port).every(isLookedInto);
}

function isAllowed(network: AllowedNetwork, { host, port, method, path }: Asked): boolean {
  if (method === undefined || path === undefined) {
    const tunnels = rulesFor(network, host, port).filter((rule) => !isLookedInto(rule));
    return tunnels.some((rule) => addressAllowed(rule, site.address));
  }
  const judged = judgeRequest(network, { host, port, method, path });
  return judged.ok && addressAllowed(judged.rule, site.address);
}

/** Tries all in one cell, and returns which of them arrived. */
async function met(network: AllowedNetwork, given: AllowedNetwork, all: readonly Asked[]): Promise<boolean[]> {
  const canaryOf = (index: number): string => `agreed${index}z`;
  const before = site.arrived.length;
  const attempts = all.map((each, index) => [canaryOf(index), attemptFor(network, each, canaryOf(index))]);
  const resolver = countingResolver({}, [site.address]);
  const outside = { resolver, authority: certificates.authority, secrets: { a: "value-a", b: "value-b" } };
  const environment = environmentWith(project, outside);
  const input = { attempts: attemptsJson(Object.fromEntries(attempts)) };
  const result = await runWith(environment, "client", network, input, undefined, given);
  expect(result, JSON.stringify(result.error ?? result.stderr)).toMatchObject({ status: "succeeded" });
  const arrived = site.arrived.slice(before);
  const outcomes = outcomesOf(result.stdout);
  return all.map((_, index) => {
    const canary = canaryOf(index);
    // What arrives is answered, and what does not is not.
    expect(outcomes.get(canary)?.got.includes(" 200 OK") && outcomes.get(canary)?.got.includes(canary)).toBe(
      arrived.includes(canary),
    );
    return arrived.includes(canary);
  });
}

/** As a program in the cell does it: by the name if the cell knows it at this port, else by the proxy. */
function attemptFor(network: AllowedNetwork, { host, port, method, path }: Asked, canary: string): Attempt {
  const isNamed = network.allow.some(({ to }) => to === `${host}:${port}`);
  if (method === undefined || path === undefined) {
    const say = [
      ["tls", { sni: host }],
      ["send", get(host, `/${canary}`)],
    ] as const;
    return isNamed ? { host, port, steps: say } : connectTo(`${host}:${port}`, ...say);
  }
  // A host that is looked into at its port 443 is at port 80 of the cell.
  const inside = port === 443 && isSecured(network, host) ? 80 : port;
  const authority = inside === 80 ? host : `${host}:${inside}`;
  const send = (target: string) =>
    request(method, target, [`Host: ${authority}`, "Connection: close", `X-Canary: ${canary}`]);
  return isNamed
    ? { host, port: inside, steps: [["send", send(path)]] }
    : { ...AT_PROXY, steps: [["send", send(`http://${authority}${path}`)]] };
}
