import { words } from "../../text/amounts.ts";

/** `3 applied, 1 conflict`, the most frequent first. */
export function outcomeText(changes: readonly { readonly outcome: string }[]): string {
  const counts = new Map<string, number>();
  for (const { outcome } of changes) counts.set(outcome, (counts.get(outcome) ?? 0) + 1);
  if (counts.size === 0) return "nothing was applied";
  return [...counts]
    .toSorted(([, a], [, b]) => b - a)
    .map(([outcome, count]) => `${count} ${words(outcome)}`)
    .join(", ");
}
