import {
  headerFault,
  placeFaults,
  privateAddressFault,
  readAddresses,
  readMethod,
  readPath,
  readTarget,
  type TermRead,
} from "../declarations/network/rule-terms.ts";
import { nameFault } from "../declarations/terms/names.ts";
import { canonicalNetwork, NETWORK_LIMITS } from "../sandbox/network/network.ts";
import type { DynamicNetwork, Network, NetworkLimits, NetworkRule } from "../sandbox/network/rule.ts";
import { amount, any, checkKeys, type KeyChecks, mapOf } from "./checked-request.ts";

/** A network as a program writes it: `{ allow: ["example.org:443", { to: "api.example.org:443", methods: ["GET"] }] }`. */
export type NetworkRequest = boolean | AllowRequest;

export interface AllowRequest {
  /** A text is a rule with only `to`. */
  readonly allow: readonly (string | NetworkRule)[];
  readonly limits?: NetworkLimits;
  readonly dynamic?: DynamicNetwork;
}

/** Checked as a file's. @throws RangeError with the first thing that is wrong */
export function networkOf(given: NetworkRequest, name: string): Network {
  if (typeof given === "boolean") return given;
  const says = "true, false or { allow: [host:port] }";
  checkKeys(mapOf(given, name, says), NETWORK, name);
  if (!Array.isArray(given.allow)) throw new RangeError(`${name} must be ${says}`);
  const allow = given.allow.map((rule, index) => ruleOf(rule, `rule ${index + 1} of ${name}`));
  const [place] = placeFaults(allow);
  if (place !== undefined) throw new RangeError(`rule ${place.index + 1} of ${name}: ${place.fault}`);
  const { limits, dynamic } = given;
  if (limits !== undefined) checkKeys(mapOf(limits, name, says), LIMITS, `\`limits\` of ${name}`);
  return canonicalNetwork({ allow, ...(limits && { limits }), ...(dynamic && { dynamic: dynamicOf(dynamic, name) }) });
}

function ruleOf(given: string | NetworkRule, what: string): NetworkRule {
  const rule = typeof given === "string" ? { to: given } : given;
  checkKeys(mapOf(rule, what, "`host:port` or a map with `to`"), RULE, what);
  const { methods, paths, set, addresses, ...rest } = rule;
  const read: NetworkRule = {
    ...rest,
    to: oneOf(rule.to, readTarget, `\`to\` of ${what}`),
    ...(methods && { methods: eachOf(methods, readMethod, `\`methods\` of ${what}`) }),
    ...(paths && { paths: eachOf(paths, readPath, `\`paths\` of ${what}`) }),
    ...(set && { set: headersOf(set, `\`set\` of ${what}`) }),
    ...(addresses && { addresses: eachOf(addresses, readAddresses, `\`addresses\` of ${what}`) }),
  };
  const fault = privateAddressFault(read);
  if (fault !== null) throw new RangeError(`${what}: ${fault}`);
  return read;
}

function dynamicOf(dynamic: DynamicNetwork, name: string): DynamicNetwork {
  const what = `\`dynamic\` of ${name}`;
  checkKeys(mapOf(dynamic, what, "{ within: [host:port], max: 8 }"), DYNAMIC, what);
  amount(dynamic.max, `\`max\` of ${what}`);
  return { within: eachOf(dynamic.within, readTarget, `\`within\` of ${what}`), max: dynamic.max };
}

function headersOf(set: NonNullable<NetworkRule["set"]>, what: string): NonNullable<NetworkRule["set"]> {
  for (const [header, source] of Object.entries(mapOf(set, what, "a map of headers"))) {
    const { secret } = mapOf(source, `\`${header}\` in ${what}`, "{ secret: NAME }") as { secret?: unknown };
    const fault = headerFault(header) ?? nameFault(typeof secret === "string" ? secret : "");
    if (fault !== null) throw new RangeError(`\`${header}\` in ${what} ${fault}`);
  }
  return set;
}

/** A list that is empty would allow nothing, and hardly means that. */
function eachOf(raw: unknown, read: (raw: string) => TermRead, what: string): string[] {
  if (!Array.isArray(raw) || raw.length === 0) throw new RangeError(`${what} must be a list that is not empty`);
  return raw.map((each) => oneOf(each, read, what));
}

function oneOf(raw: unknown, read: (raw: string) => TermRead, what: string): string {
  const result = typeof raw === "string" ? read(raw) : { fault: "must be a text" };
  if ("value" in result) return result.value;
  throw new RangeError(`${what}: ${result.fault}`);
}

const list = (value: unknown, name: string): void => {
  if (!Array.isArray(value) || value.length === 0) throw new RangeError(`${name} must be a list that is not empty`);
};

const NETWORK: KeyChecks<AllowRequest> = { allow: any, limits: any, dynamic: any };
const DYNAMIC: KeyChecks<DynamicNetwork> = { within: any, max: any };
const LIMITS = Object.fromEntries(NETWORK_LIMITS.map((limit) => [limit, amount])) as KeyChecks<NetworkLimits>;
const RULE: KeyChecks<NetworkRule> = {
  to: any,
  methods: any,
  paths: any,
  set: any,
  addresses: any,
  tls: (value, name) => {
    if (value !== false) throw new RangeError(`${name} can only be false; leave it out otherwise`);
  },
  without: list,
  packages: any,
  artifacts: list,
};
