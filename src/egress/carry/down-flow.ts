import { type OnReadOpts, Socket } from "node:net";
import type { Duplex, Readable, Writable } from "node:stream";
import { BOUNDS } from "../model/outlet.ts";

/** Why a TLS client is refused, as RFC 8446 section 6.2 numbers it. */
const ALERTS = { access_denied: 49, decode_error: 50, missing_extension: 109, unrecognized_name: 112 } as const;
export type Alert = keyof typeof ALERTS;

/** A fatal alert, in the record version that every client takes. */
export function alertBytes(alert: Alert): Buffer {
  return Buffer.from([21, 3, 3, 0, 2, 2, ALERTS[alert]]);
}

/** Sends the last bytes and closes. What the client still sends is dropped for a moment, as a reset could overtake them. */
export function closeWith(socket: Duplex, last: Buffer | string): void {
  const timer = setTimeout(() => socket.destroy(), BOUNDS.lingerMs);
  socket.once("close", () => clearTimeout(timer));
  socket.once("end", () => socket.destroy());
  socket.end(last);
  socket.resume();
}

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
