import type { KeyObject } from "node:crypto";
import type { TrailPaths } from "../state/state-paths.ts";
import { linesOf, openTrail } from "./lines.ts";
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
