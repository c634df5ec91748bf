import { z } from "zod";
import { HARDENING, HARDENING_LINES, hardeningRow } from "../../sandbox/policy.ts";
import { corralYaml } from "../corral-file.ts";
import { fleetYaml } from "../fleet-yaml.ts";
import { policyYaml } from "../policy/policy.ts";
import { workerYaml } from "../worker/worker-yaml.ts";
import { type JsonLook, lookOf } from "../yaml/shape.ts";
import { FILES_OF, SCHEMA_KINDS, type SchemaKind, schemaFileName } from "./kinds.ts";

type Texts = Readonly<Record<string, string>>;

/** Each text at its path below `place`. */
function below(place: string, texts: Texts): Texts {
  return Object.fromEntries(Object.entries(texts).map(([path, text]) => [`${place}.${path}`, text]));
}

const APPROVAL: Texts = {
  approval: "Whose consent is needed. One word is for writing and deleting.",
  "approval.read": "Consent to show it to a worker at all. Absent: pre_approved.",
  "approval.write": "Consent to create or change a file. Absent: ask.",
  "approval.delete": "Consent to delete or move a file away. Absent: ask.",
  "approval.call": "Consent to call another worker while seeing it. Absent: pre_approved.",
};

const SIDES: Texts = {
  stage: "Changes reach the directory only after the run, as a changeset that can be refused.",
  discard: "The worker may write, and nothing of it is kept.",
};

const MOUNT: Texts = {
  ...APPROVAL,
  ...SIDES,
  root: "The host folder or file, relative to the project.",
  path: "The host folder: relative to the project with `mode: direct`, else to `root`. Absent: the zone's name.",
  at: "Its absolute path in the container. Absent: /NAME.",
  grantable: "`rw`: a `dynamic` worker may ask the user for writing there, although `mode` is `ro`.",
  mode: "`ro` (the default): read. `rw`: read and write.",
  create: "The first run makes the folder if it is missing.",
  readonly: "Nothing can be written.",
  suffixes: "The only files that are seen and written, such as `.md`.",
  max_file_bytes: "The size of the largest file, such as `1m`.",
  description: "For readers of this file.",
};

function mount(place: string, ...keys: readonly string[]): Texts {
  const used = Object.entries(MOUNT).filter(([path]) => keys.includes(path.split(".")[0] ?? ""));
  return below(place, Object.fromEntries(used));
}

const CONSTRAINTS = ["approval", "suffixes", "max_file_bytes", "stage", "discard", "description"];

const RULES: Texts = {
  "allow[].to": "A host and its port: `example.org:443`, or `*.example.org:443`.",
  "allow[].methods": "The only methods, such as `GET`. Then Corral looks into the requests.",
  "allow[].paths": "The only paths; `*` and `**` as in globs. Then Corral looks into the requests.",
  "allow[].addresses":
    "The only addresses that the host may have (`10.1.0.0/16`); needed for addresses that are not public.",
  "allow[].tls": "`false`: the host speaks HTTP without TLS.",
  limits: "Limits for all hosts together.",
  "limits.upload": "Bytes that the worker sends.",
  "limits.download": "Bytes that the worker receives.",
  "limits.requests": "Requests.",
  "limits.connections": "Connections at the same time.",
  dynamic: "Hosts that the worker may ask for while it runs.",
  "dynamic.within": "The only hosts that can be granted.",
  "dynamic.max": "The most hosts that are granted in one run. Absent: 8.",
};

const NETWORK: Texts = {
  network: "`false` or absent: none. `true`: every host. Or the only hosts.",
  ...below("network", {
    ...RULES,
    allow: "The only hosts, each as `host:port` or as a rule with more terms.",
    "allow[].set": "Headers that Corral adds from secrets, which the worker never sees.",
    "allow[].set.*.secret": "The name of a secret of corral.yaml.",
    packages: "Registries of packages, only for reading, as this machine's tools are configured.",
    "packages[].kind": "Whose registry.",
    "packages[].addresses": "The only addresses that the registry may have.",
    lockfiles: "Lock files, relative to the project: only what they name can be fetched.",
  }),
};

