import { printableLine } from "../../operations/wording/printable.ts";
import { UsageError } from "./usage-error.ts";

/** What an option that takes a date says, in milliseconds since 1970. A date alone is UTC. */
export function dateOf(option: string, text: string): number {
  const at = Date.parse(text);
  if (Number.isNaN(at))
    throw new UsageError(
      `${option} takes a date such as 2025-01-31 or 2025-01-31T14:00Z, not ${printableLine(text, 80)}`,
    );
  return at;
}
