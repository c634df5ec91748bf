import { type Change, placeKey } from "../model/changeset.ts";

/** The most changes that are flushed together. Each holds two descriptors open. */
const MAX_BATCH = 64;

/**
 * Groups consecutive changes that do not depend on each other: none needs a directory that another makes, or a name that
 * another frees. The order is kept.
 */
export function* inBatches(changes: Iterable<Change>): Generator<readonly Change[]> {
  let batch: Change[] = [];
  let touched = new Set<string>();
  for (const change of changes) {
    const own = placeKey(change.mount, change.parts);
    if (
      batch.length === MAX_BATCH ||
      touched.has(own) ||
      touched.has(placeKey(change.mount, change.parts.slice(0, -1)))
    ) {
      yield batch;
      batch = [];
      touched = new Set();
    }
    batch.push(change);
    touched.add(own);
  }
  if (batch.length > 0) yield batch;
}
