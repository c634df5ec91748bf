import { z } from "zod";
import { type NetworkRule, PACKAGE_KINDS } from "../../sandbox/network/rule.ts";
import { present } from "../../text/present.ts";
import {
  headerFault,
  type PackagePreset,
  placeFaults,
  privateAddressFault,
  readAddresses,
  readMethod,
  readPath,
  readTarget,
  type TermRead,
} from "../network/rule-terms.ts";
import { byKind, map, namedMap, size } from "../yaml/shape.ts";
import { nameFault } from "./names.ts";
import { hostPath } from "./terms.ts";

/** The most rules of one list. */
const MAX_RULES = 100;
/** The most hosts that are granted while a worker runs, and the default. */
const MAX_GRANTS = 64;
const DEFAULT_GRANTS = 8;
const MAX_CONNECTIONS = 1024;

export const networkTarget = text(readTarget);

const secretName = z.string().superRefine((raw, context) => {
  const message = nameFault(raw);
  if (message !== null) context.addIssue({ code: "custom", message });
});

const set = namedMap(map({ secret: secretName }), headerFault, 16).transform(
  (headers, context): NonNullable<NetworkRule["set"]> => {
    const names = [...headers.keys()].map((name) => name.toLowerCase());
    for (const [index, name] of [...headers.keys()].entries())
      if (names.indexOf(name.toLowerCase()) < index)
        issue(context, headers, `\`${name.toLowerCase()}\` is set twice`, [name]);
    if (names.length === 0) issue(context, headers, "must name at least one header");
    return Object.fromEntries([...headers].map(([name, value]) => [name.toLowerCase(), value]));
  },
);

/** A list of rules, of which no two would be at one place in a cell. */
export function rulesOf<Rule extends z.ZodType<NetworkRule>>(each: Rule) {
  return z
    .array(each)
    .max(MAX_RULES)
    .superRefine((rules, context) => {
      for (const { index, fault } of placeFaults(rules)) issue(context, rules[index], fault, [index]);
    });
}

function refusePrivateAddress(rule: NetworkRule, context: z.core.$RefinementCtx): void {
  const fault = privateAddressFault(rule);
  if (fault !== null) issue(context, rule, fault);
}

/** The only addresses that may be dialled. */
export const addressList = z.array(text(readAddresses)).min(1).max(100);

/** The terms of one rule beside its target, as files and programs write them. */
export const ruleTerms = {
  methods: z.array(text(readMethod)).min(1).max(30).optional(),
  paths: z.array(text(readPath)).min(1).max(100).optional(),
  set: set.optional(),
  addresses: addressList.optional(),
  tls: z.literal(false, "can only be `false`; leave it out otherwise").optional(),
};

/** One rule: a text, or a map. */
export function ruleForms<Terms extends z.ZodRawShape>(terms: Terms) {
  return byKind(
    {
      text: networkTarget.transform((to): NetworkRule => ({ to })).superRefine(refusePrivateAddress),
      map: map({ to: networkTarget, ...terms })
        .transform((rule) => present(rule) as unknown as NetworkRule)
        .superRefine(refusePrivateAddress),
    },
    "must be `host:port` or a map with `to`",
  );
}

const rule = ruleForms(ruleTerms);
const { set: _, ...termsOfPolicies } = ruleTerms;
const limits = map({
  upload: size.optional(),
  download: size.optional(),
  requests: z.int().min(1).optional(),
  connections: z.int().min(1).max(MAX_CONNECTIONS).optional(),
}).transform(({ upload, download, requests, connections }) =>
  present({ uploadBytes: upload, downloadBytes: download, requests, connections }),
);

export const dynamicHosts = map({
  within: z.array(networkTarget).min(1).max(MAX_RULES),
  max: z.int().min(1).max(MAX_GRANTS).default(DEFAULT_GRANTS),
});

const further = { limits: limits.optional(), dynamic: dynamicHosts.optional() };

const kind = z.enum(PACKAGE_KINDS);
/** The registries of a company are often at private addresses. */
const preset = byKind(
  {
    text: kind.transform((name): PackagePreset => ({ kind: name })),
    map: map({ kind, addresses: ruleTerms.addresses }).transform((raw): PackagePreset => present(raw)),
  },
  `must be one of ${PACKAGE_KINDS.join(", ")}, or a map of \`kind\` and \`addresses\``,
);

function refuseSameKind(presets: readonly PackagePreset[], context: z.core.$RefinementCtx): void {
  for (const [index, { kind: name }] of presets.entries())
    if (presets.findIndex((other) => other.kind === name) < index)
      issue(context, presets, `\`${name}\` is there twice`, [index]);
}

/** A project's or a worker's `network`. */
export const network = byKind(
  {
    switch: z.boolean(),
    map: map({
      allow: rulesOf(rule).default([]),
      packages: z.array(preset).max(PACKAGE_KINDS.length).superRefine(refuseSameKind).optional(),
      lockfiles: z.array(hostPath).max(10).optional(),
      ...further,
    }).transform(present),
  },
  "must be `true`, `false` or `{ allow: [host:port] }`",
);

/** A policy's: a ceiling, so without what only a project has, its secrets and its files. */
export const policyRules = map({ allow: rulesOf(ruleForms(termsOfPolicies)), ...further }).transform(present);

function text(read: (raw: string) => TermRead) {
  return z
    .string()
    .max(3000)
    .transform((raw, context): string => {
      const result = read(raw);
      if ("value" in result) return result.value;
      issue(context, raw, result.fault);
      return z.NEVER;
    });
}

function issue(context: z.core.$RefinementCtx, input: unknown, message: string, at: (string | number)[] = []): void {
  context.issues.push({ code: "custom", input, path: at, message });
}
