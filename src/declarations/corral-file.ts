import { realpath, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { z } from "zod";
import { hasCode } from "../platform/errno.ts";
import { APPROVAL_MODE_NAMES, APPROVAL_OPERATIONS, INBOX_MODE_NAMES } from "../sandbox/approval.ts";
import { DRIVER_CHOICES } from "../sandbox/driver-choice.ts";
import { parseTarget } from "../sandbox/network/rule.ts";
import { parseVirtualPath } from "../sandbox/virtual-path.ts";
import { present } from "../text/present.ts";
import { fleetManner } from "./fleet-yaml.ts";
import { git } from "./git/repo.ts";
import { models } from "./models/models.ts";
import { fileFault } from "./place/host-place.ts";
import { sandboxYaml } from "./terms/declaration.ts";
import { nameFault, secrets } from "./terms/names.ts";
import { formProblems } from "./terms/sandbox-form.ts";
import { hostPath } from "./terms/terms.ts";
import { pattern } from "./worker/worker-yaml.ts";
import { type Checked, checkShape, parseYaml, readDeclarationFile, type YamlDocument } from "./yaml/document.ts";
import { DeclarationError, type Problem } from "./yaml/problem.ts";
import { byKind, duration, later, map } from "./yaml/shape.ts";

/** `history` of `corral.yaml`: what is kept of the runs of this project; null: nothing. */
const history = byKind(
  {
    text: z.literal("off", { error: "must be `off`, or a map with `days` and `runs`" }).transform(() => null),
    map: map({
      /** Records that are older are removed. */
      days: z.int().min(1).max(3650).default(30),
      /** Of more records, the oldest are removed. */
      runs: z.int().min(1).max(100_000).default(1000),
    }),
  },
  "must be `off`, or a map with `days` and `runs`",
);

/** `queue` of `corral.yaml`: where the fleets of this project are, if they are not on this machine. */
export const queueYaml = z.string().refine(isQueueUrl, {
  error:
    "must be `postgres://user@host:port/database`, without a password: put one, or `?passwordfile=FILE`, into CORRAL_QUEUE, or use a .pgpass file",
});

function isQueueUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, password, searchParams } = new URL(text);
  // A project that was cloned would send any file of its user to any server.
  return /^postgres(ql)?:$/.test(protocol) && password === "" && !searchParams.has("passwordfile");
}

/** `corral.yaml`, as in docs/formats/project.md. `sandbox-form.ts` checks which parts of `sandbox` may be combined. */
export const corralYaml = map({
  version: z.literal(1),
  sandbox: later(() => sandboxYaml).optional(),
  workers: hostPath.optional(),
  policy: z
    .string()
    .refine((name) => nameFault(name) === null, "must be the name of a policy")
    .default("default"),
  policies: hostPath.optional(),
  fleets: hostPath.optional(),
  approval: map({
    mode: z.enum(APPROVAL_MODE_NAMES).default("interactive"),
    timeout: duration.default(300_000),
    inbox: z.enum(INBOX_MODE_NAMES).default("shared"),
    rules: later(() => approvalRules).default([]),
  }).prefault({}),
  delegation: map({
    max_depth: z.int().min(0).max(64).default(5),
    max_calls: z.int().min(0).max(1_000_000).default(100),
    max_parallel: z.int().min(1).max(1024).default(4),
  }).prefault({}),
  git: later(() => git).optional(),
  models: later(() => models).optional(),
  secrets: later(() => secrets).optional(),
  fleet: later(() => fleetManner).default({}),
  history: history.prefault({}),
  queue: queueYaml.optional(),
  driver: z.enum(DRIVER_CHOICES).optional(),
});

type CorralYaml = z.output<typeof corralYaml>;

/** What the files of a project would say, for one that has none: a command line can say as much. */
export interface DeclaredTexts {
  readonly corral: string;
  /** By the names of the workers. */
  readonly workers: ReadonlyMap<string, string>;
}

