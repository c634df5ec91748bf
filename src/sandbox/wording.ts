import { formatAmount, formatBytes } from "../text/amounts.ts";
import type { Narrowing } from "./ancestry.ts";
import { SandboxError } from "./errors.ts";
import { LIMITS, type LimitName } from "./limits.ts";
import {
  type NetworkExcess,
  type NetworkLimits,
  type NetworkRule,
  type NetworkTerm,
  type ShownNetwork,
  type ShownRule,
  shownNetwork,
} from "./network/rule.ts";
import { HARDENING, type Hardening, type HardeningLine } from "./policy.ts";
import type { GivenPlace, Violation, ViolationCode } from "./violation.ts";

/**
 * A violation as text, for people and for LLMs: what was asked, why it is refused, and what is valid instead. Only this file
 * words violations. It shows virtual paths only.
 */
export function describeViolation(violation: Violation): string {
  // The table has one entry per code, each for just that code's data; the compiler cannot follow it through the lookup.
  const text = (WORDS[violation.code] as (violation: Violation) => string)(violation);
  return violation.own === undefined ? text : `Own path ${quote(violation.own)}: ${text}`;
}

/** All of them, one a line, below a heading. */
export function describeViolations(violations: readonly Violation[]): string {
  const lines = violations.map((violation) => `- ${describeViolation(violation)}`);
  return [`Refused (${violations.length}). A worker can have at most what its caller has:`, ...lines].join("\n");
}

type Words = { readonly [Code in ViolationCode]: (violation: Extract<Violation, { code: Code }>) => string };

