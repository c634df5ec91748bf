import { type OnReadOpts, Socket } from "node:net";
import type { Duplex, Readable, Writable } from "node:stream";
import type { AllowedTraffic, DeniedTraffic, NetworkReport } from "../../sandbox/network/judge.ts";
import type { NetworkLimits } from "../../sandbox/network/rule.ts";
import { BOUNDS, type HostTraffic, type Refusal } from "../model/outlet.ts";

/** What a budget counts. Bytes are those of tunnels, of bodies, and of what a client writes into the head of a request: it carries data too. */
export type Counted = "uploadBytes" | "downloadBytes" | "requests" | "connections";

/**
 * The budget of one cell. What it takes is taken from its callers' budgets too, so that a run cannot use more through
 * the workers that it calls.
 */
export class Meter {
  readonly #parent: Meter | null;
  /** What was taken so far; connections that are open. */
  readonly used: Record<Counted, number> = { uploadBytes: 0, downloadBytes: 0, requests: 0, connections: 0 };
  #limits: NetworkLimits;

  constructor(limits: NetworkLimits = {}, parent: Meter | null = null) {
    this.#limits = limits;
    this.#parent = parent;
  }

  /** False if this budget, or that of a caller, does not have it; then nothing is taken. */
  take(what: Counted, amount: number): boolean {
    if (!this.#has(what, amount)) return false;
    this.#add(what, amount);
    return true;
  }

  /** Gives a connection back. */
  release(): void {
    this.#add("connections", -1);
  }

  /** What was used counts for the new limits. */
  limit(limits: NetworkLimits): void {
    this.#limits = limits;
  }

  #has(what: Counted, amount: number): boolean {
    const limit = this.#limits[what] ?? Number.POSITIVE_INFINITY;
    return this.used[what] + amount <= limit && (this.#parent === null || this.#parent.#has(what, amount));
  }

  #add(what: Counted, amount: number): void {
    this.used[what] += amount;
    if (this.#parent !== null) this.#parent.#add(what, amount);
  }
}

/** More different hosts than this are counted, but not kept apart. */
const MAX_KEPT = 1000;
const MAX_LISTED = 200;

/** Counts what a cell did on its network, bounded. */
export class Traffic {
  readonly #meter: Meter;
  readonly #onDenied: (denied: DeniedTraffic) => void;
  readonly #allowed = new Map<string, Counts>();
  readonly #denied = new Map<string, { count: number; readonly refusal: Refusal }>();
  #unlisted = 0;

  constructor(meter: Meter, onDenied: (denied: DeniedTraffic) => void) {
    this.#meter = meter;
    this.#onDenied = onDenied;
  }

  line(to: string): HostTraffic {
    const known = this.#allowed.get(to);
    const counts = known ?? { connections: 0, requests: 0, up: 0, down: 0 };
    if (known === undefined && this.#allowed.size < MAX_KEPT) this.#allowed.set(to, counts);
    else if (known === undefined) this.#unlisted += 1;
    const taken = (
      what: "uploadBytes" | "downloadBytes" | "requests",
      count: keyof Counts,
      amount: number,
    ): boolean => {
      if (!this.#meter.take(what, amount)) return false;
      counts[count] += amount;
      return true;
    };
    return {
      connected: () => {
        counts.connections += 1;
      },
      request: () => taken("requests", "requests", 1),
      up: (bytes) => taken("uploadBytes", "up", bytes),
      down: (bytes) => taken("downloadBytes", "down", bytes),
    };
  }

  /** Reports the first refusal of a host for one reason at once; further ones are counted. */
  denied(refusal: Refusal): void {
    const key = `${refusal.reason} ${refusal.to}`;
    const known = this.#denied.get(key);
    if (known !== undefined) known.count += 1;
    else if (this.#denied.size >= MAX_KEPT) this.#unlisted += 1;
    else {
      this.#denied.set(key, { count: 1, refusal });
      this.#onDenied({ ...refusal, count: 1 });
    }
  }

  report(): NetworkReport {
    const used = [...this.#allowed].filter(([, { connections, requests }]) => connections + requests > 0);
    const allowed: AllowedTraffic[] = used
      .map(([to, counts]) => ({ to, ...counts }))
      .toSorted((a, b) => b.connections + b.requests - a.connections - a.requests);
    const denied: DeniedTraffic[] = [...this.#denied.values()]
      .map(({ refusal, count }) => ({ ...refusal, count }))
      .toSorted((a, b) => b.count - a.count);
    const cut = Math.max(0, allowed.length - MAX_LISTED) + Math.max(0, denied.length - MAX_LISTED);
    return {
      allowed: allowed.slice(0, MAX_LISTED),
      denied: denied.slice(0, MAX_LISTED),
      unlisted: this.#unlisted + cut,
    };
  }
}

interface Counts {
  connections: number;
  requests: number;
  up: number;
  down: number;
}

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