/** `corral.yaml` as it was read, valid or not. */
export interface CorralFile {
  readonly found: boolean;
  /** The texts of its workers; null: they are in files. */
  readonly workers: DeclaredTexts["workers"] | null;
  readonly checked: Checked<CorralYaml>;
  /** Null if the text is not YAML. */
  readonly document: YamlDocument | null;
}

/** The folder of a project. Absolute, with no symbolic link in it. */
export async function folderAt(dir: string): Promise<string> {
  const wrong = (message: string) => new DeclarationError([{ file: dir, line: 0, column: 0, path: "", message }]);
  try {
    const real = await realpath(resolve(dir));
    if ((await stat(real)).isDirectory()) return real;
  } catch (error) {
    throw wrong(`the project's folder ${fileFault(error)}`);
  }
  throw wrong("the project must be a folder");
}

export async function readCorral(
  projectDir: string,
  shownFile: string,
  texts: DeclaredTexts | null,
): Promise<CorralFile> {
  const text = texts === null ? await readIfThere(join(projectDir, "corral.yaml"), shownFile) : texts.corral;
  const workers = texts?.workers ?? null;
  const parsed = parseYaml(text ?? "version: 1", shownFile);
  if (!parsed.ok) return { found: true, workers, checked: parsed, document: null };
  const { document } = parsed;
  const checked = checkShape(document, corralYaml);
  const problems = [...(checked.ok ? [] : checked.problems), ...formProblems(document)];
  return { found: text !== null, workers, checked: problems.length > 0 ? { ok: false, problems } : checked, document };
}

async function readIfThere(file: string, shown: string): Promise<string | null> {
  try {
    return await readDeclarationFile(file, shown);
  } catch (error) {
    if (error instanceof DeclarationError) throw error;
    if (hasCode(error, "ENOENT")) return null;
    throw new DeclarationError([{ file: shown, line: 1, column: 1, path: "", message: fileFault(error) }]);
  }
}

/** The folder that `corral.yaml` names under `key`, else the folder with that name; null if it is not named and does not exist. */
export async function subfolder(
  corral: CorralFile,
  key: OwnFolder,
  projectDir: string,
): Promise<Checked<string | null>> {
  // These count only if `corral.yaml` names them: a folder that a worker created must not become the project's own.
  if (key !== "workers" && !isWritten(corral, key)) return { ok: true, value: null };
  const folder = resolve(projectDir, writtenFolder(corral, key));
  const found = await stat(folder).catch((error: unknown) => fileFault(error));
  if (typeof found !== "string" && found.isDirectory()) return { ok: true, value: folder };
  if (!isWritten(corral, key) || corral.document === null) return { ok: true, value: null };
  const problems: Problem[] = [corral.document.problemAt([key], typeof found === "string" ? found : "is not a folder")];
  return { ok: false, problems };
}

type OwnFolder = "workers" | "policies" | "fleets";

function isWritten({ checked }: CorralFile, key: OwnFolder): boolean {
  return checked.ok && checked.value[key] !== undefined;
}

/** From the raw document, so that workers are checked even if something else in `corral.yaml` is wrong. */
export function writtenFolder({ document }: CorralFile, key: OwnFolder): string {
  const raw = document?.raw as Record<string, unknown> | null | undefined;
  const written = raw?.[key];
  return typeof written === "string" && written !== "" && !written.includes("\0") ? written : key;
}

const MAX_RULES = 200;
const MAX_PATHS = 50;
const MAX_HOSTS = 50;
/** Each further wildcard multiplies the time that a hostile name can cost. */
const MAX_WILDCARDS_PER_NAME = 3;
const MAX_GLOBSTARS = 3;

const operation = z.enum(APPROVAL_OPERATIONS);

const operations = byKind(
  { text: operation.transform((only) => [only]), list: z.array(operation).min(1).max(APPROVAL_OPERATIONS.length) },
  "must be an operation, or a list of them",
);

const worker = z.string().regex(/^[A-Za-z0-9._*?-]{1,64}$/, "must be a worker's name; `*` matches any part of it");

const pathGlob = z
  .string()
  .max(1000)
  .superRefine((raw, context) => {
    const message = globFault(raw);
    if (message !== null) context.addIssue({ code: "custom", message });
  });

