import { resolve } from "node:path";
import { parseArgs } from "node:util";

/** `quick`: about a minute; `usual`: about five; `full`: with fleets of 10,000 items as well. */
export type Level = "quick" | "usual" | "full";

/** In the order in which they run. */
export const SUITE_NAMES = ["memory", "runs", "rates", "growth", "tools", "pure"] as const;
export type SuiteName = (typeof SUITE_NAMES)[number];

export interface BenchOptions {
  readonly level: Level;
  /** Where the report goes as JSON, and as a chart; null: nowhere. Absolute. */
  readonly json: string | null;
  readonly svg: string | null;
  /** True: the peers' packages are installed first. */
  readonly peers: boolean;
  readonly suites: readonly SuiteName[];
}

/** What `npm run bench -- …` was asked for. Throws for an option that there is not. */
export function parseOptions(args: readonly string[], cwd: string): BenchOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      quick: { type: "boolean", default: false },
      full: { type: "boolean", default: false },
      peers: { type: "boolean", default: false },
      json: { type: "string" },
      svg: { type: "string" },
      only: { type: "string", multiple: true, default: [] },
    },
  });
  if (values.quick && values.full) throw new Error("--quick and --full exclude each other");
  const unknown = values.only.find((name) => !SUITE_NAMES.some((known) => known === name));
  if (unknown !== undefined) throw new Error(`there is no suite ${unknown}; there are ${SUITE_NAMES.join(", ")}`);
  return {
    level: values.quick ? "quick" : values.full ? "full" : "usual",
    json: values.json === undefined ? null : resolve(cwd, values.json),
    svg: values.svg === undefined ? null : resolve(cwd, values.svg),
    peers: values.peers,
    suites: SUITE_NAMES.filter((name) => values.only.length === 0 || values.only.includes(name)),
  };
}
