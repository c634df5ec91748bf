import type { OnReadOpts, Socket } from "node:net";
import type { Duplex } from "node:stream";
import { type NetworkRefusal, rulesFor } from "../../sandbox/network/judge.ts";
import { type AllowedNetwork, isLookedInto, type NetworkRule } from "../../sandbox/network/rule.ts";

/** Bounds that no declaration changes. docs/network.md has them as a table. */
export const BOUNDS = {
  /** Connections of one cell at once, if its network says nothing. */
  connections: 64,
  /** A name may lead to more addresses; the further ones are not tried. */
  addresses: 8,
  resolveTimeoutMs: 10_000,
  dialTimeoutMs: 10_000,
  /** The next address is tried beside one that did not answer within this time. */
  nextAddressMs: 250,
  /** What a client may send before Corral has judged it. */
  firstBytes: 65_536,
  /** The first line of a text protocol, which is judged as a whole. */
  firstLineBytes: 16_384,
  /** From the first byte of a client until it can be judged. */
  firstBytesTimeoutMs: 10_000,
  /** How long a tunnel waits for its client before it dials, as the server may speak first. */
  clientFirstMs: 25,
  /** What is kept for a side that reads slowly, before the other side is no longer read. */
  bufferedBytes: 262_144,
  /** What is read from a host at once in a tunnel: more if the host is quick. */
  pieceBytes: { least: 16_384, most: 262_144 },
  /** A tunnel without a byte in either direction. */
  tunnelIdleMs: 3_600_000,
  /** How long a client that was refused may take to read why. */
  lingerMs: 500,
  /** Request line and headers, in each direction. */
  headerBytes: 32_768,
  headersTimeoutMs: 15_000,
  /** An HTTP connection without a byte, while a request or its answer is under way. */
  httpIdleMs: 600_000,
  /** A connection of the cell between two requests. */
  keepAliveMs: 60_000,
  /** A connection to a host between two requests. */
  upstreamKeepAliveMs: 4_000,
  /** Requests that a client may send ahead of their answers. */
  pipelined: 64,
  /** A secret is read again after this time. */
  secretMs: 60_000,
} as const;

/** A host and a port that a connection or a request means. The host is in lower case, an IPv6 address in brackets. */
export interface Target {
  readonly host: string;
  readonly port: number;
}

/** `example.org:443` */
export function targetText({ host, port }: Target): string {
  return `${host}:${port}`;
}

export type Dialled =
  | { readonly ok: true; readonly socket: Socket }
  | { readonly ok: false; readonly refusal: Refusal };

/** What went to and from one host. The methods are false if a budget is used up; then nothing may be passed on. */
export interface HostTraffic {
  connected(): void;
  request(): boolean;
  up(bytes: number): boolean;
  down(bytes: number): boolean;
}

/** What the connections of one cell share. */
export interface Outlet {
  network(): AllowedNetwork | false;
  /** Asks for a host that the network does not allow. If it was granted, the network is another one now. */
  isGranted(target: Target): Promise<boolean>;
  /** Looks the host up, judges its addresses by these rules and connects. Only for a host that the rules name. */
  dial(target: Target, rules: readonly NetworkRule[], signal: AbortSignal, onread?: OnReadOpts): Promise<Dialled>;
  denied(refusal: Refusal): void;
  line(to: string): HostTraffic;
}

/** One connection of a cell. */
export interface Visit {
  readonly socket: Duplex;
  /** Aborted when the connection ends, for whatever reason. */
  readonly signal: AbortSignal;
  /** Asked after each change of the network; if it is false, the connection is closed. */
  isAllowed: () => boolean;
  /** Closes the connection at once. */
  close(): void;
}

/** Why a connection or a request does not leave the cell. `detail` is one line for the user and for the worker. */
export interface Refusal {
  /** `host:port`. */
  readonly to: string;
  readonly reason: NetworkRefusal;
  readonly detail: string;
}

/** A text that a cell chose, for a report: one line, printable, short. */
export function shown(text: string): string {
  const clean = text.replaceAll(/[^\x21-\x7e]/g, "?");
  return clean.length > 300 ? `${clean.slice(0, 300)}…` : clean;
}

/** What `http://HOST:PORT` in the cell means: port 80 of a host that is looked into is its port 443. */
export function meantTarget(network: AllowedNetwork, inside: Target): Target {
  const https = { ...inside, port: 443 };
  const isLookedInto443 = lookedInto(network, https).some(({ tls }) => tls !== false);
  return inside.port === 80 && isLookedInto443 ? https : inside;
}

export function tunnels(network: AllowedNetwork, { host, port }: Target): readonly NetworkRule[] {
  return rulesFor(network, host, port).filter((rule) => !isLookedInto(rule));
}

export function lookedInto(network: AllowedNetwork, { host, port }: Target): readonly NetworkRule[] {
  return rulesFor(network, host, port).filter(isLookedInto);
}
