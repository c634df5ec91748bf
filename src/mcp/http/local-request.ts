import type { IncomingMessage } from "node:http";

/**
 * True for a request that was meant for this very server. A web page whose name was made to mean 127.0.0.1 (DNS
 * rebinding) sends its own name as `Host`, and any page sends its own `Origin`; programs send no `Origin`.
 */
export function isLocalRequest({ headers }: Pick<IncomingMessage, "headers">, port: number): boolean {
  const names = [`127.0.0.1:${port}`, `localhost:${port}`];
  const { host, origin } = headers;
  if (host === undefined || !names.includes(host.toLowerCase())) return false;
  return origin === undefined || names.some((name) => origin.toLowerCase() === `http://${name}`);
}