const hosts = z.string().superRefine((raw, context) => {
  const parsed = parseTarget(raw);
  if (!parsed.ok) context.addIssue({ code: "custom", message: parsed.reason });
});

const rule = map({
  worker: worker.optional(),
  operation: operations.optional(),
  paths: z.array(pathGlob).min(1).max(MAX_PATHS).optional(),
  hosts: z.array(hosts).min(1).max(MAX_HOSTS).optional(),
  command: pattern.optional(),
  decide: z.enum(["approve", "deny"]),
  why: z.string().min(1).max(500).optional(),
})
  .superRefine((raw, context) => {
    const fault = ruleFault(raw);
    if (fault !== null) context.issues.push({ code: "custom", input: raw, path: [fault.key], message: fault.message });
  })
  .transform(({ operation: named, ...rest }) => present({ ...rest, operations: named }));

/**
 * `approval.rules`: what the project decides beforehand. What the rules mean is `approval/rules.ts`; here what could
 * never match, or would approve more than it says, is refused.
 */
const approvalRules = z.array(rule).max(MAX_RULES);

export type ApprovalRuleYaml = z.output<typeof rule>;

interface RawRule {
  readonly operation?: readonly z.output<typeof operation>[] | undefined;
  readonly paths?: readonly string[] | undefined;
  readonly hosts?: readonly string[] | undefined;
  readonly command?: string | undefined;
  readonly decide: "approve" | "deny";
}

/** Why a rule as a whole is none, or null. */
function ruleFault(raw: RawRule): { readonly key: string; readonly message: string } | null {
  const { operation: named, paths, hosts, command, decide } = raw;
  if (hosts !== undefined && (paths !== undefined || command !== undefined))
    return { key: "hosts", message: "`hosts` cannot be used together with `paths` or `command`; write two rules" };
  if (hosts !== undefined && named?.some((one) => one !== "grant_network"))
    return { key: "hosts", message: "`hosts` is only for the operation `grant_network`" };
  if (command !== undefined && paths !== undefined)
    return { key: "command", message: "`command` and `paths` cannot be used together; write two rules" };
  if (command !== undefined && named?.some((one) => one !== "exec"))
    return { key: "command", message: "`command` is only for the operation `exec`" };
  if (paths !== undefined && named?.every((one) => one === "exec"))
    return { key: "paths", message: "`paths` is not for the operation `exec`; use `command`" };
  if (paths !== undefined && named?.includes("grant_network"))
    return {
      key: "paths",
      message: "`paths` is not for the operation `grant_network`; use `hosts` in a rule of its own",
    };
  if (decide === "deny" || paths !== undefined || hosts !== undefined || command !== undefined) return null;
  if (named === undefined)
    return { key: "decide", message: "a rule that approves must name `operation`, `paths`, `hosts` or `command`" };
  const wide = named.find((one) => one === "push" || one.startsWith("grant_"));
  const key = wide === "grant_network" ? "hosts" : "paths";
  return wide === undefined
    ? null
    : { key: "decide", message: `a rule that approves \`${wide}\` must name \`${key}\`` };
}

/** Why no path could ever match, or null. */
function globFault(raw: string): string | null {
  if (!raw.startsWith("/")) return "must be an absolute path, such as `/drafts/**`";
  const parsed = parseVirtualPath(raw);
  if (!parsed.ok) return parsed.reason;
  if (parsed.path !== raw) return `must be written as \`${parsed.path}\``;
  const names = raw.slice(1).split("/");
  if (names.some((name) => name.includes("**") && name !== "**"))
    return "`**` matches whole directories, so it must be alone between slashes";
  if (names.filter((name) => name === "**").length > MAX_GLOBSTARS)
    return `may contain \`**\` at most ${MAX_GLOBSTARS} times`;
  if (names.some((name) => name !== "**" && name.split("*").length - 1 > MAX_WILDCARDS_PER_NAME))
    return `may contain \`*\` at most ${MAX_WILDCARDS_PER_NAME} times between two slashes`;
  return null;
}
