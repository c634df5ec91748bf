import { type AddressBlock, blockText, mergeBlocks, PUBLIC_ADDRESSES, parseBlock } from "./address.ts";
import { type ArtifactIndex, artifactsBelow, canonicalArtifacts, indexArtifacts } from "./artifacts.ts";
import { indexPatterns, type PatternIndex, patternFault, widestPatterns } from "./path-glob.ts";
import { isLookedInto, type NetworkRule } from "./rule.ts";
import { type NetworkTarget, parseTarget, targetText } from "./target.ts";

/** A rule in canonical form, with its parts parsed. */
export interface ParsedRule {
  readonly rule: NetworkRule;
  readonly target: NetworkTarget;
  /** Undefined: as `addresses` of the rule, every public one. */
  readonly blocks: readonly AddressBlock[] | undefined;
  /** Of the paths; undefined: as there. */
  readonly places: PatternIndex | undefined;
  /** Of the artifacts; undefined: as there. */
  readonly files: ArtifactIndex | undefined;
}

const PUBLIC_TEXTS = PUBLIC_ADDRESSES.map(blockText);

/** Null for a rule that allows nothing: malformed, or with an empty list of methods, paths, addresses or files. */
export function parseRule(raw: NetworkRule): ParsedRule | null {
  const parsed = parseTarget(raw.to);
  const methods = raw.methods && sorted(raw.methods.map((method) => method.toUpperCase()));
  const bothPaths = raw.paths && widestPatterns(sorted(raw.paths.filter((path) => patternFault(path) === null)));
  const blocks = raw.addresses && blocksOf(raw.addresses);
  // Of files, paths only leave some: in one list both are compared much faster.
  const paths = raw.artifacts === undefined ? bothPaths : undefined;
  const artifacts = raw.artifacts && canonicalArtifacts(artifactsBelow(raw.artifacts, bothPaths));
  if (!parsed.ok || [methods, paths, blocks, artifacts].some((list) => list?.length === 0)) return null;
  const set =
    raw.set &&
    Object.fromEntries(Object.entries(raw.set).map(([name, { secret }]) => [name.toLowerCase(), { secret }]));
  const without =
    raw.without && sorted(raw.without.map((name) => name.toLowerCase())).filter((name) => !hasOwn(set, name));
  const bounds = {
    ...(methods && { methods }),
    ...(paths && { paths }),
    ...(set && { set: Object.fromEntries(Object.entries(set).sort(([a], [b]) => (a < b ? -1 : 1))) }),
    ...(without && (without.length > 0 || !set) && { without }),
    ...(blocks && { addresses: blocks.map(blockText) }),
  };
  // On port 80 it says nothing more, unless it is what makes Corral look into the requests.
  const saysTls =
    raw.tls === false && (parsed.target.port !== 80 || !isLookedInto({ ...bounds, ...(artifacts && { artifacts }) }));
  const rule: NetworkRule = {
    to: targetText(parsed.target),
    ...bounds,
    ...(saysTls && { tls: false }),
    ...(raw.packages && { packages: raw.packages }),
    ...(artifacts && { artifacts }),
  };
  return {
    rule,
    target: parsed.target,
    blocks,
    places: paths && indexPatterns(paths),
    files: artifacts && indexArtifacts(artifacts),
  };
}

/** Undefined: every public address, also if each of them is listed. */
function blocksOf(addresses: readonly string[]): readonly AddressBlock[] | undefined {
  const blocks = mergeBlocks(addresses.map(parseBlock).filter((block) => block !== null));
  const isPublic =
    blocks.length === PUBLIC_ADDRESSES.length &&
    blocks.every((block, index) => blockText(block) === PUBLIC_TEXTS[index]);
  return isPublic ? undefined : blocks;
}

/** By place, then those that set more headers first. */
export function inOrder(a: NetworkRule, b: NetworkRule): number {
  if (a.to !== b.to) return a.to < b.to ? -1 : 1;
  const [more, less] = [b, a].map(({ set = {} }) => Object.keys(set).length) as [number, number];
  return more - less || (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1);
}

function sorted(texts: readonly string[]): string[] {
  return [...new Set(texts)].sort();
}

export function hasOwn(set: NetworkRule["set"], name: string): boolean {
  return set !== undefined && Object.hasOwn(set, name);
}