const WORDS: Words = {
  MOUNT_NOT_AVAILABLE: (v) =>
    `The directory ${quote(v.asked)} is not available: ${lost(v.by)}. Available: ${list(v.valid)}.`,
  OWN_PATH_OUTSIDE: (v) =>
    `The own path ${quote(v.asked)} of this worker is in no directory that the project gives. The project gives: ${list(v.valid.map(given))}. Name a directory in one of these, declare it in \`sandbox\` of corral.yaml, or set \`own_paths: allowed\` there.`,
  PATH_NOT_AVAILABLE: (v) => `${quote(v.asked)} is not readable: ${lost(v.by)}. Readable paths: ${list(v.valid)}.`,
  WRITE_NOT_AVAILABLE: (v) =>
    `${quote(v.asked)} is ${v.has === "none" ? "not available" : "read-only"}: ${lost(v.by, "writing")}. Ask to read it only${orBelow("write", v.valid)}.`,
  READONLY_ESCALATION: (v) =>
    `\`readonly: false\` is not possible, because the caller cannot write anywhere: ${lost(v.by, "writing")}. Remove it, or set \`readonly: true\`.`,
  WORKING_DIR_NOT_AVAILABLE: (v) =>
    `The working directory ${quote(v.asked)} is outside of this worker's directories. Use '/'${orBelow("begin", v.valid)}.`,
  APPROVAL_LOOSER: (v) =>
    `\`${v.operation}: ${v.asked}\` in ${quote(v.path)} is looser than the caller's \`${v.operation}: ${v.has}\` (set by ${who(v.by)}). Use ${asStrictAs(v.has)}.`,
  NETWORK_NOT_AVAILABLE: (v) =>
    `Network access to ${list(v.exceeding.map(excessText))} is more than what is allowed: ${networkText(shownNetwork(v.has))} (set by ${who(v.by)}). Ask for at most that, or set \`network: false\`.`,
  NETWORK_NOT_RESOLVED: (v) => `\`${v.at}\` of this worker's \`network\` ${v.reason}.`,
  SECRET_NOT_AVAILABLE: (v) =>
    `The secret ${quote(v.asked)} is not available inside of this worker: ${lost(v.by)}. Available: ${list(v.valid)}. A secret that only goes to a host can stay outside: see \`set\` of \`network\`.`,
  SECRET_NOT_READ: (v) =>
    `The secret ${quote(v.secret)} (\`secrets.${v.secret}\` of corral.yaml) cannot be given to this worker: ${v.reason}.`,
  SECRETS_NOT_ENFORCEABLE: (v) => `This worker cannot have its secrets inside: ${v.reason}.`,
  ROOT_NOT_WRITABLE: (v) =>
    `\`root: writable\` is not available to this worker: ${who(v.by)} does not allow it. Remove it, or allow it with \`read_only_root: { value: false, why: … }\` in a policy, and \`root: writable\` in each worker that calls this one.`,
  ROOT_NOT_ENFORCEABLE: (v) => `This worker cannot have \`root: writable\`: ${v.reason}.`,
  LIMIT_TOO_LARGE: (v) =>
    `\`${LIMITS[v.limit].key}: ${limitAmount(v.limit, v.asked)}\` is more than the limit of ${limitAmount(v.limit, v.has)} (set by ${who(v.by)}). Ask for at most ${limitAmount(v.limit, v.has)}, or leave it out.`,
  POLICY_WEAKER: (v) =>
    `The policy ${quote(v.asked)} is weaker than the caller's policy ${quote(v.has)} (set by ${who(v.by)}): it ${list(v.lines.map(weaker))}. Use ${quote(v.has)} or a policy that is at least as strict, or leave it out.`,
  SUFFIXES_WIDER: (v) =>
    `Files ending in ${list(v.asked)} in ${quote(v.path)} are more than the caller has: only ${list(v.has)} (set by ${who(v.by)}). Ask for these or fewer.`,
  FILE_SIZE_LARGER: (v) =>
    `Files of up to ${formatBytes(v.asked)} in ${quote(v.path)} are more than the caller has: up to ${formatBytes(v.has)} (set by ${who(v.by)}). Ask for at most that.`,
  CALL_NOT_LISTED: (v) =>
    `The worker ${quote(v.asked)} is not listed under \`calls\` of this worker. It may call: ${list(v.valid)}.`,
  CALL_CYCLE: (v) =>
    `This call would start a worker that is already running in the same chain: ${v.path.join(" -> ")}. Call a worker that is not in the chain.`,
  CALL_TOO_DEEP: (v) =>
    `This call would be ${v.path.length} workers deep (${v.path.join(" -> ")}); at most ${v.max} are allowed. Do the work without a further call.`,
  CALL_LIMIT: (v) =>
    `This call tree has used all of its ${v.max} calls. Do the rest of the work without a further call.`,
  SERVICE_REFUSED: (v) => `The service ${quote(v.service)} cannot run beside this worker: ${v.reason}.`,
  SERVICE_NOT_READY: (v) =>
    `The service ${quote(v.service)} did not become ready: ${v.reason}. ${v.printed.length === 0 ? "It printed nothing." : `It printed last: ${v.printed.join(" / ")} (\`corral runs logs latest --service ${v.service}\` has all of it).`}`,
  CALL_NOT_APPROVED: (v) =>
    v.reason === null
      ? `Calling ${quote(v.asked)} is blocked for a worker that sees ${list(v.paths)}, and no approval can allow it. Do the work without a call.`
      : `Calling ${quote(v.asked)} needs approval for a worker that sees ${list(v.paths)}: ${v.reason}. Do the work without a call.`,
  READ_NOT_APPROVED: (v) =>
    `This worker was not started, because reading ${quote(v.path)} needs approval. ${v.reason} Run it where a user can answer, add an approval rule for \`read\` to the project, or leave the directory out of what the worker asks for.`,
  WORKER_UNKNOWN: (v) => `There is no worker ${quote(v.asked)}. Workers: ${list(v.valid)}.`,
  ATTACHMENT_REFUSED: (v) =>
    `${quote(v.path)} cannot be attached: ${v.reason}. Attach a file below one of: ${list(v.valid)}.`,
  MOUNT_SOURCE_REFUSED: (v) =>
    v.attached
      ? `${quote(v.path)} cannot be attached: ${v.reason}. Attach another file.`
      : `${quote(v.path)} cannot be mounted: ${v.reason}. Use another file or directory for it.`,
  MOUNT_RESERVED: (v) => reserved(v.path, v.because),
  CHANGE_REFUSED: (v) => `The change to ${quote(v.path)} was not applied: ${v.reason}. Nothing was changed there.`,
  CHANGE_CONFLICT: (v) =>
    `The change to ${quote(v.path)} was not applied: ${v.reason}. Read the file again, and repeat the change.`,
  CHANGES_NOT_TAKEN: (v) => `None of the run's changes was applied or kept: ${v.reason}. Change less in one run.`,
  NETWORK_NOT_ENFORCEABLE: (v) =>
    `The allow list of hosts cannot be enforced: ${v.reason}. A worker can also have \`network: false\`; or \`network: true\`, if project, caller and policy allow everything.`,
  WORKING_DIR_MISSING: (v) =>
    `The working directory ${quote(v.path)} cannot be entered: it does not exist, or the worker's user has no permission. Create it first, or use another.`,
  USER_NOT_ALLOWED: (v) =>
    `This worker cannot run as a user that may write its directories: ${v.reason}. Give its writable directories to one user that is allowed (chown), or use another policy.`,
  COMMAND_NOT_FOUND: (v) =>
    v.interpreter !== undefined
      ? interpreterMissing(v.command, v.interpreter)
      : v.command.startsWith("/")
        ? `There is no program ${quote(v.command)} in the image ${quote(v.image)} or in the worker's directories, or it cannot be executed: a script needs \`chmod +x\`. Use another command or image.`
        : `The image ${quote(v.image)} has no command ${quote(v.command)}${v.searched === undefined ? "" : ` in its PATH, which is ${quote(v.searched)}`}. Use a command that it has, or its whole path, or another image, or add its package of Debian: \`--apt PACKAGE\`, or \`environment: { apt: [PACKAGE] }\` in the worker.`,
  ATTACHMENTS_NOT_TAKEN: (v) => `The worker ${quote(v.worker)} was not run: ${v.reason}.`,
  INPUT_NOT_VALID: (v) =>
    `The worker ${quote(v.worker)} was not run: its input does not match its schema: ${v.reason}.`,
  NOTHING_TO_RUN: (v) =>
    `The worker ${quote(v.worker)} has no \`command\` and no \`model\`: it is only for sessions. Use \`corral session start ${v.worker}\` or \`corral shell ${v.worker}\`, or add a \`command\` to its file.`,
  IMAGE_MISSING: (v) => `The image ${quote(v.image)} does not exist on this container engine. ${wayToImage(v.image)}`,
  IMAGE_REFUSED: (v) => `The image ${quote(v.image)} is refused: ${v.reason}. Remove that where the image is made.`,
  IMAGE_NOT_MADE: (v) =>
    `${quote(v.image)} is not there: ${v.reason}. Correct that and run it again${v.get === undefined ? "" : `; \`${v.get}\` shows the whole`}.`,
  ENFORCEMENT_MISSING: (v) =>
    `The cell is not isolated as planned: ${list(v.missing)}. Corral does not run a worker with less isolation than its policy requires. Use an engine and an image that provide it.`,
};

/** `memory 512 MiB`, by the limit's key in a file. */
export function limitText(limit: LimitName, amount: number | null): string {
  return `${LIMITS[limit].key} ${limitAmount(limit, amount)}`;
}

/** Null: no limit. */
export function limitAmount(limit: LimitName, amount: number | null): string {
  return amount === null ? "unset" : formatAmount(amount, LIMITS[limit].unit);
}

/** `tmp_exec false`, as a policy file writes it; null for a line that is not set. */
export function hardeningText(line: HardeningLine, hardening: Hardening): string | null {
  const value = hardening[line];
  if (value === undefined) return null;
  return `${HARDENING[line].key} ${Array.isArray(value) ? value.join(" ") || "none" : value}`;
}

/** The folders of `images/`. */
const OWN_IMAGES: readonly string[] = ["base", "documents", "node", "python"];

/** Names before the slash are Corral's own. */
function wayToImage(image: string): string {
  const own = /^corral\/([a-z0-9._-]+)$/.exec(image)?.[1];
  if (own !== undefined && !OWN_IMAGES.includes(own))
    return `Corral has no image of that name. It has ${OWN_IMAGES.map((name) => `corral/${name}`).join(", ")}.`;
  if (own !== undefined) return `Run \`corral images build ${own}\`.`;
  return `Load it into the engine (\`docker load\`), or let Corral fetch it: \`corral images pull ${image}\` prints what to write.`;
}

