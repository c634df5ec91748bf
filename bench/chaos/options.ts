import { parseArgs } from "node:util";
import { FAULTS, type FaultName } from "./faults.ts";

export interface ChaosOptions {
  readonly items: number;
  /** How long an item sleeps. */
  readonly itemMs: number;
  readonly secondsBetween: number;
  /** The fleet has to end within this time. */
  readonly minutes: number;
  readonly seed: number;
  /** 2: the third machine uses an Engine of its own, which the harness starts. */
  readonly engines: 1 | 2;
  readonly faults: readonly FaultName[];
  /** At most so many; null: until the fleet ends. */
  readonly mostFaults: number | null;
  /** Of each machine. */
  readonly concurrency: number;
  readonly json: boolean;
  /** The folder with logs, projects and the database stays. */
  readonly keep: boolean;
}

const MAX_ITEMS = 1_000_000;

/** @throws Error for an unknown option or value */
export function parseChaosOptions(args: readonly string[]): ChaosOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      items: { type: "string", default: "200" },
      "item-ms": { type: "string", default: "0" },
      "seconds-between": { type: "string", default: "10" },
      minutes: { type: "string", default: "60" },
      seed: { type: "string", default: String(Date.now() % 100_000) },
      engines: { type: "string", default: "2" },
      "only-faults": { type: "string", default: FAULTS.join(",") },
      "most-faults": { type: "string" },
      concurrency: { type: "string", default: "2" },
      json: { type: "boolean", default: false },
      keep: { type: "boolean", default: false },
    },
  });
  const whole = (name: string, value: string, least: number, most: number): number => {
    const number = Number(value);
    if (!Number.isInteger(number) || number < least || number > most)
      throw new Error(`--${name} takes a number from ${least} to ${most}, not ${value}`);
    return number;
  };
  const faults = values["only-faults"].split(",").filter((name) => name !== "");
  const unknown = faults.find((name) => !FAULTS.some((known) => known === name));
  if (unknown !== undefined) throw new Error(`there is no fault ${unknown}; there are ${FAULTS.join(", ")}`);
  return {
    items: whole("items", values.items, 1, MAX_ITEMS),
    itemMs: whole("item-ms", values["item-ms"], 0, 600_000),
    secondsBetween: whole("seconds-between", values["seconds-between"], 1, 3600),
    minutes: whole("minutes", values.minutes, 1, 24 * 60),
    seed: whole("seed", values.seed, 0, 2 ** 32 - 1),
    engines: whole("engines", values.engines, 1, 2) === 1 ? 1 : 2,
    faults: faults as FaultName[],
    mostFaults: values["most-faults"] === undefined ? null : whole("most-faults", values["most-faults"], 0, 100_000),
    concurrency: whole("concurrency", values.concurrency, 1, 64),
    json: values.json,
    keep: values.keep,
  };
}
