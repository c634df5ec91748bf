import {
  ADDRESSES_OF_OTHERS,
  type AddressBlock,
  blockInside,
  blockText,
  EVERY_ADDRESS,
  halvesOf,
  meetBlocks,
  PUBLIC_ADDRESSES,
} from "./address.ts";
import { type ArtifactIndex, artifactInside, meetArtifacts } from "./artifacts.ts";
import { hasOwn, type ParsedRule } from "./canonical-rule.ts";
import { NETWORK_TERMS, type NetworkTerm } from "./excess.ts";
import { meetPatternLists, segmentCount, splitPattern } from "./path-glob.ts";
import { type Artifact, isLookedInto, type NetworkRule } from "./rule.ts";
import { EVERYWHERE, meetTargets, type NetworkTarget, targetInside } from "./target.ts";

/**
 * How two rules are compared. `caller`: what is asked inherits addresses and files that it does not name. `policy`: the same,
 * and any secret may be set, since a policy knows no project's secrets. `itself`: nothing is inherited.
 */
export type Ceiling = "caller" | "policy" | "itself";

/** The rules that `network: true` is worth as a ceiling. The Engine's network does not lead to the loopback of the machine. */
export function everywhere(ceiling: Ceiling): ParsedRule[] {
  const blocks = ceiling === "policy" ? EVERY_ADDRESS : ADDRESSES_OF_OTHERS;
  return [{ rule: { to: "*:*" }, target: EVERYWHERE, blocks, places: undefined, files: undefined }];
}

/** A request of what is asked, with `undefined` for one of any kind. */
interface Piece {
  readonly method: string | undefined;
  readonly path: string | undefined;
  readonly artifact: Artifact | undefined;
  readonly block: AddressBlock | undefined;
}

/** The term in which the rules do not allow together what is asked; null if they do. Exact: any request of it is in one of them. */
export function excessOf(asked: ParsedRule, has: readonly ParsedRule[], ceiling: Ceiling): NetworkTerm | null {
  const near = has.filter(({ target }) => targetInside(asked.target, target));
  const { methods, paths, artifacts } = asked.rule;
  const isBounded = ceiling === "itself" && near.some(({ blocks }) => blocks !== undefined);
  const blocks = asked.blocks ?? (isBounded ? PUBLIC_ADDRESSES : undefined);
  for (const method of methods ?? [undefined])
    for (const path of paths ?? [undefined])
      for (const artifact of artifacts ?? [undefined])
        for (const block of blocks ?? [undefined]) {
          const excess = excessOfPiece({ method, path, artifact, block }, asked, near, ceiling);
          if (excess !== null) return excess;
        }
  return null;
}

function excessOfPiece(
  piece: Piece,
  asked: ParsedRule,
  has: readonly ParsedRule[],
  ceiling: Ceiling,
): NetworkTerm | null {
  const misses = has.map((rule) => firstMiss(piece, asked, rule, ceiling));
  if (misses.includes(null)) return null;
  const parts = partsOf(piece, has);
  if (parts.length > 0 && parts.every((part) => excessOfPiece(part, asked, has, ceiling) === null)) return null;
  // The rule that fits longest says best what is wrong.
  return NETWORK_TERMS.findLast((term) => misses.includes(term)) ?? "to";
}

/** Smaller pieces, of which several rules may have one each; none if no rule is that fine. */
function partsOf(piece: Piece, has: readonly ParsedRule[]): Piece[] {
  const { path, block } = piece;
  const isFiner = (other: AddressBlock): boolean =>
    block !== undefined && other.prefix > block.prefix && blockInside(other, block);
  if (block !== undefined && has.some(({ blocks }) => (blocks ?? PUBLIC_ADDRESSES).some(isFiner)))
    return halvesOf(block).map((half) => ({ ...piece, block: half }));
  const longest = Math.max(0, ...has.flatMap(({ rule }) => rule.paths?.map(segmentCount) ?? []));
  if (path === undefined || segmentCount(path) > longest) return [];
  return splitPattern(path).map((part) => ({ ...piece, path: part }));
}

function firstMiss(
  piece: Piece,
  asked: ParsedRule,
  { rule, blocks, places, files }: ParsedRule,
  ceiling: Ceiling,
): NetworkTerm | null {
  const { method, path, artifact, block } = piece;
  if (isLookedInto(rule)) {
    if (!isLookedInto(asked.rule)) return "tunnel";
    if (meetTls(asked.rule, rule, asked.target)?.port !== asked.target.port) return "tls";
  }
  if (rule.methods !== undefined && (method === undefined || !rule.methods.includes(method))) return "methods";
  // The files of a rule are its paths too.
  const place = path ?? artifact?.path;
  if (places !== undefined && (place === undefined || !places.includes(place))) return "paths";
  if (files !== undefined && !hasArtifact(artifact, files, ceiling)) return "artifacts";
  const allowed = blocks ?? PUBLIC_ADDRESSES;
  if (block !== undefined && !allowed.some((each) => blockInside(block, each))) return "addresses";
  return setsMore(asked.rule, rule, ceiling) ? "set" : null;
}

