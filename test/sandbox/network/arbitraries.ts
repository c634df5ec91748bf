import fc from "fast-check";
import {
  type AllowedNetwork,
  isLookedInto,
  type Network,
  type NetworkRule,
} from "../../../src/sandbox/network/rule.ts";

/* Random allow lists and requests, and what each request means, without a line of the code under test. */

/** What a program does, as far as a list can judge it. */
export interface Attempt {
  readonly host: string;
  readonly port: number;
  /** Bytes that are not HTTP, or a request. */
  readonly kind: "bytes" | "http";
  readonly method: string;
  readonly path: string;
  /** The address that is dialled. */
  readonly address: string;
  /** True: no TLS to the host. */
  readonly plain: boolean;
  /** The header `x-key`: not sent, the program's own, or the value of the secret `a` or `b`. */
  readonly key: "absent" | "own" | "a" | "b";
}

export const HOSTS = ["a.org", "b.a.org", "y.a.org", "x.org"];
export const PORTS = [80, 443, 99];
export const METHODS = ["GET", "POST", "PUT"];
export const ADDRESSES = ["10.1.1.1", "10.200.1.1", "8.8.8.8", "9.9.9.9", "127.0.0.1", "2606:4700::1"];
export const PATHS = ["/", ...pathsBelow("", 3), "/z/z/z/z", "/a/z/z/z", "/a/a/z/z"];

function pathsBelow(prefix: string, depth: number): string[] {
  const here = ["a", "z"].flatMap((name) => [`${prefix}/${name}`, `${prefix}/${name}/`]);
  if (depth === 1) return here;
  return [...here, ...["a", "z"].flatMap((name) => pathsBelow(`${prefix}/${name}`, depth - 1))];
}

// No rule says `y`, `x`, `z`, port 99, PUT or 9.9.9.9: they are what is left of everything.
const targets = fc
  .tuple(fc.constantFrom("a.org", "b.a.org", "*.a.org", "*.org"), fc.constantFrom("80", "443", "443", "*"))
  .map((pair) => pair.join(":"));
const methods = fc.uniqueArray(fc.constantFrom("GET", "POST"), { minLength: 1 });
const patterns = fc
  .tuple(fc.array(fc.constantFrom("a", "*"), { maxLength: 2 }), fc.constantFrom("", "a", "*", "**"))
  .map(([above, last]) => `/${[...above, last].join("/")}`);
const blocks = fc.constantFrom("10.0.0.0/8", "10.0.0.0/9", "10.128.0.0/9", "8.0.0.0/8", "127.0.0.1/32", "0.0.0.0/0");
const set = fc.constantFrom({ "x-key": { secret: "a" } }, { "x-key": { secret: "b" } });

export const rules: fc.Arbitrary<NetworkRule> = fc.oneof(
  { weight: 1, arbitrary: fc.record({ to: targets }) },
  {
    weight: 3,
    arbitrary: fc.record(
      {
        to: targets,
        methods,
        paths: fc.uniqueArray(patterns, { minLength: 1, maxLength: 5 }),
        set,
        without: fc.constant(["x-key"]),
        addresses: fc.uniqueArray(blocks, { minLength: 1, maxLength: 3 }),
        tls: fc.constant(false as const),
      },
      { requiredKeys: ["to"] },
    ),
  },
);

export const lists: fc.Arbitrary<AllowedNetwork> = fc.array(rules, { maxLength: 4 }).map((allow) => ({ allow }));
export const networks: fc.Arbitrary<Network> = fc.oneof(
  { weight: 1, arbitrary: fc.boolean() },
  { weight: 8, arbitrary: lists },
);

export const attempts: fc.Arbitrary<Attempt> = fc.record({
  host: fc.constantFrom(...HOSTS),
  port: fc.constantFrom(...PORTS),
  kind: fc.constantFrom("bytes", "http", "http"),
  method: fc.constantFrom(...METHODS),
  path: fc.constantFrom(...PATHS),
  address: fc.constantFrom(...ADDRESSES),
  plain: fc.boolean(),
  key: fc.constantFrom("absent", "own", "a", "b"),
});

/** How a ceiling reads a rule that says nothing of addresses or secrets. */
export interface Reading {
  readonly addresses?: "any";
  readonly secrets?: "any";
}

/** True if one rule of the list allows it. `true` is a network in which no secret is set. */
export function allows(network: Network, attempt: Attempt, reading: Reading = {}): boolean {
  if (network === false) return false;
  if (network === true) return reading.secrets === "any" || (attempt.address !== "127.0.0.1" && isOwn(attempt));
  return network.allow.some((rule) => ruleAllows(rule, attempt, reading));
}

function ruleAllows(rule: NetworkRule, attempt: Attempt, reading: Reading): boolean {
  const [pattern = "", port] = rule.to.split(":");
  const { host, address } = attempt;
  if (!(pattern.startsWith("*.") ? host.endsWith(pattern.slice(1)) : host === pattern)) return false;
  if (port !== "*" && Number(port) !== attempt.port) return false;
  return isRequestAllowed(rule, attempt, reading) && addressFits(rule.addresses, address, reading);
}

function isRequestAllowed(rule: NetworkRule, attempt: Attempt, reading: Reading): boolean {
  if (!isLookedInto(rule)) return isOwn(attempt) || reading.secrets === "any";
  if (attempt.kind === "bytes" || attempt.plain !== (attempt.port === 80 || rule.tls === false)) return false;
  if (rule.methods?.includes(attempt.method) === false || !keyFits(rule, attempt, reading)) return false;
  return rule.paths?.some((each) => toRegExp(each).test(attempt.path)) ?? true;
}

function addressFits(addresses: readonly string[] | undefined, address: string, reading: Reading): boolean {
  if (addresses === undefined) return reading.addresses === "any" || !/^(10|127)\./.test(address);
  return addresses.some((block) => {
    const [first = "", prefix] = block.split("/");
    if (address.includes(":") || first.includes(":")) return false;
    const behind = 2 ** (32 - Number(prefix));
    return Math.floor(numberOf(address) / behind) === Math.floor(numberOf(first) / behind);
  });
}

function numberOf(address: string): number {
  return address.split(".").reduce((sum, part) => sum * 256 + Number(part), 0);
}

/** `*` is a segment that is not empty; `**` begins with one. */
function toRegExp(pattern: string): RegExp {
  const source = pattern.replace(/\*\*$/, "@").replaceAll("*", "[^/]+").replace("@", "[^/]+(/.*)?");
  return new RegExp(`^${source}$`);
}

function keyFits({ set = {}, without = [] }: NetworkRule, { key }: Attempt, { secrets }: Reading): boolean {
  if (key === "absent" || secrets === "any") return true;
  const secret = set["x-key"]?.secret;
  return key === "own" ? secret === undefined && !without.includes("x-key") : key === secret;
}

function isOwn({ key, kind }: Attempt): boolean {
  return key === "absent" || key === "own" || kind === "bytes";
}
