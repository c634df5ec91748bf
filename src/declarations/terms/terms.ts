import { z } from "zod";
import { type ApprovalRules, CONSENTS } from "../../sandbox/approval.ts";
import { LIMIT_NAMES, LIMITS, type LimitName, type LimitRow, type Limits } from "../../sandbox/limits.ts";
import { type NetworkRule, PACKAGE_KINDS } from "../../sandbox/network/rule.ts";
import { hidesHome, isReserved, parseVirtualPath, ROOT, type VirtualPath } from "../../sandbox/virtual-path.ts";
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
import { byKind, duration, map, namedMap, size } from "../yaml/shape.ts";
import { named, nameFault } from "./names.ts";

/** Who decides about an operation. Files written before 0.2 say `preApproved` for `pre_approved`; both are read. */
export const consent = z.preprocess((raw) => (raw === "preApproved" ? "pre_approved" : raw), z.enum(CONSENTS));

/* The terms that `corral.yaml` and worker files share, as schemas. */

/** A shell is never implied, so words are never split: the message shows what was probably meant. */
export const command = z
  .array(
    z
      .string()
      .max(131_072)
      .refine((word) => !word.includes("\0"), "must not contain a NUL character"),
    {
      error: ({ input }) =>
        typeof input === "string"
          ? `must be a list of words; write it as [${input.trim().split(/\s+/).join(", ")}]`
          : undefined,
    },
  )
  .min(1)
  .max(1000)
  .refine((words) => words[0] !== "", { path: [0], error: "must name a program" });

export const mode = z.enum(["ro", "rw"]);

/** A path on the host, relative to the project. */
export const hostPath = z
  .string()
  .min(1)
  .max(4096)
  .refine((raw) => !raw.includes("\0"), "must not contain a NUL character");

/** `approval: pre_approved` is writing and deleting; either is asked for if it is not named. */
export const approval = byKind(
  {
    text: consent.transform((both): ApprovalRules => ({ write: both, delete: both })),
    map: map({
      read: consent.optional(),
      write: consent.default("ask"),
      delete: consent.default("ask"),
      call: consent.optional(),
    }).transform((raw): ApprovalRules => present(raw)),
  },
  "must be `pre_approved`, `ask`, `blocked`, or a map of `read`, `write`, `delete` and `call`",
);

/** A switch that is off if it is absent. `false` says the same as nothing. */
export const onlyOn = z.boolean().transform((on): true | undefined => on || undefined);

/** What happens to writes. A derivation never removes what a caller has, so `false` takes nothing away. */
export const sides = { stage: onlyOn.optional(), discard: onlyOn.optional() };

/** Constraints that travel with a mount through every derivation. */
export const constraints = {
  approval: approval.optional(),
  suffixes: z
    .array(z.string().regex(/^\.?[A-Za-z0-9][A-Za-z0-9.+_-]{0,62}$/, "must be a file suffix such as `.md`"))
    .min(1)
    .max(100)
    .optional(),
  max_file_bytes: size.optional(),
  ...sides,
};

interface RawConstraints {
  readonly suffixes?: readonly string[] | undefined;
  readonly max_file_bytes?: number | undefined;
  readonly approval?: ApprovalRules | undefined;
  readonly stage?: true | undefined;
  readonly discard?: true | undefined;
}

export function constraintsOf({ suffixes, max_file_bytes, approval, stage, discard }: RawConstraints) {
  return present({ suffixes, maxFileBytes: max_file_bytes, approval, stage, discard });
}

/** A path as a worker writes it. Only its form is checked here: which names may precede a colon depends on the caller. */
export const virtualPath = z.string().superRefine((raw, context) => {
  const parsed = parseVirtualPath(raw, { mountNames: [raw.slice(0, Math.max(0, raw.indexOf(":")))], home: ROOT });
  if (!parsed.ok) context.addIssue({ code: "custom", message: parsed.reason });
});

