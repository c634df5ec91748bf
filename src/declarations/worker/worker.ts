import { basename } from "node:path";
import { meetTargets, parseTarget } from "../../sandbox/network/rule.ts";
import { present } from "../../text/present.ts";
import type { Environment, ImageSource } from "../images/environment-inputs.ts";
import type { JsonSchema } from "../schema/json-schema.ts";
import { nameFault } from "../terms/names.ts";
import { needProblems } from "../terms/sandbox-form.ts";
import { constraintsOf, limitsOf } from "../terms/terms.ts";
import { type Checked, checkShape, parseYaml, type YamlDocument } from "../yaml/document.ts";
import { DeclarationError, type Problem } from "../yaml/problem.ts";
import type { RawNeeds } from "./exposure.ts";
import type { ToolName } from "./tool-names.ts";
import {
  type AgentBudget,
  callableFault,
  DEFAULT_STEPS,
  DEFAULT_TOKENS,
  type ModelRef,
  SCRIPT,
  type ServiceDefinition,
  type ShellRulesYaml,
  servicesOf,
  type WorkerYaml,
  workerYaml,
} from "./worker-yaml.ts";

/** A worker, from its file: what to run, what it needs, which workers it may call. */
export interface WorkerDefinition {
  readonly name: string;
  /** As it was found; for messages. */
  readonly file: string;
  readonly description: string;
  /** The name of its image for people and, if it is not made from something, for the Engine. */
  readonly image: string;
  /** What Corral makes its image from; absent: the Engine has to have it. */
  readonly imageFrom?: ImageSource;
  /** Packages that are prepared for it once; absent: none. */
  readonly environment?: Environment;
  /** A command worker's program and arguments; null for an agent worker, and for one that is only for sessions, which has no `model` either. */
  readonly command: readonly string[] | null;
  /** True: who runs it may append arguments to its command. Absent: it takes none. */
  readonly takesArguments?: true;
  readonly model: string | null;
  /** Of an agent worker; absent for a command. */
  readonly agent?: AgentDefinition;
  /** The only tools that it may use; absent: an agent has none, and a command those that its sandbox allows. */
  readonly tools?: readonly ToolName[];
  /** What its input must be; absent: anything. */
  readonly inputSchema?: JsonSchema;
  /** What its output must be; absent: anything. */
  readonly outputSchema?: JsonSchema;
  /** Absent: any files that its caller can read. */
  readonly attachments?: AttachmentRules;
  /** The text below the front matter: the agent's instructions, or a note for people. Trimmed, may be empty. */
  readonly instructions: string;
  /** The only workers that it may call, sorted. */
  readonly calls: readonly string[];
  /** The only repositories that it may use, as far as its callers may; absent: none. */
  readonly git?: readonly string[];
  /** Of its sessions: what listens there can be connected to. Absent: none. */
  readonly ports?: readonly WorkerPort[];
  readonly needs: RawNeeds;
  /** Which directories it may ask for while it runs; null: none. */
  readonly dynamic: Dynamic | null;
  /** Which command lines may run in its cell, and with which consent. By default all of them ask. */
  readonly shellRules: ShellRulesYaml;
  /** Null: the caller's policy. */
  readonly policyName: string | null;
  readonly output: "text" | "json";
  /** What runs beside it, for it alone; absent: nothing. */
  readonly services?: readonly ServiceDefinition[];
  /** The places of `image` and `environment` in its file, without a message, for what is found out later. */
  readonly imagePlaces?: ImagePlaces;
  /** What its file says and Corral does not do, each at its place; absent: nothing. */
  readonly withoutEffect?: readonly Problem[];
  readonly env: Readonly<Record<string, string>>;
}

/** Nothing of it can be run: its commands come from who opens a session of it. */
export function isOnlyForSessions({ command, agent }: Pick<WorkerDefinition, "command" | "agent">): boolean {
  return command === null && agent === undefined;
}

export interface WorkerPort {
  readonly port: number;
  /** For people; null: none. */
  readonly name: string | null;
}

export interface ImagePlaces {
  readonly image: Problem;
  readonly environment: Problem;
}

export interface AgentDefinition {
  readonly model: ModelRef;
  readonly budget: AgentBudget;
}

/** Which files a worker accepts as attachments. */
export interface AttachmentRules {
  readonly maxCount?: number;
  /** Of all of them together. */
  readonly maxBytes?: number;
  /** With their dots, in lower case. */
  readonly suffixes?: readonly string[];
}

/** What a worker may be granted at run time, if the user agrees. */
export interface Dynamic {
  /** Host folders, as written, relative to the project; null: anywhere that can be granted at all. */
  readonly within: readonly string[] | null;
  /** The most directories in one run. */
  readonly max: number;
}

