import { BlockList, isIP } from "node:net";
import { networkInterfaces } from "node:os";

/**
 * Addresses that are no public host's: the registries of special-purpose addresses (RFC 6890 and its updates), multicast,
 * and the forms of IPv6 that contain an IPv4 address, which a gateway may turn into a private one.
 */
const SPECIAL: readonly (readonly [kind: string, ...blocks: readonly string[]])[] = [
  ["an unspecified address", "0.0.0.0/8", "::/128"],
  ["a loopback address", "127.0.0.0/8", "::1/128"],
  ["a private address", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"],
  ["a provider's shared address", "100.64.0.0/10"],
  // A cloud's metadata service is at 169.254.169.254 and fd00:ec2::254, which is in fc00::/7.
  ["a link-local address", "169.254.0.0/16", "fe80::/10"],
  ["an address of a cloud's metadata service", "168.63.129.16/32"],
  ["an address of protocols", "192.0.0.0/24", "2001::/23", "192.31.196.0/24", "192.52.193.0/24", "192.175.48.0/24"],
  ["an address of protocols", "2620:4f:8000::/48", "5f00::/16", "100::/64", "100:0:0:1::/64"],
  ["an address for documentation", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"],
  ["an address for benchmarks", "198.18.0.0/15"],
  ["a multicast address", "224.0.0.0/4", "ff00::/8"],
  ["a reserved address", "240.0.0.0/4", "255.255.255.255/32"],
  ["an IPv6 form of an IPv4 address", "192.88.99.0/24", "2002::/16", "64:ff9b::/96", "64:ff9b:1::/48", "::/96"],
  ["an IPv6 form of an IPv4 address", "::ffff:0:0:0/96"],
];

/** Everything else of IPv6 is not given to any host. */
const GLOBAL_UNICAST = blockList(["2000::/3"]);

const KINDS = SPECIAL.map(([kind, ...blocks]) => ({ kind, list: blockList(blocks) }));

/** An address in the one form in which it is judged and dialled; null if it is none. IPv4 within IPv6 becomes IPv4. */
export function plainAddress(text: string): string | null {
  const family = isIP(text);
  if (family === 0 || text.includes("%")) return null;
  if (family === 4) return text;
  const [, first, second] = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/.exec(hextets(text)) ?? [];
  if (first === undefined || second === undefined) return text;
  const [a, b] = [Number.parseInt(first, 16), Number.parseInt(second, 16)];
  return [a >> 8, a & 255, b >> 8, b & 255].join(".");
}

/** What kind of address this is, if it may not be dialled unless it is named; else null. `address` is plain. */
export function specialKind(address: string): string | null {
  const family = isIP(address) === 4 ? "ipv4" : "ipv6";
  const special = KINDS.find(({ list }) => list.check(address, family));
  if (special !== undefined) return special.kind;
  if (family === "ipv6" && !GLOBAL_UNICAST.check(address, family)) return "a reserved address";
  return isOwn(address) ? "an address of this machine" : null;
}

/** True if one of the CIDRs contains the address. `address` is plain; malformed CIDRs contain nothing. */
export function isWithin(address: string, cidrs: readonly string[]): boolean {
  return blockList(cidrs).check(address, isIP(address) === 4 ? "ipv4" : "ipv6");
}

function isOwn(address: string): boolean {
  const own = Object.values(networkInterfaces()).flatMap((each) =>
    (each ?? []).map((one) => plainAddress(one.address)),
  );
  const list = blockList(own.flatMap((each) => (each === null ? [] : [`${each}/${isIP(each) === 4 ? 32 : 128}`])));
  return list.check(address, isIP(address) === 4 ? "ipv4" : "ipv6");
}

function blockList(cidrs: readonly string[]): BlockList {
  const list = new BlockList();
  for (const cidr of cidrs) {
    const [rawAddress = "", rawBits] = cidr.split("/");
    const address = plainAddress(rawAddress);
    if (address === null) continue;
    const family = isIP(address) === 4 ? "ipv4" : "ipv6";
    const all = family === "ipv4" ? 32 : 128;
    // `::ffff:10.0.0.0/104` is 10.0.0.0/8.
    const bits = rawBits === undefined ? all : Number(rawBits) - (address === rawAddress || family === "ipv6" ? 0 : 96);
    if (Number.isInteger(bits) && bits >= 0 && bits <= all) list.addSubnet(address, bits, family);
  }
  return list;
}

/** The canonical text of an IPv6 address, as RFC 5952 has it except that no part is written as IPv4. */
function hextets(address: string): string {
  return new URL(`http://[${address}]/`).hostname.slice(1, -1);
}
