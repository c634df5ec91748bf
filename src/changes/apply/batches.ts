import { type Change, placeKey } from "../model/changeset.ts";

/** How many changes share the waits for the disk. Each holds two descriptors meanwhile. */
const MAX_BATCH = 64;

/**
 * Neighbours that can be made ready together: none needs what another one brings, be it the directory that it is in or
 * the place of something that gives way. The order stays as it is.
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
