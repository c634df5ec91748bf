import { z } from "zod";
import { type JsonLook, rawValue } from "./raw-value.ts";

const MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 } as const;
const BYTES = { "": 1, k: 1024, m: 1024 ** 2, g: 1024 ** 3 } as const;

/** `500ms`, `30s`, `5m`, `1h` in milliseconds; null for anything else. A bare number is refused, because it has no unit. */
export function parseDuration(raw: unknown): number | null {
  const [, amount, unit] = /^(\d{1,9})(ms|s|m|h)$/.exec(scalarText(raw)) ?? [];
  return amount === undefined ? null : positive(Number(amount) * MS[unit as keyof typeof MS]);
}

/** `512k`, `64m`, `1g` (binary), or a plain number, in bytes; null for anything else. */
export function parseSize(raw: unknown): number | null {
  const [, amount, unit] = /^(\d{1,15})([kmg]?)$/.exec(scalarText(raw)) ?? [];
  return amount === undefined ? null : positive(Number(amount) * BYTES[unit as keyof typeof BYTES]);
}

/** A duration in a file, parsed to milliseconds. */
export const duration = unit(
  parseDuration,
  { type: "string", pattern: "^[0-9]{1,9}(ms|s|m|h)$" },
  "must be a duration such as `500ms`, `30s`, `5m` or `1h`",
);

/** A size in a file, parsed to bytes. */
export const size = unit(
  parseSize,
  { type: ["integer", "string"], minimum: 1, pattern: "^[0-9]{1,15}[kmg]?$" },
  "must be a size such as `512k`, `64m`, `1g`, or a number of bytes",
);

function unit(parse: (raw: unknown) => number | null, look: JsonLook, message: string) {
  return rawValue(() => look).transform((raw, context): number => {
    const parsed = raw === undefined ? null : parse(raw);
    if (parsed !== null) return parsed;
    context.issues.push({ code: "custom", input: raw, message: raw === undefined ? "is missing" : message });
    return z.NEVER;
  });
}

function scalarText(raw: unknown): string {
  return typeof raw === "string" || typeof raw === "number" ? String(raw) : "";
}

function positive(value: number): number | null {
  return Number.isSafeInteger(value) && value > 0 ? value : null;
}
