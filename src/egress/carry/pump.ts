import type { Readable, Writable } from "node:stream";
import { BOUNDS } from "../model/outlet.ts";

/**
 * Passes bytes on until the end of `from`, which ends `to`. `passing` sees each piece first; if it is false, nothing more
 * is passed. Reads no faster than `to` takes. Errors and closing are the caller's.
 */
export function pump(from: Readable, to: Writable, passing: (piece: Buffer) => boolean): void {
  const drained = (): void => {
    from.resume();
  };
  from.on("data", (piece: Buffer) => {
    if (!passing(piece)) return;
    // Not what `write` returns: it is false for each whole piece that a socket reads, also if the kernel took it at once.
    if (!to.write(piece) && to.writableLength > BOUNDS.bufferedBytes) {
      from.pause();
      to.once("drain", drained);
    }
  });
  from.once("end", () => to.end());
  if (from.readableEnded) to.end();
  else from.resume();
}