/** A worker together with the way back to the places in its file, for checks that need more than one file. */
export interface WorkerFile {
  readonly worker: WorkerDefinition;
  readonly document: YamlDocument;
}

/** Parses the text of a `*.worker` file. Throws a `DeclarationError` with every problem in it. */
export function parseWorker(text: string, file: string): WorkerDefinition {
  const read = readWorker(text, file);
  if (!read.ok) throw new DeclarationError(read.problems);
  return read.value.worker;
}

/** The same with problems as values, so that a project can collect those of all its files. */
export function readWorker(text: string, file: string): Checked<WorkerFile> {
  const split = splitFrontMatter(text);
  if (!split.ok) return { ok: false, problems: [{ file, line: 1, column: 1, path: "", message: split.fault }] };
  const parsed = parseYaml(split.frontMatter, file, 2);
  if (!parsed.ok) return parsed;
  const { document } = parsed;
  const checked = checkShape(document, workerYaml);
  const problems = [
    ...(checked.ok ? [] : checked.problems),
    ...needProblems(document),
    ...identityProblems(document, file),
  ];
  if (checked.ok) problems.push(...grantProblems(checked.value, document));
  if (!checked.ok || problems.length > 0) return { ok: false, problems };
  const worker = {
    ...definitionOf(checked.value, split.instructions, file),
    ...withoutEffect(checked.value, document),
    ...imagePlaces(checked.value, document),
  };
  return { ok: true, value: { worker, document } };
}

/** A grant of a shell rule is a part of the worker's network, which no other command has. */
function grantProblems({ shell_rules: { rules }, sandbox: { network } }: WorkerYaml, { raw, problemAt }: YamlDocument) {
  const { shell_rules: written } = raw as { shell_rules?: unknown };
  const place = Array.isArray(written) ? ["shell_rules"] : ["shell_rules", "rules"];
  const lists = rules.flatMap(({ grants }) => (Array.isArray(grants?.network) ? grants.network : []));
  return rules.flatMap(({ approval, grants }, index): Problem[] => {
    if (grants === undefined) return [];
    const problem = (message: string): Problem => problemAt([...place, index, "grants"], message);
    if (approval === "blocked") return [problem("is for commands that may run, and this rule blocks them")];
    if (network === undefined || typeof network === "boolean")
      return [problem("needs a `sandbox.network` with a list of hosts, of which it is a part")];
    const allowed = network.allow.map(({ to }) => to);
    const hosts = grants.network === true ? [] : grants.network;
    return hosts.flatMap((host): Problem[] => {
      if (!allowed.some((to) => to === host))
        return [problem(`\`${host}\` is not an entry of the worker's \`sandbox.network.allow\`; add it there`)];
      const other = allowed.find((to) => !lists.includes(to) && overlap(to, host));
      return other === undefined ? [] : [problem(`\`${host}\` is open to every command by the entry \`${other}\``)];
    });
  });
}

function overlap(some: string, other: string): boolean {
  const [a, b] = [parseTarget(some), parseTarget(other)];
  return a.ok && b.ok && meetTargets(a.target, b.target) !== null;
}

export function workerNameOf(file: string): string {
  return basename(file, ".worker");
}

type FrontMatter =
  | { readonly ok: true; readonly frontMatter: string; readonly instructions: string }
  | { readonly ok: false; readonly fault: string };

function splitFrontMatter(text: string): FrontMatter {
  const opening = /^\uFEFF?---[ \t]*\r?\n/.exec(text);
  if (opening === null) return { ok: false, fault: "must begin with a line `---`, then YAML, then another line `---`" };
  const rest = text.slice(opening[0].length);
  const closing = /^---[ \t]*\r?$/m.exec(rest);
  if (closing === null) return { ok: false, fault: "has no second line `---` to end the front matter" };
  const instructions = rest.slice(closing.index + closing[0].length).trim();
  return { ok: true, frontMatter: rest.slice(0, closing.index), instructions };
}

/** What depends on the file's name, or on more than one key. */
function identityProblems(document: YamlDocument, file: string): Problem[] {
  const { raw, problemAt } = document;
  if (raw === null || typeof raw !== "object" || Array.isArray(raw)) return [];
  const stem = workerNameOf(file);
  const fault = nameFault(stem);
  const problems: Problem[] = fault === null ? [] : [problemAt([], `the file's name without .worker ${fault}`)];
  if ("name" in raw && raw.name !== stem)
    problems.push(problemAt(["name"], `must be \`${stem}\`, the name of its file`));
  if ("command" in raw && "model" in raw) {
    problems.push(
      problemAt(["model"], "`command` and `model` cannot be used together; a worker is a command or an agent", "key"),
    );
  }
  if ("arguments" in raw && (!("command" in raw) || "model" in raw))
    problems.push(problemAt(["arguments"], "is only for a `command`, to which they are appended", "key"));
  return [...problems, ...agentProblems(raw, problemAt)];
}