const LIMITS: Texts = {
  timeout: "How long the run may take, its calls included, such as `5m`.",
  memory: "Memory and swap of all processes together, such as `512m`.",
  cpus: "Processors; a fraction is a share of one.",
  pids: "Processes and threads at the same time.",
  output: "Standard output and standard error together, such as `10m`.",
  disk: "All that the run writes, such as `1g`.",
};

const SECRET: Texts = {
  env: "A variable of Corral's own environment.",
  file: "A file with one line: an absolute path, or below `~/`. No worker may see it.",
  command: "A program and its arguments; the first line that it prints is the secret.",
};

const MANNER: Texts = {
  concurrency: "How many items run at once, or `auto`. 0: only other machines run them.",
  reuse: "`fresh`: a container for each item. `scrubbed`: one for many, cleaned in between.",
  retries: "How many times an item is run again after a failure.",
  max_failures: "No more items start after so many have failed.",
  cache: "`false`: run items again that have succeeded before with the same input.",
  timeout: "How long one item may take, such as `5m`.",
  machines: "Which other machines (`corral work`) may run items; `true`: all that take part. It needs `queue`.",
  "machines.needs": "Labels that a machine must have, such as `[gpu, big]`.",
  "machines.priority": "Items of fleets with a higher one are claimed first. From -100 to 100; absent: 0.",
  "machines.weight": "Its share beside other fleets of the same priority. From 1 to 100; absent: 1.",
};

const SHELL_RULES: Texts = {
  "[].pattern": "The words of one command; `*` is any one word, a last `**` all further words.",
  "[].approval": "Whose consent such a command needs.",
  "[].why": "Shown in the refusal.",
  "[].grants": "What only such a command has, while it runs. The line has to be that one command.",
  "[].grants.network":
    "Entries of the worker's `sandbox.network.allow`, which its other commands do not reach; `true`: all of them.",
};

function shellRules(place: string): Texts {
  return Object.fromEntries(Object.entries(SHELL_RULES).map(([path, text]) => [`${place}${path}`, text]));
}

