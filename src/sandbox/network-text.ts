import type {
  NetworkExcess,
  NetworkLimits,
  NetworkRule,
  NetworkTerm,
  ShownNetwork,
  ShownRule,
} from "./network/rule.ts";
import { formatBytes } from "./units.ts";

/** How many rules or files a text names. */
const MAX_NAMED = 20;

/** `api.example.org:443 (GET, /v1/**, sets x-api-key from secret example)`: a rule with every term that it has. */
export function ruleText(rule: ShownRule): string {
  const { methods, paths, set = {}, without = [], addresses, tls, packages, artifacts } = rule;
  const terms = [
    methods?.join(" "),
    paths === undefined ? undefined : listOf(paths, " "),
    artifacts === undefined ? undefined : `${artifacts} files of lock files`,
    ...Object.entries(set).map(([header, { secret }]) => `sets ${header} from secret ${secret}`),
    without.length === 0 ? undefined : `without ${without.join(" ")}`,
    addresses === undefined ? undefined : `at ${listOf(addresses, " ")}`,
    tls === false ? "plain HTTP" : undefined,
    packages === undefined ? undefined : `packages ${packages}`,
  ].filter((term) => term !== undefined);
  return terms.length === 0 ? rule.to : `${rule.to} (${terms.join(", ")})`;
}

/** One text for each rule, for the limits and for what a worker may ask for. */
export function networkTexts(network: ShownNetwork): readonly string[] {
  if (typeof network === "boolean") return [network ? "every host" : "none"];
  const { allow, limits = {}, dynamic } = network;
  const bounds = limitEntries(limits).map(([name, amount]) => limitText(name, amount));
  return [
    ...(allow.length === 0 ? ["none"] : allow.map(ruleText)),
    ...(bounds.length === 0 ? [] : [`at most ${bounds.join(", ")}`]),
    ...(dynamic === undefined ? [] : [`may ask for ${listOf(dynamic.within, " ")} (at most ${dynamic.max})`]),
  ];
}

/** All of it on one line. */
export function networkText(network: ShownNetwork): string {
  return listOf(networkTexts(network), ", ");
}

/** What is asked for and not available, without the terms that are. */
export function excessText(excess: NetworkExcess): string {
  switch (excess.kind) {
    case "all":
      return "every host";
    case "rule":
      return TERMS[excess.term](excess.rule);
    case "limit":
      return limitText(excess.limit, excess.asked);
    case "dynamic":
      return `${excess.within} (to ask for)`;
    case "dynamicMax":
      return `${excess.asked} hosts to ask for`;
  }
}

const TERMS: { readonly [Term in NetworkTerm]: (rule: NetworkRule) => string } = {
  to: ({ to }) => to,
  tunnel: ({ to }) => `${to} as a tunnel (its requests are looked into: name \`methods\` or \`paths\`)`,
  tls: ({ to, tls }) => `${to} ${tls === false ? "without" : "with"} TLS`,
  methods: ({ to, methods }) => `${to} with ${methods?.join(" ") ?? "every method"}`,
  paths: ({ to, paths }) => `${to} with ${paths === undefined ? "every path" : listOf(paths, " ")}`,
  artifacts: ({ to }) => `${to} with other files than those of the lock file`,
  addresses: ({ to, addresses = [] }) => `${to} at ${listOf(addresses, " ")}`,
  set: ({ to, set = {} }) => {
    const headers = Object.entries(set).map(([header, { secret }]) => `${header} from secret ${secret}`);
    return `${to} with ${headers.join(", ")}`;
  },
};

const LIMIT_TEXTS: { readonly [Name in keyof NetworkLimits]-?: (amount: number) => string } = {
  uploadBytes: (amount) => `upload ${formatBytes(amount)}`,
  downloadBytes: (amount) => `download ${formatBytes(amount)}`,
  requests: (amount) => `${amount} requests`,
  connections: (amount) => `${amount} connections at once`,
};

function limitText(name: keyof NetworkLimits, amount: number): string {
  return LIMIT_TEXTS[name](amount);
}

function limitEntries(limits: NetworkLimits): [keyof NetworkLimits, number][] {
  return Object.entries(limits) as [keyof NetworkLimits, number][];
}

function listOf(texts: readonly string[], between: string): string {
  const more = texts.length - MAX_NAMED;
  return texts.slice(0, MAX_NAMED).join(between) + (more > 0 ? `${between}and ${more} more` : "");
}
