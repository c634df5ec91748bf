import { type AllowedNetwork, isLookedInto, type NetworkRule } from "./rule.ts";
import { isAddress, parseTarget } from "./target.ts";

/** One listening socket in the network namespace of a cell. Its other end is Corral. */
export interface NetworkPlace {
  /** A loopback address of the cell, e.g. `127.88.1.1`. */
  readonly address: string;
  readonly port: number;
  /** The host that connections to it mean; `null`: the proxy, for which each request names its host. */
  readonly host: string | null;
}

/** Where the hosts of an allow list appear in a cell. */
export interface NetworkPlaces {
  /** Lines of `/etc/hosts`. */
  readonly names: readonly { readonly name: string; readonly address: string }[];
  readonly listeners: readonly NetworkPlace[];
}

/** The place of the HTTP proxy, for wildcards and for rules of every port. */
export const PROXY: NetworkPlace = { address: "127.88.0.1", port: 3128, host: null };

/** Beyond this many, hosts would not fit the addresses and descriptors of one cell. */
export const MAX_PLACES = 1000;

const NOWHERE: NetworkPlaces = { names: [], listeners: [] };

/**
 * Each exact name gets a loopback address of the cell, in the order of the list. What is in `known` stays where it is: names that
 * are granted to a running cell come after those that it began with. A worker that may be granted hosts has the proxy, since a
 * program can only be heard there when it asks for a host that it does not have. A rule that is looked into is at port 80
 * of its name if it is for port 443, since programs write `http://NAME/`; its port 443 is there to be refused.
 */
export function networkPlaces(network: AllowedNetwork, known: NetworkPlaces = NOWHERE): NetworkPlaces {
  const addresses = new Map(known.names.map(({ name, address }) => [name, address]));
  const listeners = new Map(known.listeners.map((place) => [keyOf(place), place]));
  if (network.dynamic !== undefined) listeners.set(keyOf(PROXY), PROXY);
  for (const rule of network.allow) {
    const target = parseTarget(rule.to);
    if (!target.ok) continue;
    const { host, wildcard, port } = target.target;
    // A file of names cannot lead from one address to another.
    if (wildcard || port === null || isAddress(host)) {
      listeners.set(keyOf(PROXY), PROXY);
      continue;
    }
    const address = addresses.get(host) ?? addressOf(addresses.size);
    addresses.set(host, address);
    for (const each of portsInside(rule, port)) {
      const place = { address, port: each, host };
      if (!listeners.has(keyOf(place))) listeners.set(keyOf(place), place);
    }
  }
  const names = [...addresses].map(([name, address]) => ({ name, address }));
  return { names, listeners: [...listeners.values()] };
}

function keyOf({ address, port }: NetworkPlace): string {
  return `${address}:${port}`;
}

/** The ports in the cell at which a rule for this port is reached. */
function portsInside(rule: NetworkRule, port: number): readonly number[] {
  return isLookedInto(rule) && port === 443 ? [80, 443] : [port];
}

/** `127.88.1.1` and on: never `.0` or `.255`. */
function addressOf(index: number): string {
  return `127.88.${1 + Math.floor(index / 250)}.${1 + (index % 250)}`;
}