const PROJECT: Texts = {
  version: "The version of this format: 1.",
  sandbox: "What workers can be given at most: exactly one of `zones`, `paths` and `root`, with network and limits.",
  "sandbox.mode": "`sandboxed`: each zone is a folder below `root`. `direct`: each zone has its own `path`.",
  "sandbox.root": "The folder of all zones; or, as a map, the folder that workers see as `/`.",
  ...mount("sandbox.root", "root", "readonly", ...CONSTRAINTS),
  "sandbox.zones": "Folders by name, each at /NAME.",
  ...mount("sandbox.zones.*", "path", "at", "mode", "grantable", ...CONSTRAINTS),
  "sandbox.paths": "Host folders and files by name, each at /NAME.",
  ...mount("sandbox.paths.*", "root", "at", "mode", "grantable", "create", ...CONSTRAINTS),
  "sandbox.own_paths":
    "`allowed`: a worker that is run by itself may bring any host folder. `inside`: only what is given here.",
  ...below("sandbox", NETWORK),
  "sandbox.secrets": "The secrets that workers may have inside of their containers.",
  "sandbox.limits": "The most that any run may have.",
  ...below("sandbox.limits", LIMITS),
  "sandbox.working_dir": "Where commands run and relative paths start. Absent: /.",
  workers: "The folder of the *.worker files. Absent: ./workers.",
  policy: "The policy of runs whose worker names none. Absent: default.",
  policies: "The folder of the project's own policy files.",
  fleets: "The folder of the fleet files. Absent: ./fleets.",
  approval: "Who decides what needs consent.",
  "approval.mode": "If no rule matches: ask the user, approve, or deny.",
  "approval.timeout": "How long a question waits, such as `5m`.",
  "approval.inbox":
    "`shared`: questions can be answered in the inbox too. `wait`: questions that no user can answer here wait in the inbox. `closed`: only where they come up.",
  "approval.rules": "Decisions made in advance; the first rule that matches decides.",
  ...below("approval.rules[]", {
    worker: "A worker's name; `*` matches any part of it. Absent: any.",
    operation: "One operation or a list. Absent: any.",
    paths: "Virtual paths, such as `/drafts/**`. Absent: any.",
    hosts: "For `grant_network`: hosts with ports.",
    command: "For `exec`: the words of one command.",
    decide: "What the rule decides.",
    why: "Shown in the refusal.",
  }),
  delegation: "Limits of calls between workers.",
  "delegation.max_depth": "Runs on one path of calls, the root included.",
  "delegation.max_calls": "Calls of a whole tree of runs.",
  "delegation.max_parallel": "Calls of one run at the same time.",
  git: "Repositories that outlive the sandbox.",
  "git.repos": "Repositories by name.",
  ...below("git.repos.*", {
    url: "Where it is: https, ssh, or a path.",
    branch: "Its branch. Absent: main.",
    at: "Where workers find it in the sandbox.",
    credentials: "The secret for the server.",
    ...below("credentials", SECRET),
    author: "Who commits.",
    "author.name": "Name of the author.",
    "author.email": "Address of the author.",
  }),
  models: "Where the models of agents are, by the name before the slash of `model`.",
  ...below("models.*", {
    api: "The protocol. Absent: that of the provider's name.",
    url: "The address of the API.",
    key: "The secret for the API.",
    ...below("key", SECRET),
    images: "Whether its models accept images in answers of tools.",
    prices: "US dollars for a million tokens, by the name of the model.",
    "prices.*.input": "For tokens in.",
    "prices.*.output": "For tokens out.",
  }),
  secrets: "Secrets by name. Each has one source.",
  ...below("secrets.*", SECRET),
  history: "What is kept of runs that have ended.",
  "history.days": "For how many days.",
  "history.runs": "Of how many runs, the newest.",
  queue:
    "The PostgreSQL database that has the fleets, `postgres://user@host/database`; without it they are on this machine.",
  driver:
    "What makes containers: `auto`, `engine`, `runc` or `prefer-runc`. CORRAL_DRIVER and `--driver` replace it, and a policy may ask for one.",
  fleet: "Defaults of all fleets.",
  ...below("fleet", MANNER),
};

