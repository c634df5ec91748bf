import { lstat } from "node:fs/promises";
import path, { type PlatformPath } from "node:path";
import type { ApprovalMode } from "../../sandbox/approval.ts";
import type { LIMITS, LimitName } from "../../sandbox/limits.ts";
import { printableLine } from "../../text/visible.ts";
import { UsageError } from "../terminal/arguments.ts";
import type { Terminal } from "../terminal/terminal.ts";

type LimitKey = (typeof LIMITS)[LimitName]["key"];

/** An option for each limit, by its key in a worker's file, with its help. The table of limits itself is not loaded by a command that prints what it is. */
export const LIMIT_OPTIONS: Readonly<Record<LimitKey, string>> = {
  timeout: "end it after this time, such as 10m",
  memory: "let it use at most this much memory, such as 1g",
  cpus: "let it use at most so many processors, such as 0.5",
  pids: "let it have at most so many processes and threads",
  output: "let it print at most this much, such as 8m",
  disk: "let it write at most this much to its folders",
};

const LIMIT_KEYS = Object.keys(LIMIT_OPTIONS) as readonly LimitKey[];

/** As they are typed. */
type LimitOptions = { readonly [Key in LimitKey]?: string };

/** The options that say what a command gets without a project. */
export interface ImpliedOptions extends LimitOptions {
  readonly image?: string;
  readonly ro?: readonly string[];
  readonly rw?: readonly string[];
  readonly allow?: readonly string[];
  readonly packages?: readonly string[];
  readonly apt?: readonly string[];
  readonly pip?: readonly string[];
  readonly npm?: readonly string[];
  /** Where the registries of packages may be, if not at public addresses. */
  readonly addresses?: readonly string[];
  /** `NAME=VALUE`, or `NAME` with the value that it has here. */
  readonly env?: readonly string[];
  readonly workdir?: string;
  readonly name?: string;
  readonly policy?: string;
  readonly approve?: ApprovalMode;
  readonly apply?: boolean;
  readonly dynamic?: boolean;
  readonly save?: string;
}

/** Those of its options that a worker of a project does not take, as they are typed. */
export function impliedOptionsIn(options: ImpliedOptions): string[] {
  const {
    ro = [],
    rw = [],
    allow = [],
    packages = [],
    apt = [],
    pip = [],
    npm = [],
    addresses = [],
    env = [],
  } = options;
  const given = {
    "--image": options.image !== undefined,
    "--ro": ro.length > 0,
    "--rw": rw.length > 0,
    "--allow": allow.length > 0,
    "--packages": packages.length > 0,
    "--apt": apt.length > 0,
    "--pip": pip.length > 0,
    "--npm": npm.length > 0,
    "--addresses": addresses.length > 0,
    ...Object.fromEntries(LIMIT_KEYS.map((key) => [`--${key}`, options[key] !== undefined])),
    "--env": env.length > 0,
    "--workdir": options.workdir !== undefined,
    "--name": options.name !== undefined,
    "--dynamic": options.dynamic === true,
    "--apply": options.apply === true,
    "--save": options.save !== undefined,
  };
  return Object.entries(given).flatMap(([option, isGiven]) => (isGiven ? [option] : []));
}

/** Those that are given, by their keys in a worker's file. */
export function limitsIn(options: ImpliedOptions): Readonly<Record<string, string>> {
  return Object.fromEntries(
    LIMIT_KEYS.flatMap((key) => {
      const value = options[key];
      return value === undefined ? [] : [[key, value]];
    }),
  );
}

/** The variables of `--env`. @throws UsageError */
export function variablesIn(
  { env: given = [] }: ImpliedOptions,
  env: Terminal["env"],
): Readonly<Record<string, string>> {
  const values = new Map<string, string>();
  for (const raw of given) {
    const [, name = raw, value = env[raw]] = /^([^=]*)=(.*)$/s.exec(raw) ?? [];
    if (value === undefined)
      throw new UsageError(`--env ${printableLine(raw, 100)}: there is no such variable here; write NAME=VALUE`);
    values.set(name, value);
  }
  return Object.fromEntries(values);
}

/** What an option says as `PATH=NAME` or as `PATH` alone. A path with `=` in it is taken whole if it exists. `resolve`, `sep`: of another platform. */
export async function namedPath(
  raw: string,
  cwd: string,
  { resolve, sep }: Pick<PlatformPath, "resolve" | "sep"> = path,
): Promise<{ readonly path: string; readonly name?: string }> {
  const equals = raw.lastIndexOf("=");
  const name = raw.slice(equals + 1);
  const named =
    equals > 0 && name !== "" && !name.includes("/") && !name.includes(sep) && !(await exists(resolve(cwd, raw)));
  return named ? { path: raw.slice(0, equals), name } : { path: raw };
}

async function exists(path: string): Promise<boolean> {
  return (await lstat(path).catch(() => null)) !== null;
}
