import type { ServerResponse } from "node:http";
import type { NetworkRefusal } from "../../sandbox/network/report.ts";

/** Why a request is refused, in words for the worker and the user. */
export interface Fault {
  readonly reason: NetworkRefusal;
  readonly detail: string;
}

/** What is left of a refusal of a request that was thrown by a callback of Node, such as that of an agent. */
export class Faulty extends Error {
  override readonly name = "Faulty";
  readonly fault: Fault;

  constructor(fault: Fault) {
    super(fault.detail);
    this.fault = fault;
  }
}

const STATUS: Partial<Record<NetworkRefusal, number>> = {
  malformed: 400,
  limit: 429,
  unresolved: 502,
  unreachable: 502,
  digest: 502,
  secret: 502,
};

/** The status with which a refusal is answered. */
export function statusOf(reason: NetworkRefusal): number {
  return STATUS[reason] ?? 403;
}

/** Answers a refusal; closes the connection if an answer has begun, so that the client sees that it is incomplete. */
export function answerFault(response: ServerResponse, { reason, detail }: Fault): void {
  if (response.headersSent || response.destroyed) return void response.destroy();
  const body = `${detail}\n`;
  // Where the next request begins, is not known.
  if (reason === "malformed") response.shouldKeepAlive = false;
  const headers = { "content-type": "text/plain; charset=utf-8", "content-length": Buffer.byteLength(body) };
  response.writeHead(statusOf(reason), headers).end(response.req.method === "HEAD" ? undefined : body);
}

/** The same for a connection without a request that Node could parse. It is to be closed after it. */
export function rawAnswer({ reason, detail }: Fault): string {
  const body = `${detail}\n`;
  const status = statusOf(reason);
  const lines = [
    `HTTP/1.1 ${status} ${status === 400 ? "Bad Request" : "Refused"}`,
    "content-type: text/plain; charset=utf-8",
    `content-length: ${Buffer.byteLength(body)}`,
    "connection: close",
  ];
  return `${lines.join("\r\n")}\r\n\r\n${body}`;
}
