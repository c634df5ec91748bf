import { posix } from "node:path";
import { z } from "zod";
import { networkTargetText, parseTarget } from "../../sandbox/network/rule.ts";
import { present } from "../../text/present.ts";
import { environmentYaml, image } from "../images/environment-inputs.ts";
import type { JsonSchema } from "../schema/json-schema.ts";
import { mountNameFault, named, nameFault, repositoryNameFault, variableNameFault } from "../terms/names.ts";
import {
  addressList,
  approval,
  command,
  consent,
  constraints,
  hostPath,
  limitFields,
  mode,
  mountPlace,
  network,
  refuseSamePlace,
  sides,
  virtualPath,
} from "../terms/terms.ts";
import { byKind, byLook, duration, kindOf, later, map, namedMap, size } from "../yaml/shape.ts";
import { TOOL_NAMES } from "./tool-names.ts";

/** The words of one command, as a rule names them. */
export const pattern = z
  .string()
  .max(1000)
  .superRefine((raw, context) => {
    const message = patternFault(raw);
    if (message !== null) context.addIssue({ code: "custom", message });
  })
  .transform((raw) => raw.trim().split(/\s+/).join(" "));

const grantedHost = () =>
  z.string().transform((raw, context) => {
    const parsed = parseTarget(raw);
    if (parsed.ok) return networkTargetText(parsed.target);
    context.issues.push({ code: "custom", input: raw, message: parsed.reason });
    return z.NEVER;
  });

/** What such a command has beyond the others, while it runs. `grantProblems` in worker.ts compares it with the worker's network. */
const shellGrants = () =>
  map({
    network: byKind(
      { switch: z.literal(true, "must be `true` or a list of hosts"), list: z.array(grantedHost()).min(1).max(50) },
      "must be `true`, for all hosts of the worker's network, or a list of them",
    ),
  });

const shellRule = map({
  pattern,
  approval: consent,
  why: z.string().min(1).max(500).optional(),
  grants: later(shellGrants).optional(),
}).transform(present);

const rules = z.array(shellRule).max(200).superRefine(refuseTwinPatterns);

/**
 * `shell_rules` of a worker: a default and rules, or the rules alone, with `ask` as the default.
 *
 * What the rules mean is `approval/shell-rules/`; here only what could never match is refused, because a mistaken
 * `blocked` rule would block nothing.
 */
const shellRules = byKind(
  {
    list: rules.transform((only) => ({ default: "ask" as const, rules: only })),
    map: map({ default: consent.default("ask"), rules: rules.default([]) }),
  },
  "must be a list of rules, or a map of `default` and `rules`",
);

export type ShellRulesYaml = z.output<typeof shellRules>;