/** What only an agent can have, and what its tools would be called. */
function agentProblems(raw: object, problemAt: YamlDocument["problemAt"]): Problem[] {
  const { limits, calls } = raw as { limits?: unknown; calls?: unknown };
  if ("model" in raw) {
    const fault = Array.isArray(calls) ? callableFault([...new Set(calls.map(String))]) : null;
    return fault === null ? [] : [problemAt(["calls"], fault)];
  }
  const said = limits !== null && typeof limits === "object" ? Object.keys(limits) : [];
  const ofAgents = said.filter((name) => ["steps", "tokens", "cost"].includes(name));
  return ofAgents.map((name) => problemAt(["limits", name], "is only for agents, which have a `model`", "key"));
}

function definitionOf(yaml: WorkerYaml, instructions: string, file: string): WorkerDefinition {
  return {
    name: workerNameOf(file),
    file,
    description: yaml.description,
    image: yaml.image.name,
    ...present({ imageFrom: yaml.image.from, environment: yaml.environment }),
    command: yaml.command ?? null,
    model: yaml.model === undefined ? null : modelText(yaml.model),
    ...present({
      agent: yaml.model && { model: yaml.model, budget: budgetOf(yaml) },
      takesArguments: yaml.arguments || undefined,
      tools: yaml.tools && [...new Set(yaml.tools)],
      inputSchema: yaml.input_schema,
      outputSchema: yaml.output_schema,
      attachments: yaml.attachments && attachmentRules(yaml.attachments),
      services: yaml.services && servicesOf(yaml.services),
    }),
    instructions,
    calls: [...new Set(yaml.calls)].toSorted(),
    ...present({ git: yaml.git && [...new Set(yaml.git)].toSorted(), ports: yaml.ports }),
    needs: needsOf(yaml),
    dynamic: yaml.sandbox.dynamic ?? null,
    shellRules: yaml.shell_rules,
    policyName: yaml.policy ?? null,
    output: yaml.output_schema === undefined ? yaml.output : "json",
    env: Object.fromEntries(yaml.env),
  };
}

function withoutEffect({ sandbox }: WorkerYaml, { problemAt }: YamlDocument): Pick<WorkerDefinition, "withoutEffect"> {
  if (sandbox.require_os_sandbox !== false) return {};
  const message = "`false` has no effect: Corral runs a worker isolated or not at all";
  return { withoutEffect: [problemAt(["sandbox", "require_os_sandbox"], message)] };
}

function imagePlaces(
  { image, environment }: WorkerYaml,
  { problemAt }: YamlDocument,
): Pick<WorkerDefinition, "imagePlaces"> {
  if (image.from === undefined && environment === undefined) return {};
  return { imagePlaces: { image: problemAt(["image"], ""), environment: problemAt(["environment"], "") } };
}

function modelText(model: ModelRef): string {
  return model.kind === "script" ? `${SCRIPT}/${model.file}` : `${model.provider}/${model.name}`;
}

function budgetOf({ limits = {} }: WorkerYaml): AgentBudget {
  const { steps = DEFAULT_STEPS, tokens = DEFAULT_TOKENS, cost = null } = limits;
  return { steps, tokens, costUsd: cost };
}

function attachmentRules(raw: NonNullable<WorkerYaml["attachments"]>): AttachmentRules {
  const suffixes = raw.suffixes?.map((suffix) => `.${suffix.replace(/^\./, "").toLowerCase()}`);
  return present({ maxCount: raw.max_count, maxBytes: raw.max_bytes, suffixes });
}

function needsOf({ sandbox, limits, secrets, root }: WorkerYaml): RawNeeds {
  const { inherit, readonly, approval, stage, discard, network } = sandbox;
  const paths =
    sandbox.paths &&
    [...sandbox.paths].map(([name, path]) => ({
      name,
      root: path.root,
      mode: path.mode,
      ...present({ at: path.at }),
      ...constraintsOf(path),
    }));
  return present({
    zones: sandbox.zones?.map(present),
    paths,
    inherit,
    allowRead: sandbox.allow_read,
    allowWrite: sandbox.allow_write,
    readonly,
    suffixes: sandbox.suffixes,
    maxFileBytes: sandbox.max_file_bytes,
    approval,
    stage,
    discard,
    workingDir: sandbox.working_dir,
    network,
    secrets: secrets && [...new Set(secrets)],
    writableRoot: root === "writable" ? (true as const) : undefined,
    limits: limits && limitsOf(limits),
  });
}