function hasArtifact(asked: Artifact | undefined, has: ArtifactIndex, ceiling: Ceiling): boolean {
  return asked === undefined ? ceiling !== "itself" : artifactInside(asked, has);
}

function setsMore({ set = {}, without = [] }: NetworkRule, has: NetworkRule, ceiling: Ceiling): boolean {
  if (ceiling === "policy") return false;
  if (Object.entries(set).some(([name, { secret }]) => has.set?.[name]?.secret !== secret)) return true;
  // A caller's header that this rule does not set is kept from the cell as well: see `NetworkRule.without`.
  return ceiling === "itself" && headersOf(has).some((name) => !hasOwn(set, name) && !without.includes(name));
}

/** What both allow; null if that is nothing. Of two rules the first is what is asked. */
export function meetRules(asked: ParsedRule, has: ParsedRule, ceiling: Ceiling): NetworkRule | null {
  const met = meetTargets(asked.target, has.target);
  if (met === null) return null;
  const tls = meetTls(asked.rule, has.rule, met);
  if (tls === null) return null;
  const blocks = meetAddresses(asked, has, ceiling);
  const methods = meetLists(asked.rule.methods, has.rule.methods, (a, b) => a.filter((each) => b.includes(each)));
  const paths = meetLists(asked.rule.paths, has.rule.paths, meetPatternLists);
  const artifacts =
    asked.rule.artifacts && has.files
      ? meetArtifacts(asked.rule.artifacts, has.files)
      : (asked.rule.artifacts ?? has.rule.artifacts);
  return {
    to: `${met.wildcard ? "*." : ""}${met.host}:${tls.port ?? "*"}`,
    ...(methods && { methods }),
    ...(paths && { paths }),
    ...meetHeaders(asked.rule, has.rule, ceiling),
    ...(blocks && { addresses: blocks.map(blockText) }),
    ...(tls.plain && { tls: false }),
    ...(asked.rule.packages && { packages: asked.rule.packages }),
    ...(artifacts && { artifacts }),
  };
}

/** A tunnel carries both. Otherwise the two must agree; on port 80 they always do. Null if they do not. */
function meetTls(
  a: NetworkRule,
  b: NetworkRule,
  { port }: NetworkTarget,
): { plain: boolean; port: number | null } | null {
  const [first, second] = [a, b].map((rule) => (isLookedInto(rule) ? rule.tls === false : undefined));
  const plain = first ?? second ?? false;
  if (first === undefined || second === undefined || first === second) return { plain, port };
  return port === null || port === 80 ? { plain: false, port: 80 } : null;
}

function meetAddresses(asked: ParsedRule, has: ParsedRule, ceiling: Ceiling): readonly AddressBlock[] | undefined {
  // What everything holds of the public addresses is all of them.
  const [inner, outer] = [asked, has].map(({ target, blocks }) => (target === EVERYWHERE ? undefined : blocks));
  if (inner === undefined && outer === undefined) return undefined;
  if (asked.blocks === undefined && ceiling !== "itself") return outer;
  return meetBlocks(asked.blocks ?? PUBLIC_ADDRESSES, has.blocks ?? PUBLIC_ADDRESSES);
}

function meetLists(
  some: readonly string[] | undefined,
  others: readonly string[] | undefined,
  meet: (a: readonly string[], b: readonly string[]) => string[],
): readonly string[] | undefined {
  return some === undefined || others === undefined ? (some ?? others) : meet(some, others);
}

/** A header that both set is set by Corral. A header that only one sets is not sent at all. */
function meetHeaders(asked: NetworkRule, has: NetworkRule, ceiling: Ceiling): Pick<NetworkRule, "set" | "without"> {
  if (ceiling === "policy") {
    // An empty list closes no header, and keeps a rule that is looked into what it is.
    const without = asked.without ?? (headersOf(has).length > 0 && !asked.set ? [] : undefined);
    return { ...(asked.set && { set: asked.set }), ...(without && { without }) };
  }
  const set = Object.entries(asked.set ?? {}).filter(([name, { secret }]) => has.set?.[name]?.secret === secret);
  const names = set.map(([name]) => name);
  const without = [...headersOf(asked), ...headersOf(has)].filter((name) => !names.includes(name));
  return { ...(set.length > 0 && { set: Object.fromEntries(set) }), ...(without.length > 0 && { without }) };
}

function headersOf({ set = {}, without = [] }: NetworkRule): string[] {
  return [...Object.keys(set), ...without];
}