/** Why no command could ever match, or null. */
function patternFault(raw: string): string | null {
  const words = raw.trim().split(/\s+/);
  const [first = ""] = words;
  if (first === "") return "must be the words of a command, such as `git status` or `git log **`";
  const syntax = /["'\\`$;&|<>()]/.exec(raw)?.[0];
  if (syntax !== undefined)
    return `\`${syntax}\` is not allowed in a pattern: a pattern is the words of one command, and \`*\` matches any one word`;
  if (
    words.slice(0, -1).some((word) => word.includes("**")) ||
    words
      .at(-1)
      ?.replace(/^\*\*$/, "")
      .includes("**")
  )
    return "`**` matches all further words, so it must be the last word";
  if (/(^|[=:\s])~/.test(raw)) return "`~` is expanded by the shell: write the full path";
  if (/^[A-Za-z_]\w*\+?=/.test(first))
    return "a pattern begins with the command; it cannot match variables that are set before it";
  return null;
}

function refuseTwinPatterns(all: readonly { readonly pattern: string }[], context: z.core.$RefinementCtx): void {
  for (const [index, { pattern: text }] of all.entries()) {
    if (all.findIndex((other) => other.pattern === text) < index) {
      const message = `\`${text}\` is listed twice`;
      context.issues.push({ code: "custom", input: text, path: [index, "pattern"], message });
    }
  }
}

/** Where an agent worker's answers come from: a model of a provider, or a transcript that plays the model's part. */
export type ModelRef =
  | { readonly kind: "provider"; readonly provider: string; readonly name: string }
  /** `file`: relative to the project's folder, and inside of it. */
  | { readonly kind: "script"; readonly file: string };

/** How much an agent may use, all of the agents that it calls included. */
export interface AgentBudget {
  /** Answers of the model. */
  readonly steps: number;
  /** Tokens in and out together. */
  readonly tokens: number;
  /** In US dollars, by the prices that the project declares; null: not counted. */
  readonly costUsd: number | null;
}

/** The defaults of a worker's budget. */
export const DEFAULT_STEPS = 50;
export const DEFAULT_TOKENS = 1_000_000;

/** The words that are no name of a provider. */
export const SCRIPT = "script";

/** `PROVIDER/NAME` or `script/FILE`, or the fault. A name may contain slashes. */
function parseModelRef(raw: string): ModelRef | string {
  const [, provider = "", name = ""] = /^([A-Za-z0-9][A-Za-z0-9._-]{0,63})\/([^\p{Cc}]+)$/u.exec(raw) ?? [];
  if (provider === "") return "must be PROVIDER/NAME, such as `anthropic/claude-sonnet-4-5`, or script/FILE";
  if (provider !== SCRIPT) return { kind: "provider", provider, name };
  const file = posix.normalize(name);
  const isInside = !posix.isAbsolute(file) && file !== ".." && !file.startsWith("../") && !file.includes("\\");
  return isInside ? { kind: "script", file } : "must name a script inside of the project's folder";
}

/** What is wrong with the names that an agent's callable workers would have as its tools, or null. */
export function callableFault(calls: readonly string[]): string | null {
  const taken = new Map<string, string>(TOOL_NAMES.map((name) => [name, `the tool ${name}`]));
  for (const worker of calls) {
    const name = toolNameOf(worker);
    const other = taken.get(name);
    if (other !== undefined)
      return `\`${worker}\` would be the tool \`${name}\` of this agent, but that name belongs to ${other}; rename the worker`;
    taken.set(name, `the worker ${worker}`);
  }
  return null;
}

/** The name of a worker as a tool. Providers accept only letters, digits, `_` and `-`. */
export function toolNameOf(worker: string): string {
  return worker.replaceAll(".", "_");
}

const zone = () => map({ name: named(mountNameFault), mode: mode.optional(), approval: approval.optional(), ...sides });
const path = () =>
  map({
    root: hostPath,
    at: mountPlace.optional(),
    mode: mode.default("ro"),
    ...constraints,
    description: z.string().max(500).optional(),
  });

const pathList = byKind(
  { text: virtualPath.transform((only) => [only]), list: z.array(virtualPath).max(100) },
  "must be a path or a list of paths",
);

/** Their files are in memory, in a place whose size counts on it. */
const MAX_SECRETS_INSIDE = 16;

/** The maximum of directories that are granted while a worker runs, and the default. */
const MAX_GRANTS = 64;
const DEFAULT_GRANTS = 8;

/** `true`: any directory, with consent; a map limits where and how many. Absent: none. */
const dynamic = () =>
  byKind(
    {
      switch: z.boolean().transform((on) => (on ? { within: null, max: DEFAULT_GRANTS } : null)),
      map: map({
        within: z.array(hostPath).max(MAX_GRANTS).optional(),
        max: z.int().min(1).max(MAX_GRANTS).default(DEFAULT_GRANTS),
      }).transform(({ within = null, max }) => ({ within, max })),
    },
    "must be `true`, `false` or `{ within: [folders], max: 8 }`",
  );

/** `sandbox-form.ts` checks which of these may be combined. */
const sandbox = map({
  inherit: z.boolean().optional(),
  allow_read: pathList.optional(),
  allow_write: pathList.optional(),
  readonly: z.boolean().optional(),
  zones: z.array(later(zone)).max(100).superRefine(refuseTwins).optional(),
  paths: namedMap(later(path), mountNameFault, 100).superRefine(refuseSamePlace).optional(),
  suffixes: constraints.suffixes,
  max_file_bytes: size.optional(),
  approval: approval.optional(),
  ...sides,
  network: later(() => network).optional(),
  working_dir: virtualPath.optional(),
  dynamic: later(dynamic).optional(),
  /** Corral runs a worker isolated or not at all, so `false` changes nothing. */
  require_os_sandbox: z.boolean().optional(),
});

const variable = z
  .string()
  .max(32_768)
  .refine((value) => !value.includes("\0"), "must not contain a NUL character");

const model = z
  .string()
  .max(1000)
  .transform((raw, context) => {
    const parsed = parseModelRef(raw);
    if (typeof parsed !== "string") return parsed;
    context.issues.push({ code: "custom", input: raw, message: parsed });
    return z.NEVER;
  });

/** `all`, or the only ones. */
const tools = () =>
  byKind(
    {
      text: z.literal("all", "must be a list of tools, or `all`").transform(() => [...TOOL_NAMES]),
      list: z.array(z.enum(TOOL_NAMES)).max(100),
    },
    "must be a list of tools, or `all`",
  );

/** `workers.ts` checks that it is a JSON Schema, after all files are read. */
const jsonSchema = byLook(
  (raw) => (kindOf(raw) === "map" ? z.custom<JsonSchema>() : undefined),
  "must be a JSON Schema, which is a map",
  () => ({ type: "object" }),
);

/** The port of a server that listens in its sessions, alone or by its name. */
const ports = () => {
  const port = z.int().min(1).max(65_535);
  return byKind(
    {
      list: z
        .array(port)
        .max(32)
        .transform((all) => [...new Set(all)].map((one) => ({ port: one, name: null }))),
      map: namedMap(port, nameFault, 32).transform((all) => [...all].map(([name, one]) => ({ port: one, name }))),
    },
    "must be a list of ports, or ports by their names",
  );
};

/** The files that its caller may attach. */
const attachments = () =>
  map({
    max_count: z.int().min(0).max(256).optional(),
    max_bytes: size.optional(),
    suffixes: constraints.suffixes,
  });

/** Limits of an agent, in addition to those of its container. */
const limits = () =>
  map({
    ...limitFields,
    steps: z.int().min(1).max(100_000).optional(),
    tokens: z.int().min(1).max(1_000_000_000_000).optional(),
    cost: z.number().min(0).max(1_000_000).optional(),
  });

/** What runs beside a worker, in a container of its own, from before the worker starts until it has ended. */
export interface ServiceDefinition {
  /** By which the worker reaches it, as it does by `localhost`. */
  readonly name: string;
  /** The worker of the project whose command it is. */
  readonly worker: string;
  /** The only ports of it that the worker reaches, at the same numbers. */
  readonly ports: readonly number[];
  /** A command of its container that succeeds when it is ready; absent: it is when its ports take connections. */
  readonly ready?: readonly string[];
  /** How long it may take to be ready. */
  readonly readyWithinMs: number;
}

export const MAX_SERVICES = 8;
const MAX_PORTS = 8;
const MAX_READY_MS = 10 * 60_000;

/** It becomes the name of a host in the worker's container. */
export function serviceNameFault(name: string): string | null {
  if (!/^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$/.test(name))
    return "must be 1 to 63 small letters, digits or `-`, begin with a letter, and not end with `-`";
  return /^(localhost|corral|ip6-.*)$/.test(name) ? "is reserved: it is a name of the container itself" : null;
}

/** Where a service is reached, and when it is ready. */
export const serviceAccess = {
  ports: z.array(z.int().min(1).max(65_535)).min(1).max(MAX_PORTS),
  ready: command.optional(),
  ready_within: duration.refine((ms) => ms <= MAX_READY_MS, "must be at most `10m`").prefault("1m"),
};

const service = map({ worker: named(nameFault), ...serviceAccess });

/** `services` of a worker. */
export const services = () => namedMap(service, serviceNameFault, MAX_SERVICES).superRefine(refuseSamePort);

export type ServicesYaml = z.output<ReturnType<typeof services>>;

export function servicesOf(yaml: ServicesYaml): ServiceDefinition[] {
  return [...yaml].map(([name, { worker, ports, ready, ready_within: readyWithinMs }]) => ({
    name,
    worker,
    ports,
    ...(ready === undefined ? {} : { ready }),
    readyWithinMs,
  }));
}

/** All of them are at the worker's own `localhost`. */
export function refuseSamePort(
  all: ReadonlyMap<string, { readonly ports: readonly number[] }>,
  context: z.core.$RefinementCtx,
): void {
  const taken = new Set<number>();
  for (const [name, { ports }] of all) {
    for (const [index, port] of ports.entries()) {
      const message = `${port} is a port of another service, or listed twice; give this one another port`;
      if (taken.has(port)) context.addIssue({ code: "custom", input: port, path: [name, "ports", index], message });
      taken.add(port);
    }
  }
}

/** The front matter of a `*.worker` file, as in docs/formats/worker.md. */
export const workerYaml = map({
  name: named(nameFault).optional(),
  description: z.string().max(2000).default(""),
  image: image.prefault("corral/base"),
  environment: later(() => environmentYaml(addressList)).optional(),
  command: command.optional(),
  /** Only `corral run WORKER -- ARGUMENT…` and programs give any; workers that call it cannot. */
  arguments: z.boolean().optional(),
  model: model.optional(),
  tools: later(tools).optional(),
  input_schema: jsonSchema.optional(),
  output_schema: jsonSchema.optional(),
  attachments: later(attachments).optional(),
  calls: z.array(named(nameFault)).max(100).default([]),
  secrets: z.array(named(nameFault)).max(MAX_SECRETS_INSIDE).optional(),
  root: z.enum(["read-only", "writable"]).optional(),
  git: z.array(named(repositoryNameFault)).max(100).optional(),
  ports: later(ports).optional(),
  sandbox: sandbox.prefault({}),
  shell_rules: shellRules.prefault({}),
  limits: later(limits).optional(),
  policy: named(nameFault).optional(),
  output: z.enum(["text", "json"]).default("text"),
  env: namedMap(variable, variableNameFault, 100).prefault({}),
  services: later(services).optional(),
});

export type WorkerYaml = z.output<typeof workerYaml>;

function refuseTwins(zones: readonly { readonly name: string }[], context: z.core.$RefinementCtx): void {
  for (const [index, { name }] of zones.entries()) {
    if (zones.findIndex((other) => other.name === name) < index) {
      context.issues.push({
        code: "custom",
        input: name,
        path: [index, "name"],
        message: `\`${name}\` is listed twice`,
      });
    }
  }
}
