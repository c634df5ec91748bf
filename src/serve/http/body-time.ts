import type { IncomingMessage, ServerResponse } from "node:http";
import { bareAnswer } from "./answer.ts";

export interface BodyTimes {
  /** Of a body that is one value, such as JSON: all of it. */
  readonly wholeMs: number;
  /** Of one that is as large as it is: between two of its bytes. */
  readonly idleMs: number;
}

/** A client says what it wants in five minutes. An upload takes as long as bytes come. */
export const BODY_TIMES: BodyTimes = { wholeMs: 300_000, idleMs: 60_000 };

const LOOKS = 20;
/** For a client to read why its request ended. */
const LINGER_MS = 1000;

/** Bounds how long the body of a request may take to come. Node's own limit is of the whole, whatever it brings. */
export class BodyTime {
  #isUpload = false;

  /** `ended`: it was, with an answer. */
  constructor(request: IncomingMessage, response: ServerResponse, ended: () => void, times = BODY_TIMES) {
    const { socket, headers } = request;
    if (headers["transfer-encoding"] === undefined && Number(headers["content-length"] ?? 0) === 0) return;
    const begun = performance.now();
    let [bytes, movedAt] = [socket.bytesRead, begun];
    const look = (): void => {
      const now = performance.now();
      // What came and was not taken yet: then the client waits, and not Corral.
      if (socket.bytesRead !== bytes || request.readableLength > 0) [bytes, movedAt] = [socket.bytesRead, now];
      if (request.complete || socket.destroyed) return void clearInterval(timer);
      if (this.#isUpload ? now - movedAt < times.idleMs : now - begun < times.wholeMs) return;
      clearInterval(timer);
      ended();
      if (response.headersSent || !socket.writable) return void socket.destroy();
      const why = this.#isUpload
        ? `no bytes came for ${Math.round(times.idleMs / 1000)} s`
        : "the request did not come in time";
      socket.end(bareAnswer("408 Request Timeout", "WRONG_REQUEST", why));
      setTimeout(() => socket.destroy(), LINGER_MS).unref();
    };
    const timer = setInterval(look, Math.min(times.wholeMs, times.idleMs) / LOOKS);
    timer.unref();
    request.once("close", () => clearInterval(timer));
  }

  /** Its body is bytes, of any number. */
  asUpload(): void {
    this.#isUpload = true;
  }
}
