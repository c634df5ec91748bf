import type { Duplex } from "node:stream";

/** What a client sent before a verdict. The verdict is null if there was none in time, or the client closed. */
export interface Held<V> {
  readonly bytes: Buffer;
  readonly verdict: V | null;
}

export interface Judging<V> {
  /** Null as long as more bytes are needed. `ended`: the client has ended its side, so no more come. */
  readonly judge: (bytes: Buffer, ended: boolean) => V | null;
  /** Bytes that came before. */
  readonly start?: Buffer;
  /** From the first byte, since a server may speak first. */
  readonly timeoutMs: number;
}

/** Reads until there is a verdict, and leaves the socket paused. */
export function heldBytes<V>(socket: Duplex, { judge, start, timeoutMs }: Judging<V>): Promise<Held<V>> {
  return new Promise((resolve) => {
    let bytes = start ?? Buffer.alloc(0);
    let timer: NodeJS.Timeout | undefined;
    let done = false;
    const finish = (verdict: V | null): void => {
      done = true;
      clearTimeout(timer);
      socket.off("data", add).off("end", end).off("close", close).pause();
      resolve({ bytes, verdict });
    };
    const look = (ended: boolean): void => {
      const verdict = judge(bytes, ended);
      if (verdict !== null || ended) finish(verdict);
      else if (bytes.length > 0) timer ??= setTimeout(close, timeoutMs);
    };
    const add = (piece: Buffer): void => {
      bytes = bytes.length === 0 ? piece : Buffer.concat([bytes, piece]);
      look(false);
    };
    const end = (): void => look(true);
    const close = (): void => finish(null);
    socket.on("data", add).once("end", end).once("close", close);
    if (socket.destroyed) close();
    else if (bytes.length > 0 || socket.readableEnded) look(socket.readableEnded);
    if (!done) socket.resume();
  });
}
