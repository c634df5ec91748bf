/** A block of IP addresses, canonical: bits behind the prefix are 0. */
export interface AddressBlock {
  readonly bits: 32 | 128;
  readonly value: bigint;
  readonly prefix: number;
}

/** Reads `10.1.0.0/16`, `2001:db8::/32` or a single address. Null for anything else, also for `010.1`, zones and brackets. */
export function parseBlock(raw: string): AddressBlock | null {
  const [, text = "", length] = /^([0-9a-fA-F:.]{2,45})(?:\/(0|[1-9][0-9]{0,2}))?$/.exec(raw) ?? [];
  const bits = text.includes(":") ? 128 : 32;
  const value = bits === 128 ? parseV6(text) : parseV4(text);
  const prefix = length === undefined ? bits : Number(length);
  if (value === null || prefix > bits) return null;
  return { bits, prefix, value: firstOf(value, bits, prefix) };
}

/** The canonical text: `10.1.0.0/16`, `2001:db8::1/128`. */
export function blockText({ bits, value, prefix }: AddressBlock): string {
  return `${bits === 32 ? v4Text(value) : v6Text(value)}/${prefix}`;
}

/** The address without its prefix, as a URL writes it between brackets. */
export function addressText({ bits, value }: AddressBlock): string {
  return bits === 32 ? v4Text(value) : v6Text(value);
}

/** True if every address of `inner` is in `outer`. IPv4 addresses inside of IPv6 are other addresses. */
export function blockInside(inner: AddressBlock, outer: AddressBlock): boolean {
  if (inner.bits !== outer.bits || inner.prefix < outer.prefix) return false;
  return firstOf(inner.value, outer.bits, outer.prefix) === outer.value;
}

/** True if some address is in both blocks. */
function blocksTouch(a: AddressBlock, b: AddressBlock): boolean {
  return blockInside(a, b) || blockInside(b, a);
}

/** The addresses that are in a block of each list. */
export function meetBlocks(some: readonly AddressBlock[], others: readonly AddressBlock[]): AddressBlock[] {
  const both = some.flatMap((a) => others.filter((b) => blocksTouch(a, b)).map((b) => (a.prefix > b.prefix ? a : b)));
  return mergeBlocks(both);
}

/** The same addresses in as few blocks as possible, sorted by their text. */
export function mergeBlocks(blocks: readonly AddressBlock[]): AddressBlock[] {
  const kept = new Map(blocks.map((block) => [blockText(block), block]));
  // Each round removes a block or ends, so it ends.
  for (let changed = true; changed; ) {
    changed = false;
    for (const [text, block] of kept) {
      const twin = siblingOf(block);
      if ([...kept.values()].some((other) => other !== block && blockInside(block, other))) {
        changed = kept.delete(text);
      } else if (twin !== null && kept.has(blockText(twin))) {
        kept.delete(text);
        kept.delete(blockText(twin));
        const both = { ...block, prefix: block.prefix - 1, value: firstOf(block.value, block.bits, block.prefix - 1) };
        kept.set(blockText(both), both);
        changed = true;
      }
    }
  }
  return sorted([...kept.values()]);
}

function sorted(blocks: readonly AddressBlock[]): AddressBlock[] {
  const byText = new Map(blocks.map((block) => [blockText(block), block]));
  return [...byText].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, block]) => block);
}

/** Both halves; of a single address none. */
export function halvesOf(block: AddressBlock): AddressBlock[] {
  if (block.prefix === block.bits) return [];
  const half = { ...block, prefix: block.prefix + 1 };
  return [half, siblingOf(half) ?? half];
}

function siblingOf(block: AddressBlock): AddressBlock | null {
  if (block.prefix === 0) return null;
  return { ...block, value: block.value ^ (1n << BigInt(block.bits - block.prefix)) };
}

function firstOf(value: bigint, bits: number, prefix: number): bigint {
  const behind = BigInt(bits - prefix);
  return (value >> behind) << behind;
}

function parseV4(text: string): bigint | null {
  const parts = text.split(".");
  if (parts.length !== 4 || !parts.every((part) => /^(0|[1-9][0-9]{0,2})$/.test(part) && Number(part) < 256))
    return null;
  return parts.reduce((value, part) => (value << 8n) | BigInt(part), 0n);
}

function parseV6(text: string): bigint | null {
  const [left = "", right, ...more] = text.split("::");
  if (more.length > 0) return null;
  const head = groupsOf(left);
  const tail = right === undefined ? [] : groupsOf(right);
  if (head === null || tail === null) return null;
  const missing = 8 - head.length - tail.length;
  if (right === undefined ? missing !== 0 : missing < 1) return null;
  return [...head, ...Array<bigint>(missing).fill(0n), ...tail].reduce((value, group) => (value << 16n) | group, 0n);
}