/** The kernel takes a carriage return at the end of the first line as a part of the name. */
function interpreterMissing(script: string, line: string): string {
  const named = line.replace(/^\s+|\r$/g, "");
  return line.endsWith("\r")
    ? `The script ${quote(script)} cannot be started: its lines end with CR LF, as on Windows, so its first line names no program. Convert it: \`sed -i 's/\\r$//' FILE\`.`
    : `The script ${quote(script)} cannot be started: its first line names ${quote(named)}, which the image does not have. Use another image, or a program that it has.`;
}

function weaker(line: string): string {
  return Object.hasOwn(HARDENING, line) ? HARDENING[line as HardeningLine].weaker : line;
}

/** `/data (ro, only .md, files of at most 1 KiB)`. */
function given({ path, mode, suffixes, maxFileBytes }: GivenPlace): string {
  const terms = [
    mode,
    ...(suffixes === undefined ? [] : [`only ${suffixes.join(" ")}`]),
    ...(maxFileBytes === undefined ? [] : [`files of at most ${formatBytes(maxFileBytes)}`]),
  ];
  return `${path} (${terms.join(", ")})`;
}

function quote(text: string): string {
  return `'${text}'`;
}

function list(items: readonly string[]): string {
  return items.length === 0 ? "none" : items.join(", ");
}

