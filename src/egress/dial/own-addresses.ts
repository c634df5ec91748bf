import { networkInterfaces } from "node:os";
import { addressText, parseBlock } from "../../sandbox/network/address.ts";

/** An address in the one form in which it is judged and dialled; null if it is none. IPv4 within IPv6 becomes IPv4. */
export function plainAddress(raw: string): string | null {
  const block = parseBlock(raw);
  if (block === null || block.prefix !== block.bits) return null;
  const isMapped = block.bits === 128 && block.value >> 32n === 0xffffn;
  return addressText(isMapped ? { bits: 32, prefix: 32, value: block.value & 0xffffffffn } : block);
}

/** True for an address of this machine, also a public one: what listens there may trust what comes from this machine. */
export function isOwnAddress(address: string): boolean {
  const all = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  return all.some((own) => plainAddress(own.address) === address);
}
