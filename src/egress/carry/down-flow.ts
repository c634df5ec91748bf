import { type OnReadOpts, Socket } from "node:net";
import type { Writable } from "node:stream";
import { BOUNDS } from "../model/outlet.ts";

/**
 * What a host sends, passed on to a cell. It is read into buffers that are used again and that are larger for a quick host:
 * the `data` events of a stream take half as much work again. Give `onread` to the socket when it is made, and leave that paused.
 */
export class DownFlow {
  readonly onread: OnReadOpts = {
    buffer: () => this.#spare.pop() ?? Buffer.allocUnsafeSlow(this.#pieceBytes),
    callback: (length, buffer) => this.#take(length, buffer),
  };
  #pieceBytes: number = BOUNDS.pieceBytes.least;
  /** Free buffers: never more than were on their way at once. */
  readonly #spare: Uint8Array[] = [];
  #pass: ((piece: Buffer, buffer: Uint8Array) => boolean) | null = null;

  /** As {@link pump}, for the socket that was made with `onread`. */
  pump(from: Socket, to: Writable, passing: (piece: Buffer) => boolean): void {
    const drained = (): void => void from.resume();
    this.#pass = (piece, buffer) => {
      if (!passing(piece)) return true;
      // A small piece must not keep a large buffer while it waits.
      const isSmall = piece.length * 4 < buffer.length;
      if (isSmall) this.#recycle(buffer);
      // Only the kernel has copied what it was given; another stream may still show the buffer to a reader.
      const isFree = !isSmall && to instanceof Socket;
      const more = to.write(isSmall ? Buffer.from(piece) : piece, () => isFree && this.#recycle(buffer));
      if (more || to.writableLength <= BOUNDS.bufferedBytes) return true;
      to.once("drain", drained);
      return false;
    };
    from.once("end", () => to.end());
    if (from.readableEnded) to.end();
    else from.resume();
  }

  /** False: nothing more is read until `resume`. */
  #take(length: number, buffer: Uint8Array): boolean {
    if (length === buffer.length) this.#pieceBytes = Math.min(2 * length, BOUNDS.pieceBytes.most);
    return this.#pass?.(Buffer.from(buffer.buffer, buffer.byteOffset, length), buffer) ?? true;
  }

  #recycle(buffer: Uint8Array): void {
    if (buffer.length === this.#pieceBytes) this.#spare.push(buffer);
  }
}