const WORKER: Texts = {
  name: "The file's name. It can be left out.",
  description: "What the worker is for: for people, and for agents that may call it.",
  image: "The image of its container. Absent: corral/base.",
  "image.build": "A folder of the project with a Dockerfile.",
  "image.pull": "The name of an image of a registry.",
  "image.digest": "Its digest, sha256:… : exactly this image is used.",
  environment: "Packages that are prepared once, and that every run then sees.",
  "environment.apt": "Packages of Debian.",
  "environment.pip": "A requirements file of the project, or a list of packages of Python, which are installed.",
  "environment.npm":
    "A package-lock.json of the project, with its package.json beside it, or a list of packages of npm.",
  "environment.addresses": "Private address ranges in which the registries are, such as 10.1.0.0/16.",
  command: "A program and its arguments, as a list of words. No shell is used.",
  arguments: "`true`: what follows `--` on the command line is appended to `command`.",
  model: "An agent: PROVIDER/NAME, or script/FILE.",
  tools: "The only tools that it may use, or `all`.",
  input_schema: "JSON Schema (2020-12) of its input.",
  output_schema: "JSON Schema (2020-12) of its output, which then is JSON.",
  attachments: "The files that its caller may attach.",
  "attachments.max_count": "The most files.",
  "attachments.max_bytes": "The size of all of them together, such as `10m`.",
  "attachments.suffixes": "The only suffixes, such as `.pdf`.",
  calls: "The only workers that it may call.",
  git: "The only repositories of the project that it may use.",
  ports: "Ports of servers in its sessions, as a list or by their names; no other can be connected to.",
  sandbox: "What it asks of its caller. Absent: no files.",
  "sandbox.inherit": "Everything that the caller has.",
  "sandbox.allow_read": "These paths, to read.",
  "sandbox.allow_write": "These paths, to read and write.",
  "sandbox.readonly": "No writing anywhere.",
  "sandbox.zones": "Zones of the project, by name.",
  "sandbox.zones[].name": "The name of the zone.",
  ...mount("sandbox.zones[]", "mode", "approval", "stage", "discard"),
  "sandbox.paths": "Host folders and files of its own, by name, inside of what the caller has.",
  ...mount("sandbox.paths.*", "root", "at", "mode", ...CONSTRAINTS),
  ...mount("sandbox", "suffixes", "max_file_bytes", "approval", "stage", "discard"),
  ...below("sandbox", NETWORK),
  "sandbox.working_dir": "Where its command runs and relative paths start.",
  "sandbox.dynamic": "`true`: it may ask for directories while it runs.",
  "sandbox.dynamic.within": "The only folders that can be granted, relative to the project.",
  "sandbox.dynamic.max": "The most directories that are granted in one run.",
  "sandbox.require_os_sandbox": "Accepted, without effect: Corral runs a worker isolated or not at all.",
  shell_rules: "Which commands the exec tool may run. Absent: ask for every command.",
  "shell_rules.default": "For a command that no rule matches.",
  "shell_rules.rules": "Rules for commands; the strictest that matches decides.",
  ...shellRules("shell_rules"),
  ...shellRules("shell_rules.rules"),
  limits: "Limits of the run.",
  ...below("limits", LIMITS),
  "limits.steps": "Answers of the agent's model.",
  "limits.tokens": "Tokens in and out together.",
  "limits.cost": "US dollars, by the prices of corral.yaml.",
  secrets: "Secrets of the project that it has inside, as files at /run/secrets/NAME.",
  root: "`writable`: it writes the root file system of its container, for as long as that is there, if the policy allows it.",
  policy: "The policy of its container.",
  output: "`json`: standard output must be JSON.",
  env: "Environment variables. Nothing of the host's environment enters a container.",
  services: "What runs beside it, each in a container of its own, from before it starts until it has ended.",
  ...below("services.*", {
    worker: "The worker of the project whose command it is. It gets at most what this worker has.",
    ports: "The only ports of it that this worker reaches, at `localhost` and by the service's name.",
    ready: "A command of its container that succeeds when it is ready. Absent: it is when its ports take connections.",
    ready_within: "How long it may take to be ready. Absent: `1m`.",
  }),
};

const FLEET: Texts = {
  version: "The version of this format: 1.",
  description: "What the fleet is for.",
  worker: "The worker that runs for each item.",
  over: "One item for each file that matches, such as `inbox/*.pdf`.",
  allow_empty: "`true`: no items are no error.",
  manifest: "A file with one item in each line.",
  format: "The format of the manifest. Absent: taken from its name.",
  within: "Further folders in which the manifest may name files.",
  attach: 'Files of each item, such as "{path}=in.pdf".',
  allow_read: 'All that each item reads of the worker\'s files, such as "/text/{stem}".',
  allow_write: 'All that each item writes, such as "/text/{stem}".',
  input: "The input of each item; `{field}` in its texts is replaced.",
  key: "The name of each item in the results.",
  ...MANNER,
  policy: "Used instead of the project's policy.",
};

const WHY = "The reason why this line is looser than the baseline.";

const POLICY: Texts = {
  name: "The file's name without .yaml.",
  description: "What the policy is for.",
  extends: "Another policy: all lines that this file does not write are taken from it.",
  network: "The most network that a run may have. Baseline: false.",
  "network.allow": "No host.",
  "network.value": "`true`: every host. Or the only hosts.",
  "network.why": WHY,
  ...below("network.value", { allow: "The only hosts.", ...RULES }),
  hardening: "Lines that harden a container. A line that is absent has its baseline.",
  ...Object.fromEntries(
    HARDENING_LINES.flatMap((line) => {
      const { key, kind, strictest, meaning } = hardeningRow(line);
      const text = strictest === undefined ? `${meaning}.` : `Baseline ${JSON.stringify(strictest)}: ${meaning}.`;
      const place = `hardening.${HARDENING[line].key}`;
      const looser = { [`${place}.value`]: `A looser value of ${key}.`, [`${place}.why`]: WHY };
      return Object.entries(kind === "runtime" ? { [place]: text } : { [place]: text, ...looser });
    }),
  ),
  limits: "The default and the most of each limit.",
  ...below("limits", LIMITS),
  ...Object.fromEntries(
    Object.keys(LIMITS).flatMap((limit) => [
      [`limits.${limit}.default`, "What a run has if neither its worker nor the project says."],
      [`limits.${limit}.max`, "The most that they may set."],
    ]),
  ),
  reuse: "Whether a fleet may let one container serve many items. Baseline: fresh.",
  "reuse.value": "`scrubbed`: it may.",
  "reuse.why": WHY,
  tmp: "Size of /tmp, which is in memory.",
  home: "Size of the home directory, which is in memory.",
  nofile: "Open files of each process.",
};

