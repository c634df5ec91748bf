import { z } from "zod";
import { present } from "../text/present.ts";
import { named, nameFault } from "./terms/names.ts";
import { parseTemplate } from "./terms/sandbox-form.ts";
import { hostPath } from "./terms/terms.ts";
import { byKind, duration, kindOf, map } from "./yaml/shape.ts";

const name = named(nameFault);

const templateText = z
  .string()
  .min(1)
  .superRefine((raw, context) => {
    const parsed = parseTemplate(raw);
    if (!parsed.ok) context.addIssue({ code: "custom", message: parsed.fault });
  });

/** YAML reads `{path}` without quotes as a map, which is never meant here. */
const template = byKind(
  { text: templateText },
  'must be a text; put a text with braces in quotes, such as "/text/{stem}"',
);

const templates = byKind(
  { text: templateText.transform((only) => [only]), list: z.array(template).max(100) },
  'must be a text or a list of texts; put a text with braces in quotes, such as "{path}=in.pdf"',
);

/** Deeper than files written by hand, and safe for the stack. */
const MAX_INPUT_DEPTH = 64;

/** A JSON value in which every text is a template. Each fault is reported at its own text. */
const input = z.unknown().transform((raw, context): unknown => {
  const visit = (value: unknown, path: readonly (string | number)[]): void => {
    const fault = inputFault(value, path.length);
    if (fault !== null) context.issues.push({ code: "custom", input: raw, path: [...path], message: fault });
    else if (Array.isArray(value)) for (const [index, each] of value.entries()) visit(each, [...path, index]);
    else if (kindOf(value) === "map")
      for (const [key, each] of Object.entries(value as object)) visit(each, [...path, key]);
  };
  visit(raw, []);
  return raw;
});

function inputFault(value: unknown, depth: number): string | null {
  if (depth > MAX_INPUT_DEPTH) return `is nested more than ${MAX_INPUT_DEPTH} levels deep`;
  if (typeof value === "number" && !Number.isFinite(value)) return "is a number that JSON cannot express";
  if (typeof value === "bigint") return "is a number that JSON cannot express";
  if (typeof value !== "string") return null;
  const parsed = parseTemplate(value);
  return parsed.ok ? null : parsed.fault;
}

/** A name of something that a machine has, such as `gpu`. */
const label = name;

const machineNeeds = map({
  needs: byKind(
    { text: label.transform((only) => [only]), list: z.array(label).max(20) },
    "must be a label or a list of labels, such as `[gpu, big]`",
  ).optional(),
  priority: z.int().min(-100).max(100).optional(),
  weight: z.int().min(1).max(100).optional(),
});

/** How the items are run. */
const manner = {
  concurrency: byKind(
    { text: z.literal("auto"), number: z.int().min(0).max(1024) },
    "must be `auto` or a whole number",
  ).optional(),
  reuse: z.enum(["fresh", "scrubbed"]).optional(),
  retries: z.int().min(0).max(100).optional(),
  max_failures: z.int().min(0).max(1_000_000_000).optional(),
  cache: z.boolean().optional(),
  timeout: duration.optional(),
  machines: byKind(
    { switch: z.boolean(), map: machineNeeds },
    "must be true, false, or a map with `needs`, `priority` and `weight`",
  ).optional(),
};

const mannerMap = map(manner);

/** `fleet` of `corral.yaml`: defaults for every fleet. */
export const fleetManner = mannerMap.transform(mannerOf);

/** Each is absent if it is not declared. */
export interface FleetManner {
  /** 0: this process runs none of them itself. */
  readonly concurrency?: number | "auto";
  readonly reuse?: "fresh" | "scrubbed";
  /** Attempts after the first. */
  readonly retries?: number;
  /** More failed items than this end the fleet; null: none do. */
  readonly maxFailures?: number | null;
  readonly cache?: boolean;
  /** For one item; null: the worker's own. */
  readonly timeoutMs?: number | null;
  /** Which other machines may run items; null: none. */
  readonly machines?: MachineNeeds | null;
}

/** Which machines may run items of a fleet. */
export interface MachineNeeds {
  /** Labels that a machine must have. */
  readonly needs: readonly string[];
  /** Items of fleets with a higher one are claimed first. From -100 to 100; usually 0. */
  readonly priority: number;
  /** Its share beside other fleets of the same priority. From 1 to 100; usually 1. */
  readonly weight: number;
}

/** Every machine that takes part. */
export const ANY_MACHINE: MachineNeeds = { needs: [], priority: 0, weight: 1 };

export function mannerOf(raw: z.output<typeof mannerMap>): FleetManner {
  const { concurrency, reuse, retries, max_failures: maxFailures, cache, timeout: timeoutMs } = raw;
  const machines = machinesOf(raw.machines);
  return present({ concurrency, reuse, retries, maxFailures, cache, timeoutMs, machines });
}

function machinesOf(raw: z.output<typeof mannerMap>["machines"]): MachineNeeds | null | undefined {
  if (raw === undefined || typeof raw === "boolean") return raw === undefined ? raw : raw ? ANY_MACHINE : null;
  const { needs = [], priority = 0, weight = 1 } = raw;
  return { needs: [...new Set(needs)].toSorted(), priority, weight };
}

/** `fleets/NAME.yaml`. `fleet.ts` checks that it has exactly one of `over` and `manifest`. */
export const fleetYaml = map({
  version: z.literal(1),
  description: z.string().max(2000).default(""),
  worker: name,
  over: z.string().min(1).max(4096).optional(),
  manifest: hostPath.optional(),
  format: z.enum(["jsonl", "csv", "paths"]).optional(),
  within: z.array(hostPath).max(100).default([]),
  attach: templates.default([]),
  allow_read: templates.optional(),
  allow_write: templates.optional(),
  input: input.optional(),
  key: template.optional(),
  ...manner,
  policy: name.optional(),
  allow_empty: z.boolean().default(false),
});

export type FleetYaml = z.output<typeof fleetYaml>;
