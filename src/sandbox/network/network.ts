import {
  type AddressBlock,
  addressesOfOthers,
  blockInside,
  blockText,
  EVERY_ADDRESS,
  halvesOf,
  meetBlocks,
  mergeBlocks,
  parseBlock,
  publicAddresses,
} from "./address.ts";
import {
  indexPatterns,
  meetPatternLists,
  type PatternIndex,
  patternFault,
  segmentCount,
  splitPattern,
  widestPatterns,
} from "./path-glob.ts";
import {
  type AllowedNetwork,
  type Artifact,
  type ArtifactIndex,
  artifactInside,
  artifactsBelow,
  canonicalArtifacts,
  type DynamicNetwork,
  EVERYWHERE,
  indexArtifacts,
  isLookedInto,
  meetArtifacts,
  meetTargets,
  NETWORK_TERMS,
  type Network,
  type NetworkExcess,
  type NetworkLimits,
  type NetworkRule,
  type NetworkTarget,
  type NetworkTerm,
  networkTargetText,
  parseTarget,
  targetInside,
} from "./rule.ts";

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

/** Null for a rule that allows nothing: malformed, or with an empty list of methods, paths, addresses or files. */
function parseRule(raw: NetworkRule): ParsedRule | null {
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
    to: networkTargetText(parsed.target),
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
  // Both are sorted by their texts.
  const all = publicAddresses();
  const isAt = ({ bits, value, prefix }: AddressBlock, index: number): boolean =>
    all[index]?.bits === bits && all[index]?.value === value && all[index]?.prefix === prefix;
  return blocks.length === all.length && blocks.every(isAt) ? undefined : blocks;
}

/** By place, then those that set more headers first. */
function inOrder(a: NetworkRule, b: NetworkRule): number {
  if (a.to !== b.to) return a.to < b.to ? -1 : 1;
  const [more, less] = [b, a].map(({ set = {} }) => Object.keys(set).length) as [number, number];
  return more - less || (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1);
}

function sorted(texts: readonly string[]): string[] {
  return [...new Set(texts)].sort();
}

function hasOwn(set: NetworkRule["set"], name: string): boolean {
  return set !== undefined && Object.hasOwn(set, name);
}

export const NETWORK_LIMITS = ["uploadBytes", "downloadBytes", "requests", "connections"] as const;

/** The canonical form: sorted, without rules that another one includes; a list that allows nothing is `false`. */
export function canonicalNetwork(network: Network): Network {
  return typeof network === "boolean" ? network : networkOf(network.allow, network.limits, network.dynamic);
}

/** What is asked, as far as there is that; canonical. What a rule does not say it inherits, as {@link Ceiling} says. */
export function meetNetwork(asked: Network, has: Network, ceiling: Ceiling = "caller"): Network {
  if (asked === false || has === false) return false;
  if (asked === true && has === true) return true;
  const outer = has === true ? everywhere(ceiling) : parsed(has.allow);
  const inner = asked === true ? everywhere("caller") : parsed(asked.allow);
  const allow = inner.flatMap((rule) => outer.flatMap((each) => meetRules(rule, each, ceiling) ?? []));
  const { limits, dynamic } = asked === true ? {} : asked;
  if (has === true) return networkOf(allow, limits, dynamic);
  return networkOf(allow, meetLimits(limits, has.limits), meetDynamic(dynamic, has));
}

/** Everything that is asked and that there is not, in the order in which it is asked. A malformed rule always exceeds. */
export function networkExcesses(asked: Network, has: Network, ceiling: Ceiling = "caller"): NetworkExcess[] {
  if (asked === false || (asked === true && has === true)) return [];
  if (asked === true) return [{ kind: "all" }];
  const outer = has === true ? everywhere(ceiling) : has === false ? [] : parsed(has.allow);
  const rules = asked.allow.flatMap((rule): NetworkExcess[] => {
    const inner = parseRule(rule);
    const term = inner === null ? "to" : excessOf(inner, outer, ceiling);
    return term === null ? [] : [{ kind: "rule", rule: inner?.rule ?? rule, term }];
  });
  return has === true ? rules : [...rules, ...limitExcesses(asked.limits, has), ...dynamicExcesses(asked.dynamic, has)];
}

/** A network that asks for this and nothing else. */
export function askedBy(excess: NetworkExcess): Network {
  switch (excess.kind) {
    case "all":
      return true;
    case "rule":
      return { allow: [excess.rule] };
    case "limit":
      return { allow: [], limits: { [excess.limit]: excess.asked } };
    case "dynamic":
      return { allow: [], dynamic: { within: [excess.within], max: 1 } };
    case "dynamicMax":
      return { allow: [], dynamic: { within: [], max: excess.asked } };
  }
}

function networkOf(allow: readonly NetworkRule[], limits?: NetworkLimits, dynamic?: DynamicNetwork): Network {
  const rules = withoutIncluded(parsed(allow));
  const within = dynamic === undefined ? [] : canonicalTargets(dynamic.within);
  if (rules.length === 0 && within.length === 0) return false;
  const said = NETWORK_LIMITS.flatMap((name) => (limits?.[name] === undefined ? [] : [[name, limits[name]] as const]));
  return {
    allow: rules,
    ...(said.length > 0 && { limits: Object.fromEntries(said) }),
    ...(dynamic !== undefined && within.length > 0 && { dynamic: { within, max: dynamic.max } }),
  };
}

