import type { OnReadOpts, Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { AllowedNetwork, NetworkRule } from "../../sandbox/network/rule.ts";
import type { Refusal } from "./refusal.ts";

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
export interface Line {
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
  line(to: string): Line;
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
