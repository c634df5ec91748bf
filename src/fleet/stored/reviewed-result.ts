import type { ItemResult, Reviewed } from "../model/item.ts";

/** The result of a pending item after a person's decision. */
export function reviewedResult(before: ItemResult, counts: Reviewed["counts"]): ItemResult {
  return { ...before, ...outcomeOf(counts), changeset: { id: null, counts } };
}

function outcomeOf(counts: Reviewed["counts"]): Pick<ItemResult, "error"> & { status: string } {
  const applied = counts.applied ?? 0;
  const all = Object.values(counts).reduce((sum, count) => sum + count, 0);
  if (applied === all && all > 0) return { status: "applied", error: null };
  const message = `Of its ${all} changes, ${applied} were applied. The others were discarded or refused.`;
  if (applied === 0) return { status: "discarded", error: { code: "CHANGES_DISCARDED", message } };
  return { status: "partly_applied", error: { code: "CHANGES_PARTLY_APPLIED", message } };
}
