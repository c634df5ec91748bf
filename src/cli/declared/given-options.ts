import type { ApprovalMode } from "../../sandbox/approval.ts";
import { LIMIT_NAMES, LIMITS, type LimitName } from "../../sandbox/limits.ts";

/** A limit as it is typed, by its key in a worker's file. */
type LimitOptions = { readonly [Name in LimitName as (typeof LIMITS)[Name]["key"]]?: string };

/** The options that say what a command gets without a project. */
export interface ImpliedOptions extends LimitOptions {
  readonly image?: string;
  readonly ro?: readonly string[];
  readonly rw?: readonly string[];
  readonly allow?: readonly string[];
  readonly packages?: readonly string[];
  readonly apt?: readonly string[];
  /** `NAME=VALUE`, or `NAME` with the value that it has here. */
  readonly env?: readonly string[];
  readonly workdir?: string;
  readonly name?: string;
  readonly policy?: string;
  readonly approve?: ApprovalMode;
  readonly apply?: boolean;
  readonly save?: string;
}

/** Those of its options that a worker of a project does not take, as they are typed. */
export function impliedOptionsIn(options: ImpliedOptions): string[] {
  const { ro = [], rw = [], allow = [], packages = [], apt = [], env = [] } = options;
  const given = {
    "--image": options.image !== undefined,
    "--ro": ro.length > 0,
    "--rw": rw.length > 0,
    "--allow": allow.length > 0,
    "--packages": packages.length > 0,
    "--apt": apt.length > 0,
    ...Object.fromEntries(LIMIT_NAMES.map((limit) => [`--${LIMITS[limit].key}`, limitGiven(options, limit)])),
    "--env": env.length > 0,
    "--workdir": options.workdir !== undefined,
    "--name": options.name !== undefined,
    "--apply": options.apply === true,
    "--save": options.save !== undefined,
  };
  return Object.entries(given).flatMap(([option, isGiven]) => (isGiven ? [option] : []));
}

function limitGiven(options: ImpliedOptions, limit: LimitName): boolean {
  return options[LIMITS[limit].key] !== undefined;
}

/** Those that are given, by their keys in a worker's file. */
export function limitsIn(options: ImpliedOptions): Readonly<Record<string, string>> {
  return Object.fromEntries(
    LIMIT_NAMES.flatMap((limit) => {
      const { key } = LIMITS[limit];
      const value = options[key];
      return value === undefined ? [] : [[key, value]];
    }),
  );
}
