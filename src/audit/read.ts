import { open } from "node:fs/promises";
import { hasCode } from "../platform/errno.ts";
import type { TrailPaths } from "../state/state-paths.ts";
import { linesOf } from "./lines.ts";
import { type SealedRecord, unsealed } from "./seal.ts";

/**
 * The records of a trail, oldest first, in groups. Null is a line that is not a record. The order is not checked: `verifyTrail`
 * does that. Yields nothing if there is no trail.
 */
export async function* recordsOf(place: TrailPaths, key: Buffer): AsyncGenerator<readonly (SealedRecord | null)[]> {
  const handle = await open(place.trail, "r").catch((error: unknown) => {
    if (!hasCode(error, "ENOENT")) throw error;
    return null;
  });
  if (handle === null) return;
  try {
    const { size } = await handle.stat();
    for await (const lines of linesOf(handle, 0, size))
      yield lines.map(({ bytes }) => (bytes === null ? null : unsealed(key, bytes)));
  } finally {
    await handle.close();
  }
}
