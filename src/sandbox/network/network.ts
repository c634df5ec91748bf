import { inOrder, type ParsedRule, parseRule } from "./canonical-rule.ts";
import type { NetworkExcess } from "./excess.ts";
import type { AllowedNetwork, DynamicNetwork, Network, NetworkLimits, NetworkRule } from "./rule.ts";
import { type Ceiling, everywhere, excessOf, meetRules } from "./rule-bounds.ts";
import { meetTargets, type NetworkTarget, parseTarget, targetInside, targetText } from "./target.ts";

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
  return { within: met.map(targetText), max: Math.min(asked.max, has.dynamic?.max ?? asked.max) };
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
  const byText = new Map(targetsOf(texts).map((target) => [targetText(target), target]));
  const kept = [...byText].filter(
    ([, one]) => ![...byText.values()].some((other) => other !== one && targetInside(one, other)),
  );
  return kept.map(([text]) => text).sort();
}

function targetsOf(texts: readonly string[]): NetworkTarget[] {
  return texts.map(parseTarget).flatMap((each) => (each.ok ? [each.target] : []));
}
