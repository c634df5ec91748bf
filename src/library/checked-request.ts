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
import { nearest } from "../declarations/yaml/shape.ts";
import { CONSENTS, OPERATIONS } from "../sandbox/approval.ts";
import { LIMIT_NAMES } from "../sandbox/limits.ts";
import { canonicalNetwork, NETWORK_LIMITS } from "../sandbox/network/network.ts";
import type { DynamicNetwork, Network, NetworkLimits, NetworkRule } from "../sandbox/network/rule.ts";

/* What a program gives to a sandbox, checked as files are: a restriction that is misspelt must not be left out. */

type Check = (value: unknown, name: string) => void;

/** A check for each key that is known. */
export type KeyChecks<Given> = Readonly<Record<Keys<Given>, Check>>;

/** Those of every form of a union. */
type Keys<Given> = Given extends unknown ? keyof Given : never;

/** @throws RangeError for a key that is not known, or a value that says nothing */
export function checkKeys(given: object, checks: Readonly<Record<string, Check>>, what: string): void {
  mapOf(given, what, "an object");
  const known = Object.keys(checks);
  for (const [key, value] of Object.entries(given)) {
    const check = Object.hasOwn(checks, key) ? checks[key] : undefined;
    if (check === undefined)
      throw new RangeError(`${what} has no \`${key}\`${nearest(key, known) ?? `; there are: ${known.join(", ")}`}`);
    if (value !== undefined) check(value, `\`${key}\` of ${what}`);
  }
}

/** What another function checks. */
export const any: Check = () => {};

/** A path, or several. */
export const pathList: Check = (value, name) => {
  const paths = [value].flat();
  if (!paths.every((path) => typeof path === "string"))
    throw new RangeError(`${name} must be a path or a list of paths`);
};

export const text: Check = (value, name) => {
  if (typeof value !== "string") throw new RangeError(`${name} must be a text`);
};

export const suffixList: Check = (value, name) => {
  if (!Array.isArray(value) || !value.every((one) => typeof one === "string" && /^\.?[^/.\s][^/\s]*$/.test(one)))
    throw new RangeError(`${name} must be a list of suffixes, such as ".md"`);
};

export const trueOrFalse: Check = (value, name) => {
  if (typeof value !== "boolean") throw new RangeError(`${name} must be true or false`);
};

/** There is no `false`: a derivation never removes it. */
export const onlyTrue: Check = (value, name) => {
  if (value !== true) throw new RangeError(`${name} can only be true; leave it out otherwise`);
};

export const modeName: Check = oneOf(["ro", "rw"]);

export const approvalMap: Check = (value, name) => {
  const rows = Object.fromEntries(OPERATIONS.map((operation) => [operation, oneOf(CONSENTS)]));
  checkKeys(mapOf(value, name, `a map of ${OPERATIONS.join(", ")}`), rows, name);
};

export const limitMap: Check = (value, name) => {
  const rows = Object.fromEntries(LIMIT_NAMES.map((limit) => [limit, amount]));
  checkKeys(mapOf(value, name, `a map of ${LIMIT_NAMES.join(", ")}`), rows, name);
};

export const policyObject: Check = (value, name) => void mapOf(value, name, "a policy, as `loadPolicy` returns it");

function oneOf(names: readonly string[]): Check {
  return (value, name) => {
    if (!names.some((one) => one === value)) throw new RangeError(`${name} must be one of: ${names.join(", ")}`);
  };
}

export const amount: Check = (value, name) => {
  if (typeof value !== "number" || !(value >= 0)) throw new RangeError(`${name} must be a number, 0 or more`);
};

export const byteCount: Check = (value, name) => {
  if (!Number.isSafeInteger(value) || Number(value) < 0)
    throw new RangeError(`${name} must be a whole number, 0 or more`);
};

function mapOf(value: unknown, name: string, says: string): object {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  throw new RangeError(`${name} must be ${says}`);
}

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
    to: termOf(rule.to, readTarget, `\`to\` of ${what}`),
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
  return raw.map((each) => termOf(each, read, what));
}

function termOf(raw: unknown, read: (raw: string) => TermRead, what: string): string {
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
