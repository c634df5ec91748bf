import { z } from "zod";
import { nameFault } from "../../declarations/terms/names.ts";
import { examine } from "../../json/examine.ts";
import type { FleetSpec } from "../model/item.ts";
import type { Agreement } from "../model/work.ts";

const name = z.string().refine((text) => nameFault(text) === null);
const count = z.number().int().min(0).max(1_000_000_000);

const offered = z.object({
  version: z.literal(1),
  worker: name,
  policy: name.nullable(),
  concurrency: z.union([z.literal("auto"), count]),
  reuse: z.enum(["fresh", "scrubbed"]),
  timeoutMs: z.number().positive().nullable(),
  retries: count,
  maxFailures: count.nullable(),
  cache: z.boolean(),
  source: z.string().max(10_000),
});

/** The spec of a fleet as another machine wrote it into the database; null if it is none that this version can read. */
export function offeredSpec(raw: unknown): FleetSpec | null {
  const parsed = examine(offered, raw);
  return parsed.success ? parsed.data : null;
}

/** A longer one is none that Corral makes. */
const MAX_TEXT = 10_000;
const texts = z.record(z.string().max(MAX_TEXT), z.string().max(MAX_TEXT));
const agreement = z.object({ declarations: texts, images: texts, trees: texts });

/** What must agree, as another machine wrote it; null if it is none that this version can read. */
export function offeredAgreement(raw: unknown): Agreement | null {
  const parsed = examine(agreement, raw);
  return parsed.success ? parsed.data : null;
}