/** IPv4 at the end counts for two groups. */
function groupsOf(text: string): bigint[] | null {
  if (text === "") return [];
  const parts = text.split(":");
  const groups: bigint[] = [];
  for (const [index, part] of parts.entries()) {
    const v4 = part.includes(".") && index === parts.length - 1 ? parseV4(part) : null;
    if (v4 !== null) groups.push(v4 >> 16n, v4 & 0xffffn);
    else if (/^[0-9a-fA-F]{1,4}$/.test(part)) groups.push(BigInt(`0x${part}`));
    else return null;
  }
  return groups;
}

function v4Text(value: bigint): string {
  return [24n, 16n, 8n, 0n].map((shift) => (value >> shift) & 255n).join(".");
}

/** As RFC 5952 says: the first longest run of two or more zero groups is `::`. */
function v6Text(value: bigint): string {
  const groups = [7n, 6n, 5n, 4n, 3n, 2n, 1n, 0n].map((place) => ((value >> (place * 16n)) & 0xffffn).toString(16));
  let run = { from: 0, length: 0 };
  for (let from = 0; from < 8; from++) {
    let length = 0;
    while (groups[from + length] === "0") length++;
    if (length > run.length) run = { from, length };
  }
  if (run.length < 2) return groups.join(":");
  return `${groups.slice(0, run.from).join(":")}::${groups.slice(run.from + run.length).join(":")}`;
}

/** Few commands compare addresses: what takes milliseconds to compute waits until one does. */
function once<T>(compute: () => T): () => T {
  let value: T | undefined;
  return () => (value ??= compute());
}

function known(...blocks: readonly string[]): AddressBlock[] {
  return blocks.map((text) => parseBlock(text)).filter((block) => block !== null);
}

/** From IANA's registries of special addresses, with the address at which Azure has its metadata. */
const NOT_PUBLIC = [
  "0.0.0.0/8",
  "10.0.0.0/8",
  "100.64.0.0/10",
  "127.0.0.0/8",
  "168.63.129.16/32",
  "169.254.0.0/16",
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.0.2.0/24",
  "192.88.99.0/24",
  "192.168.0.0/16",
  "198.18.0.0/15",
  "198.51.100.0/24",
  "203.0.113.0/24",
  "224.0.0.0/3",
  // Of IPv6 only 2000::/3 is public: ::/3 has loopback, forms of IPv4 and NAT64; 2001::/23 Teredo; 2002::/16 6to4.
  "::/3",
  "2001::/23",
  "2001:db8::/32",
  "2002::/16",
  "3fff::/20",
  "4000::/2",
  "8000::/1",
];

/** The addresses of the machine that dials, in each form. */
const LOOPBACK = ["0.0.0.0/8", "127.0.0.0/8", "::/127", "::ffff:0.0.0.0/104", "::ffff:127.0.0.0/104"];

export const EVERY_ADDRESS: readonly AddressBlock[] = known("0.0.0.0/0", "::/0");

/** What a rule without `addresses` means: no address that is private, of the machine, of a link, multicast, or of IPv4 in IPv6. */
export const publicAddresses = once((): readonly AddressBlock[] =>
  sorted(EVERY_ADDRESS.flatMap((block) => without(block, known(...NOT_PUBLIC)))),
);

/** True if this text is an address of the blocks; undefined: of the public ones. */
export function isAddressIn(rawAddress: string, addresses: readonly string[] | undefined): boolean {
  const address = parseBlock(rawAddress);
  if (address === null) return false;
  const blocks = addresses?.map(parseBlock) ?? publicAddresses();
  return blocks.some((block) => block !== null && blockInside(address, block));
}

/** What a container with the Engine's network can reach at most: not the loopback of the machine that dials. */
export const addressesOfOthers = once((): readonly AddressBlock[] =>
  EVERY_ADDRESS.flatMap((block) => without(block, known(...LOOPBACK))),
);

/** The parts of a block in none of the others. Halving ends at the longest prefix of these, and leaves nothing to merge. */
function without(block: AddressBlock, others: readonly AddressBlock[]): AddressBlock[] {
  const touching = others.filter((other) => blocksTouch(block, other));
  if (touching.length === 0) return [block];
  if (touching.some((other) => blockInside(block, other))) return [];
  return halvesOf(block).flatMap((half) => without(half, touching));
}
