import { nearest } from "../declarations/yaml/shape.ts";
import { CONSENTS, OPERATIONS } from "../sandbox/approval.ts";
import { LIMIT_NAMES } from "../sandbox/limits.ts";

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

export function mapOf(value: unknown, name: string, says: string): object {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  throw new RangeError(`${name} must be ${says}`);
}