/** What each field says, by its path in the file: `*` is any name, `[]` any element of a list. */
export const FIELD_TEXTS: Readonly<Record<SchemaKind, Texts>> = {
  project: PROJECT,
  worker: WORKER,
  fleet: FLEET,
  policy: POLICY,
};

/** Like {@link JsonLook}, while it is made. */
type Json = { [key: string]: unknown };

/**
 * The format of a file as JSON Schema (draft 2020-12), for editors. What it refuses, the parser refuses as well. The parser refuses
 * more: what depends on several keys, on other files or on the disk.
 */
export function editorSchema(kind: SchemaKind): Json {
  const schema = jsonOf(SCHEMAS[kind]());
  describe(schema, "", FIELD_TEXTS[kind]);
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: `Corral: ${FILES_OF[kind]}`,
    ...schema,
    ...WHOLE_FILE[kind],
  };
}

/** All schemas as files, by their names. */
export function schemaFiles(): ReadonlyMap<string, string> {
  const text = (kind: SchemaKind): string => `${JSON.stringify(editorSchema(kind), null, 2)}\n`;
  return new Map(SCHEMA_KINDS.map((kind) => [schemaFileName(kind), text(kind)]));
}

const SCHEMAS: Readonly<Record<SchemaKind, () => z.ZodType>> = {
  project: () => corralYaml,
  worker: () => workerYaml,
  fleet: () => fleetYaml,
  policy: policyYaml,
};

/** What holds for several keys together. */
const WHOLE_FILE: Readonly<Record<SchemaKind, JsonLook>> = {
  project: {},
  worker: { not: { required: ["command", "model"] } },
  fleet: { oneOf: [{ required: ["over"] }, { required: ["manifest"] }] },
  policy: { anyOf: [{ required: ["extends"] }, { required: ["hardening", "limits", "tmp", "home", "nofile"] }] },
};

/** From the side of the person who writes the file: a key with a default may be absent. */
function jsonOf(schema: z.ZodType): Json {
  const { $schema: _, ...json } = z.toJSONSchema(schema, {
    io: "input",
    unrepresentable: "any",
    override({ zodSchema, jsonSchema }) {
      const look = lookOf(zodSchema);
      if (look !== null) Object.assign(jsonSchema, look(jsonOf));
      if (!isWritten(jsonSchema.default, jsonSchema.type)) delete jsonSchema.default;
    },
  });
  return json as Json;
}

/** A default that is a map, or the number that a text becomes, is no value that a file may have. */
function isWritten(absent: unknown, type: unknown): boolean {
  return typeof absent === "number" ? type === "number" || type === "integer" : typeof absent !== "object";
}

/** Gives each field its text. `*` in a path is any name, `[]` any element. */
function describe(schema: Json, path: string, texts: Readonly<Record<string, string>>): void {
  const below = (part: unknown, at: string): void => {
    if (part !== null && typeof part === "object") describe(part as Json, at, texts);
  };
  const join = (key: string): string => (path === "" ? key : `${path}.${key}`);
  for (const [key, part] of Object.entries((schema.properties as Json | undefined) ?? {})) {
    const text = texts[join(key)];
    if (text !== undefined) (part as Json).description = text;
    below(part, join(key));
  }
  below(schema.additionalProperties, join("*"));
  below(schema.items, `${path}[]`);
  for (const form of (schema.anyOf as Json[] | undefined) ?? []) below(form, path);
}
