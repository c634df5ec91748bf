import { parseDuration } from "../../declarations/yaml/shape.ts";
import type { ManifestFormat } from "../../fleet/items/read-items.ts";
import type { Reuse } from "../../fleet/model/item.ts";
import type { ElsewhereOptions } from "../consent/person.ts";
import { UsageError } from "../terminal/arguments.ts";

/* What `corral map` is given, whether the fleet runs here or at a service. */

/** Who else follows a running fleet. */
export interface WatchOptions extends ElsewhereOptions {
  readonly json?: boolean;
  /** A file, or `-` for standard output. */
  readonly events?: string;
  readonly notify?: string;
  /** A file for its results in the form of JUnit. */
  readonly junit?: string;
}

export interface MapOptions extends WatchOptions {
  readonly project: string;
  readonly fleet?: string;
  readonly over?: string;
  readonly manifest?: string;
  readonly format?: ManifestFormat;
  readonly within: readonly string[];
  readonly attach: readonly string[];
  readonly allowRead: readonly string[];
  readonly allowWrite: readonly string[];
  readonly input?: string;
  readonly key?: string;
  readonly concurrency?: string;
  readonly machines?: boolean;
  readonly needs: readonly string[];
  readonly priority?: string;
  readonly reuse?: Reuse;
  readonly retries?: string;
  readonly maxFailures?: string;
  readonly timeout?: string;
  readonly allowEmpty?: boolean;
  readonly dryRun?: string | true;
  readonly cache: boolean;
  readonly policy?: string;
}

export const OF_MANIFESTS = ["format", "within"] as const;
export const OF_ITEMS = ["attach", "allowRead", "allowWrite", "input", "key"] as const;

/** An option that would have no effect is refused: the user may rely on it, for example on a narrower sandbox. */
export function refuseIdle(options: MapOptions, names: readonly (keyof MapOptions)[], why: string): void {
  const isSaid = (name: keyof MapOptions): boolean =>
    Array.isArray(options[name]) ? options[name].length > 0 : options[name] !== undefined;
  const said = names.find(isSaid);
  if (said !== undefined)
    throw new UsageError(`--${said.replace(/[A-Z]/, (letter) => `-${letter.toLowerCase()}`)} ${why}`);
}

export function shownSource({ over, manifest }: MapOptions): string {
  return over === undefined ? `--manifest ${manifest}` : `--over ${over}`;
}

export function priorityIn(text: string): number {
  if (/^-?\d{1,3}$/.test(text) && Math.abs(Number(text)) <= 100) return Number(text);
  throw new UsageError("--priority must be a whole number from -100 to 100");
}

export function concurrencyOf({ concurrency }: MapOptions): number | "auto" | undefined {
  return concurrency === undefined || concurrency === "auto" ? concurrency : countIn("--concurrency", concurrency);
}

export function durationIn(option: string, text: string): number {
  const ms = parseDuration(text);
  if (ms === null) throw new UsageError(`${option} must be a duration such as 500ms, 30s, 5m or 1h`);
  return ms;
}

const MAX_COUNT = 1_000_000;

export function countIn(option: string, text: string): number {
  if (!/^\d+$/.test(text) || Number(text) > MAX_COUNT)
    throw new UsageError(`${option} must be a whole number from 0 to ${MAX_COUNT}`);
  return Number(text);
}