/** Malformed rules allow nothing. */
function parsed(allow: readonly NetworkRule[]): ParsedRule[] {
  return allow.map(parseRule).filter((rule) => rule !== null);
}

/** A rule with a label stays beside one without it: the label is what the environment of the cell is made from. */
function withoutIncluded(rules: readonly ParsedRule[]): NetworkRule[] {
  const byText = new Map(rules.map((rule) => [JSON.stringify(rule.rule), rule]));
  const kept = [...byText.values()].sort((a, b) => inOrder(a.rule, b.rule));
  const isIn = (inner: ParsedRule, outer: ParsedRule): boolean =>
    (inner.rule.packages === undefined ||
      JSON.stringify(inner.rule.packages) === JSON.stringify(outer.rule.packages)) &&
    excessOf(inner, [outer], "itself") === null;
  const isIncluded = (rule: ParsedRule, index: number): boolean =>
    kept.some((other, place) => place !== index && isIn(rule, other) && (place < index || !isIn(other, rule)));
  return kept.filter((rule, index) => !isIncluded(rule, index)).map(({ rule }) => rule);
}

function meetLimits(asked: NetworkLimits = {}, has: NetworkLimits = {}): NetworkLimits {
  const least = NETWORK_LIMITS.map((name) => [name, Math.min(asked[name] ?? Infinity, has[name] ?? Infinity)] as const);
  return Object.fromEntries(least.filter(([, amount]) => amount !== Infinity));
}

function limitExcesses(asked: NetworkLimits = {}, has: Network): NetworkExcess[] {
  const most = typeof has === "boolean" ? {} : (has.limits ?? {});
  return NETWORK_LIMITS.flatMap((limit): NetworkExcess[] => {
    const [more, less] = [asked[limit] ?? 0, most[limit] ?? Infinity];
    return more > less ? [{ kind: "limit", limit, asked: more, has: less }] : [];
  });
}

/** A host that the caller has, or may be granted itself. */
function meetDynamic(asked: DynamicNetwork | undefined, has: AllowedNetwork): DynamicNetwork | undefined {
  if (asked === undefined) return undefined;
  const outer = targetsOf([...has.allow.map(({ to }) => to), ...(has.dynamic?.within ?? [])]);
  const met = targetsOf(asked.within).flatMap((one) => outer.flatMap((other) => meetTargets(one, other) ?? []));
  return { within: met.map(networkTargetText), max: Math.min(asked.max, has.dynamic?.max ?? asked.max) };
}

function dynamicExcesses(asked: DynamicNetwork | undefined, has: Network): NetworkExcess[] {
  if (asked === undefined) return [];
  const { allow, dynamic } = typeof has === "boolean" ? { allow: [], dynamic: undefined } : has;
  const outer = targetsOf([...allow.map(({ to }) => to), ...(dynamic?.within ?? [])]);
  const more = asked.within.filter(
    (to) => !targetsOf([to]).some((one) => outer.some((other) => targetInside(one, other))),
  );
  const max = dynamic !== undefined && asked.max > dynamic.max;
  return [
    ...more.map((within): NetworkExcess => ({ kind: "dynamic", within })),
    ...(max ? [{ kind: "dynamicMax" as const, asked: asked.max, has: dynamic.max }] : []),
  ];
}

function canonicalTargets(texts: readonly string[]): string[] {
  const byText = new Map(targetsOf(texts).map((target) => [networkTargetText(target), target]));
  const kept = [...byText].filter(
    ([, one]) => ![...byText.values()].some((other) => other !== one && targetInside(one, other)),
  );
  return kept.map(([text]) => text).sort();
}

function targetsOf(texts: readonly string[]): NetworkTarget[] {
  return texts.map(parseTarget).flatMap((each) => (each.ok ? [each.target] : []));
}

/**
 * How two rules are compared. `caller`: what is asked inherits addresses and files that it does not name. `policy`: the same,
 * and any secret may be set, since a policy knows no project's secrets. `itself`: nothing is inherited.
 */
export type Ceiling = "caller" | "policy" | "itself";

/** The rules that `network: true` is worth as a ceiling. The Engine's network does not lead to the loopback of the machine. */
function everywhere(ceiling: Ceiling): ParsedRule[] {
  const blocks = ceiling === "policy" ? EVERY_ADDRESS : addressesOfOthers();
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
function excessOf(asked: ParsedRule, has: readonly ParsedRule[], ceiling: Ceiling): NetworkTerm | null {
  const near = has.filter(({ target }) => targetInside(asked.target, target));
  const { methods, paths, artifacts } = asked.rule;
  const isBounded = ceiling === "itself" && near.some(({ blocks }) => blocks !== undefined);
  const blocks = asked.blocks ?? (isBounded ? publicAddresses() : undefined);
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
  if (block !== undefined && has.some(({ blocks }) => (blocks ?? publicAddresses()).some(isFiner)))
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
  const allowed = blocks ?? publicAddresses();
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
function meetRules(asked: ParsedRule, has: ParsedRule, ceiling: Ceiling): NetworkRule | null {
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
  return meetBlocks(asked.blocks ?? publicAddresses(), has.blocks ?? publicAddresses());
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
