import type { Duplex } from "node:stream";
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
