import { domainToASCII } from "node:url";
import { z } from "zod";
import { blockText, parseBlock } from "../../sandbox/network/address.ts";
import { addressAllowed } from "../../sandbox/network/judge.ts";
import { patternFault } from "../../sandbox/network/path-glob.ts";
import { isLookedInto, type NetworkRule, PACKAGE_KINDS } from "../../sandbox/network/rule.ts";
import { isAddress, type NetworkTarget, parseTarget, targetText } from "../../sandbox/network/target.ts";
import type { PackagePreset } from "../network/raw-network.ts";
import { byKind, map, namedMap } from "../yaml/shape.ts";
import { size } from "../yaml/units.ts";
import { nameFault } from "./names.ts";
import { present } from "./present.ts";
import { hostPath } from "./terms.ts";

/** The most rules of one list. */
const MAX_RULES = 100;
/** The most hosts that are granted while a worker runs, and the default. */
const MAX_GRANTS = 64;
const DEFAULT_GRANTS = 8;
const MAX_CONNECTIONS = 1024;

/** `host:port`, in the one form that is compared: lower case, no dot at the end, names of other alphabets in ASCII. */
export const networkTarget = text((raw) => {
  const parsed = parseTarget(inAscii(raw));
  return parsed.ok ? { value: targetText(parsed.target) } : { fault: parsed.reason };
});

/** They would end the connection's form, or make Corral's own place in it unsafe. */
const REFUSED_METHODS = ["CONNECT", "TRACE", "TRACK"];

const method = text((raw) => {
  const name = raw.toUpperCase();
  if (REFUSED_METHODS.includes(name)) return { fault: `cannot be allowed: ${name} is for proxies` };
  return /^[A-Z][A-Z-]{0,30}$/.test(name) ? { value: name } : { fault: "must be a method such as GET" };
});

const path = text((raw) => {
  const fault = patternFault(raw);
  return fault === null ? { value: raw } : { fault };
});

const addresses = text((raw) => {
  const block = parseBlock(raw);
  if (block === null) return { fault: "must be addresses such as `10.1.0.0/16` or `fd00::/8`" };
  if (/^::ffff:/.test(blockText(block))) return { fault: "must be written as IPv4, without `::ffff:`" };
  const [address] = blockText(block).split("/");
  const isWhole = parseBlock(raw.split("/", 1)[0] ?? "")?.value === block.value;
  return isWhole
    ? { value: blockText(block) }
    : { fault: `must be written from its first address: \`${address}/${block.prefix}\`` };
});

/** Headers that belong to the connection, or with which a request would mean something else than what was judged. */
const REFUSED_HEADERS = [
  "accept-encoding",
  "connection",
  "content-encoding",
  "content-length",
  "expect",
  "forwarded",
  "host",
  "http2-settings",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "range",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "via",
  "x-forwarded-for",
  "x-forwarded-host",
  "x-http-method",
  "x-http-method-override",
  "x-method-override",
  "x-original-url",
  "x-rewrite-url",
];

function headerFault(name: string): string | null {
  if (!/^[a-z0-9][a-z0-9._-]{0,63}$/i.test(name)) return "must be the name of a header";
  return REFUSED_HEADERS.includes(name.toLowerCase()) ? "cannot be set: Corral or the connection decides it" : null;
}

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

/** The terms of one rule beside its target, as files and programs write them. */
export const ruleTerms = {
  methods: z.array(method).min(1).max(30).optional(),
  paths: z.array(path).min(1).max(100).optional(),
  set: set.optional(),
  addresses: z.array(addresses).min(1).max(100).optional(),
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
export const policyNetwork = byKind(
  { switch: z.boolean(), map: map({ allow: rulesOf(ruleForms(termsOfPolicies)), ...further }).transform(present) },
  "must be `true`, `false` or `{ allow: [host:port] }`",
);

/** A list of rules, of which no two would be at one place in a cell. */
export function rulesOf<Rule extends z.ZodType<NetworkRule>>(each: Rule) {
  return z
    .array(each)
    .max(MAX_RULES)
    .superRefine((rules, context) => {
      const places = rules.map(placesOf);
      for (const [index, place] of places.entries()) {
        const before = places
          .slice(0, index)
          .find((other) => other.host === place.host && other.port !== place.port && place.host !== null);
        if (before === undefined) continue;
        const message = `and \`${before.to}\` would both be \`http://${place.host}/\` in the cell; leave one out, or let neither be looked into`;
        issue(context, rules[index], `\`${place.to}\` ${message}`, [index]);
      }
    });
}

/** Which host's port 80 of the cell a rule takes: its own, or that of the looked-into port 443. */
function placesOf(rule: NetworkRule): { readonly to: string; readonly host: string | null; readonly port: number } {
  const target = targetOf(rule.to);
  const takes = target?.port === 80 || (target?.port === 443 && isLookedInto(rule));
  return {
    to: rule.to,
    host: target !== null && !target.wildcard && takes ? target.host : null,
    port: target?.port ?? 0,
  };
}

/** An address that is not public is dialled only if the rule says so, which one that names it should not leave to be found out. */
function refusePrivateAddress(rule: NetworkRule, context: z.core.$RefinementCtx): void {
  const host = targetOf(rule.to)?.host ?? "";
  const address = host.replace(/^\[|\]$/g, "");
  if (!isAddress(host) || addressAllowed(rule, address)) return;
  const block = parseBlock(address);
  const cidr = block === null ? address : blockText(block);
  issue(context, rule, `\`${address}\` is not public; write \`{ to: "${rule.to}", addresses: ["${cidr}"] }\``);
}

function targetOf(to: string): NetworkTarget | null {
  const parsed = parseTarget(to);
  return parsed.ok ? parsed.target : null;
}

/** Only the host, since the rest of the text has a form of its own. */
function inAscii(raw: string): string {
  const [, before = "", host = "", after = ""] = /^(\*\.)?(.*?)(:[^:]*)?$/s.exec(raw) ?? [];
  const isAscii = /^[\0-\x7f]*$/.test(host);
  return isAscii ? raw : `${before}${domainToASCII(host) || host}${after}`;
}

type Read = { readonly value: string } | { readonly fault: string };

function text(read: (raw: string) => Read) {
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
