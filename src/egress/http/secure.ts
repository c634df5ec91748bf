import { isIP, type Socket } from "node:net";
import { connect, type SecureContext, type TLSSocket } from "node:tls";
import { BOUNDS } from "../model/bounds.ts";
import type { Fault } from "./fault.ts";

export type Secured = { readonly ok: true; readonly socket: TLSSocket } | { readonly ok: false; readonly fault: Fault };

/** Speaks TLS with a host over a connection to one of its addresses. The host's certificate must be valid for its name. */
export function secure(socket: Socket, host: string, secureContext: SecureContext): Promise<Secured> {
  const name = host.replace(/^\[(.*)\]$/, "$1");
  return new Promise((resolve) => {
    const secured = connect({
      socket,
      secureContext,
      host: name,
      ALPNProtocols: ["http/1.1"],
      ...(isIP(name) === 0 && { servername: name }),
    });
    const fail = (why: string): void => {
      clearTimeout(timer);
      secured.destroy();
      resolve({ ok: false, fault: { reason: "unreachable", detail: `TLS with ${host} failed (${why}).` } });
    };
    const timer = setTimeout(fail, BOUNDS.dialTimeoutMs, "it took too long");
    // The code of a fault is of Node's or OpenSSL's lists; its message may repeat what the host sent.
    secured.on("error", (error: NodeJS.ErrnoException) => fail(error.code ?? "the connection was closed"));
    socket.once("close", () => fail("the connection was closed"));
    secured.once("secureConnect", () => {
      clearTimeout(timer);
      resolve({ ok: true, socket: secured });
    });
  });
}
