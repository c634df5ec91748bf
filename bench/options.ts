import { resolve } from "node:path";
import { parseArgs } from "node:util";

/** `quick`: about one minute; `usual`: about five; `full`: also fleets of 10,000 items. */
export type Level = "quick" | "usual" | "full";

/** In the order in which they run. */
export const SUITE_NAMES = [
  "memory",
  "runs",
  "rates",
  "growth",
  "exec",
  "tools",
  "service",
  "network",
  "machines",
  "pure",
] as const;
export type SuiteName = (typeof SUITE_NAMES)[number];

const MAX_REPEATS = 9;

export interface BenchOptions {
  readonly level: Level;
  /** The files for the report as JSON and as a chart; absolute. Null: not written. */
  readonly json: string | null;
  readonly svg: string | null;
  /** Reports that were written as JSON, absolute: they are shown as one, and nothing is measured. Empty: measure. */
  readonly from: readonly string[];
  /** True: write the picture and the tables of README.md and docs/bench.md. */
  readonly pages: boolean;
  /** True: install the peers' packages first. */
  readonly peers: boolean;
  /** How often all of it is measured; the medians count. */
  readonly repeat: number;
  readonly suites: readonly SuiteName[];
  /** Of all cells and containers; one of Corral's own. */
  readonly policy: string;
  /** The command, as it was typed, without the files that it writes. */
  readonly command: string;
}

/** Parses the arguments of `npm run bench -- …`. Throws for an unknown option. */
export function parseOptions(args: readonly string[], cwd: string): BenchOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      quick: { type: "boolean", default: false },
      full: { type: "boolean", default: false },
      peers: { type: "boolean", default: false },
      repeat: { type: "string", default: "1" },
      policy: { type: "string", default: "batch" },
      json: { type: "string" },
      svg: { type: "string" },
      from: { type: "string", multiple: true, default: [] },
      pages: { type: "boolean", default: false },
      only: { type: "string", multiple: true, default: [] },
    },
  });
  // Where a report goes says nothing about what is measured, and would show private directories.
  const measuring = args.filter(
    (arg, at) => !/^--(json|svg)\b|^--pages$/.test(arg) && !/^--(json|svg)$/.test(args[at - 1] ?? ""),
  );
  if (values.quick && values.full) throw new Error("--quick and --full exclude each other");
  const repeat = Number(values.repeat);
  if (!Number.isInteger(repeat) || repeat < 1 || repeat > MAX_REPEATS)
    throw new Error(`--repeat takes a number from 1 to ${MAX_REPEATS}, not ${values.repeat}`);
  const unknown = values.only.find((name) => !SUITE_NAMES.some((known) => known === name));
  if (unknown !== undefined) throw new Error(`there is no suite ${unknown}; there are ${SUITE_NAMES.join(", ")}`);
  return {
    level: values.quick ? "quick" : values.full ? "full" : "usual",
    json: values.json === undefined ? null : resolve(cwd, values.json),
    svg: values.svg === undefined ? null : resolve(cwd, values.svg),
    from: values.from.map((file) => resolve(cwd, file)),
    pages: values.pages,
    peers: values.peers,
    repeat,
    policy: values.policy,
    command: ["npm run bench", ...(measuring.length === 0 ? [] : ["--", ...measuring])].join(" "),
    suites: SUITE_NAMES.filter((name) => values.only.length === 0 || values.only.includes(name)),
  };
}
