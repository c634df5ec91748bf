import type { Writable } from "node:stream";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

/** Writes to a stream. A promise while its reader is behind, by more than `aheadBytes`: until it settles, what is written waits in memory. Never rejects. */
export function written(stream: Writable, chunk: Uint8Array | string, aheadBytes = 0): Promise<void> | undefined {
  if (stream.write(chunk) || stream.writableLength < aheadBytes || !stream.writable) return undefined;
  return new Promise((resolve) => {
    const caughtUp = (): void => {
      stream.off("drain", caughtUp).off("close", caughtUp);
      resolve();
    };
    stream.on("drain", caughtUp).on("close", caughtUp);
  });
}

/**
 * What may lie there unused. To look for it takes half a millisecond. When it is about as much as the heap has, V8 goes through all of that
 * instead, which takes a hundred.
 */
const MAX_UNUSED_BYTES = 2 * 1024 ** 2;

type Collect = (options: { readonly type: "minor" }) => void;

/**
 * The same pieces; what held those that were read is freed soon. A piece is a small object of the heap with a buffer outside of it, and V8 looks for
 * unused objects when many have been made.
 */
export async function* passedOn(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as Collect;
  let unused = 0;
  for await (const piece of pieces) {
    yield piece;
    unused += piece.length;
    if (unused < MAX_UNUSED_BYTES) continue;
    unused = 0;
    collect({ type: "minor" });
  }
}