/** The place of a mount in the namespace, if it is not `/NAME`: written as messages show it. */
export const mountPlace = z.string().transform((raw, context): VirtualPath => {
  const parsed = parseVirtualPath(raw);
  const fault = !parsed.ok
    ? parsed.reason
    : parsed.path !== raw
      ? `must be an absolute path such as \`${parsed.path}\``
      : isReserved(parsed.path, { rooted: false }) || hidesHome(parsed.path)
        ? "is reserved: it would hide a system directory of the cell"
        : null;
  if (parsed.ok && fault === null) return parsed.path;
  context.issues.push({ code: "custom", input: raw, message: fault ?? "" });
  return z.NEVER;
});

/** Two mounts cannot be at one place. */
export function refuseSamePlace(
  entries: Iterable<readonly [string, { readonly at?: string | undefined }]>,
  context: z.core.$RefinementCtx,
): void {
  const places = new Map<string, string>();
  for (const [name, { at = `/${name}` }] of entries) {
    const taken = places.get(at);
    if (taken === undefined) places.set(at, name);
    else {
      const message = `is at \`${at}\`, as \`${taken}\` is; give it another place`;
      context.addIssue({ code: "custom", input: name, path: [name], message });
    }
  }
}

/** One limit as a file writes it. */
export function amountOf({ unit, min = 0, max = Number.MAX_SAFE_INTEGER }: LimitRow): z.ZodType<number> {
  if (unit === "duration") return duration;
  if (unit === "bytes") return size;
  return (unit === "count" ? z.int() : z.number()).min(min).max(max);
}

type LimitKey = (typeof LIMITS)[LimitName]["key"];

/** A key for each limit, with what `schemaOf` makes of its row. */
export function limitKeys<Schema extends z.ZodType>(schemaOf: (row: LimitRow, limit: LimitName) => Schema) {
  const keys = LIMIT_NAMES.map((name) => [LIMITS[name].key, schemaOf(LIMITS[name], name)] as const);
  return Object.fromEntries(keys) as Record<LimitKey, Schema>;
}

/** The keys of `limits`; a worker's has more. */
export const limitFields = limitKeys((row) => amountOf(row).optional());

const limitMap = map(limitFields);

export const limits = limitMap.transform(limitsOf);

export function limitsOf(raw: z.output<typeof limitMap>): Limits {
  return present(Object.fromEntries(LIMIT_NAMES.map((name) => [name, raw[LIMITS[name].key]])));
}

/** The most rules of one list. */
const MAX_RULES = 100;
/** The most hosts that are granted while a worker runs, and the default. */
const MAX_GRANTS = 64;
const DEFAULT_GRANTS = 8;
const MAX_CONNECTIONS = 1024;

const networkTarget = text(readTarget);

const set = namedMap(map({ secret: named(nameFault) }), headerFault, 16).transform(
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
function rulesOf<Rule extends z.ZodType<NetworkRule>>(each: Rule) {
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
const ruleTerms = {
  methods: z.array(text(readMethod)).min(1).max(30).optional(),
  paths: z.array(text(readPath)).min(1).max(100).optional(),
  set: set.optional(),
  addresses: addressList.optional(),
  tls: z.literal(false, "can only be `false`; leave it out otherwise").optional(),
};

/** One rule: a text, or a map. */
function ruleForms<Terms extends z.ZodRawShape>(terms: Terms) {
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
const networkLimits = map({
  upload: size.optional(),
  download: size.optional(),
  requests: z.int().min(1).optional(),
  connections: z.int().min(1).max(MAX_CONNECTIONS).optional(),
}).transform(({ upload, download, requests, connections }) =>
  present({ uploadBytes: upload, downloadBytes: download, requests, connections }),
);

const dynamicHosts = map({
  within: z.array(networkTarget).min(1).max(MAX_RULES),
  max: z.int().min(1).max(MAX_GRANTS).default(DEFAULT_GRANTS),
});

const further = { limits: networkLimits.optional(), dynamic: dynamicHosts.optional() };

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
