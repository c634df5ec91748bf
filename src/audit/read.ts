import type { KeyObject } from "node:crypto";
import type { TrailPaths } from "../state/state-paths.ts";
import { linesBack, linesOf, openTrail } from "./lines.ts";
import { type SealedRecord, unsealed } from "./seal.ts";

/**
 * The records of a trail, oldest first, in groups. Null is a line that is not a record. The order is not checked: `verifyTrail`
 * does that. Yields nothing if there is no trail.
 */
export async function* recordsOf(place: TrailPaths, key: KeyObject): AsyncGenerator<readonly (SealedRecord | null)[]> {
  await using handle = await openTrail(place.trail);
  if (handle === null) return;
  const { size } = await handle.stat();
  for await (const lines of linesOf(handle, 0, size))
    yield lines.map(({ bytes }) => (bytes === null ? null : unsealed(key, bytes)));
}

/** One line of the trail that was read from its end. */
export interface PlacedRecord {
  /** In bytes: what is older ends here or before. */
  readonly start: number;
  /** Null: it is not a record. */
  readonly record: SealedRecord | null;
}

/** The same from the end, the newest first. `before`: a position of the trail, which must be the end of a line; absent: all of it. */
export async function* recordsBack(
  place: TrailPaths,
  key: KeyObject,
  before?: number,
): AsyncGenerator<readonly PlacedRecord[]> {
  await using handle = await openTrail(place.trail);
  if (handle === null) return;
  const { size } = await handle.stat();
  for await (const lines of linesBack(handle, Math.min(size, before ?? size)))
    yield lines.map(({ start, bytes }) => ({ start, record: bytes === null ? null : unsealed(key, bytes) }));
}
