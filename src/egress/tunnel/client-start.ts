import { isIP } from "node:net";
import type { Duplex } from "node:stream";
import type { Alert } from "../carry/alert.ts";
import { HANDSHAKE_RECORD } from "../first/client-hello.ts";
import { type FirstBytes, readFirstBytes } from "../first/first-bytes.ts";
import { heldBytes } from "../first/held-bytes.ts";
import { beforeSecondHello } from "../first/server-start.ts";
import { BOUNDS } from "../model/bounds.ts";
import type { Refusal } from "../model/refusal.ts";

/** How a client of a tunnel begins, judged. `bytes` is all that it sent so far. */
export type ClientStart =
  /** TLS that names the host: `bytes` up to `helloEnd` may pass, the rest when the server's answer is known. */
  | { readonly kind: "tls"; readonly bytes: Buffer; readonly helloEnd: number }
  | { readonly kind: "http"; readonly bytes: Buffer }
  | { readonly kind: "other"; readonly bytes: Buffer }
  | ({ readonly kind: "refused"; readonly alert: Alert | null } & Pick<Refusal, "reason" | "detail">)
  /** It went away, or said too little in time. */
  | { readonly kind: "silent"; readonly bytes: number };

export async function readClientStart(client: Duplex, host: string): Promise<ClientStart> {
  const held = await heldBytes(client, {
    timeoutMs: BOUNDS.firstBytesTimeoutMs,
    judge: (bytes, ended) => {
      const first = readFirstBytes(bytes, BOUNDS.firstBytes, BOUNDS.firstLineBytes);
      if (first.kind !== "more") return first;
      return ended ? endedStart(bytes) : null;
    },
  });
  if (held.verdict === null) return { kind: "silent", bytes: held.bytes.length };
  const { bytes, verdict } = held;
  if (verdict.kind === "malformed") return malformed(verdict.why, bytes[0] === HANDSHAKE_RECORD);
  if (verdict.kind === "tls") return helloFault(verdict, host) ?? { kind: "tls", bytes, helloEnd: verdict.length };
  return { kind: verdict.kind, bytes };
}

/** A client that sends nothing more may wait for the server. What it sent is a whole line, also without its end. */
function endedStart(bytes: Buffer): Exclude<FirstBytes, { kind: "more" }> | null {
  if (bytes.length === 0) return { kind: "other" };
  const line = readFirstBytes(Buffer.concat([bytes, Buffer.from("\n")]), BOUNDS.firstBytes, BOUNDS.firstLineBytes);
  return line.kind === "more" ? null : line;
}

/** After a server asked for it, a client sends a second hello, which must name the host too. `start` has what it sent since. */
export async function readSecondHello(client: Duplex, start: Buffer, host: string): Promise<ClientStart> {
  const held = await heldBytes(client, {
    start,
    timeoutMs: BOUNDS.firstBytesTimeoutMs,
    judge: (bytes) => {
      const skipped = beforeSecondHello(bytes);
      const first = readFirstBytes(bytes.subarray(skipped), BOUNDS.firstBytes - skipped, 0);
      return first.kind === "more" ? null : { first, skipped };
    },
  });
  if (held.verdict === null) return { kind: "silent", bytes: held.bytes.length };
  const { first, skipped } = held.verdict;
  if (first.kind !== "tls") return malformed("it is no second ClientHello", true);
  return helloFault(first, host) ?? { kind: "tls", bytes: held.bytes, helloEnd: skipped + first.length };
}

/** A TLS client must name the host, so that a server of many hosts shows no other one. An address has no name to give. */
function helloFault(hello: { serverName: string | null; encrypted: boolean }, host: string): ClientStart | null {
  const refused = (alert: Alert, detail: string): ClientStart => ({ kind: "refused", reason: "name", alert, detail });
  if (hello.encrypted)
    return refused("access_denied", "The TLS client may hide another name (Encrypted Client Hello). Switch that off.");
  const isAddress = isIP(host.replace(/^\[(.*)\]$/, "$1")) !== 0;
  if (hello.serverName === null && isAddress) return null;
  if (hello.serverName === null)
    return refused("missing_extension", `The TLS client names no host (SNI). It must name ${host}.`);
  if (!isAddress && hello.serverName.toLowerCase() === host) return null;
  return refused("unrecognized_name", `The TLS client names another host (SNI) than ${host}.`);
}

function malformed(why: string, isTls: boolean): ClientStart {
  const detail = `What the client sends is refused: ${why}.`;
  return { kind: "refused", reason: "malformed", alert: isTls ? "decode_error" : null, detail };
}
