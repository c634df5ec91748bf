import { clipped } from "../../../../text/visible.ts";
import type { AuditRecord } from "../../api/shapes.ts";

/** The fields depend on its type. */
type Fields = AuditRecord & { readonly [field: string]: unknown };

/** As `corral audit --type` has them. */
export const TYPES = [
  "run_requested",
  "run_started",
  "agent_started",
  "tool_used",
  "run_ended",
  "refused",
  "approval",
  "grant",
  "grant_revoked",
  "changes_applying",
  "changes_applied",
  "changes_discarded",
  "egress",
  "pushed",
  "repaired",
];

export const SINCE: Readonly<Record<string, number>> = {
  last_hour: 3_600_000,
  last_day: 86_400_000,
  last_week: 7 * 86_400_000,
};

const OWN = new Set(["seq", "at", "type", "run", "root", "worker", "prev", "hash", "plan"]);
const MAX_CHARS = 240;

/** The fields of a record in one line, those first that say most. */
export function summaryOf(record: Fields): string {
  const { status, tool, on, codes, outcome, paths, to, directory, messages } = record;
  const first = [tool, status, outcome, codes, messages, on, paths, directory, to].flatMap(textOf);
  if (first.length > 0) return clipped(first.join(" · "), MAX_CHARS);
  const rest = Object.entries(record).filter(([field]) => !OWN.has(field));
  const texts = rest.flatMap(([field, value]) => textOf(value).map((text) => `${field} ${text}`));
  return clipped(texts.join(" · "), MAX_CHARS);
}

function textOf(value: unknown): string[] {
  if (value === undefined || value === null || value === "") return [];
  if (Array.isArray(value)) return value.length === 0 ? [] : [value.flatMap(textOf).join(", ")];
  if (typeof value === "object") return Object.values(value).flatMap(textOf);
  return [String(value)];
}