/** Why the caller does not have a thing. */
function lost(by: string, what = "it"): string {
  if (by === "project") return `the project does not grant ${what}`;
  return by.startsWith("policy ") ? `${by} does not allow ${what}` : `${quote(by)} does not pass ${what} on`;
}

function who(by: string): string {
  if (by === "project") return "the project";
  return by.startsWith("policy ") ? by : quote(by);
}

function reserved(path: string, because: "volume" | "nesting" | "environment" | "depth" | undefined): string {
  if (because === "environment")
    return `${quote(path)} cannot be a mount: the packages of the worker's \`environment\` are there. Give it another name in the project.`;
  if (because === "volume")
    return `${quote(path)} cannot be a mount: the image has a volume inside of it. Give it another name in the project, or use another image.`;
  if (because === "depth")
    return `${quote(path)} cannot be a mount: too many folders lie between the writable mounts and the mounts inside of them, and each must be held in its place. Mount it nearer to the one around it, or have fewer such mounts.`;
  if (because === "nesting")
    return `${quote(path)} lies inside of another mount but is not a part of it, which no container can express. Mount it beside that one.`;
  return `${quote(path)} cannot be a mount: it is one of the container's system directories. Give it another name in the project.`;
}

/** Nothing if there is no such path. */
function orBelow(verb: string, paths: readonly string[]): string {
  return paths.length === 0 ? "" : `, or ${verb} at or below one of: ${list(paths)}`;
}

function asStrictAs(has: string): string {
  return has === "ask" ? "`ask` or `blocked`" : "`blocked`";
}

type OfNetwork = Extract<Narrowing, { readonly kind: "network" }>;

/** A narrowing as people and records see it: files of lock files as a number. */
export type ShownNarrowing =
  | Exclude<Narrowing, OfNetwork>
  | (Omit<OfNetwork, "from" | "to"> & { readonly from: ShownNetwork; readonly to: ShownNetwork });

export function shownNarrowing(narrowing: Narrowing): ShownNarrowing {
  if (narrowing.kind !== "network") return narrowing;
  return { ...narrowing, from: shownNetwork(narrowing.from), to: shownNetwork(narrowing.to) };
}

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
  const bounds = limitEntries(limits).map(([name, amount]) => networkLimitText(name, amount));
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
      return networkLimitText(excess.limit, excess.asked);
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

function networkLimitText(name: keyof NetworkLimits, amount: number): string {
  return LIMIT_TEXTS[name](amount);
}

function limitEntries(limits: NetworkLimits): [keyof NetworkLimits, number][] {
  return Object.entries(limits) as [keyof NetworkLimits, number][];
}

function listOf(texts: readonly string[], between: string): string {
  const more = texts.length - MAX_NAMED;
  return texts.slice(0, MAX_NAMED).join(between) + (more > 0 ? `${between}and ${more} more` : "");
}

/** A child asked for more than its caller has: every violation, in code and in words. */
export class SandboxPermissionEscalationError extends SandboxError {
  readonly violations: readonly Violation[];

  constructor(violations: readonly Violation[]) {
    super("PERMISSION_ESCALATION", null, describeViolations(violations));
    this.violations = violations;
  }
}
