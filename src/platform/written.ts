import type { Writable } from "node:stream";

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
