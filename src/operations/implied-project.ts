import { basename } from "node:path";
import { stringify } from "yaml";
import type { DeclaredTexts } from "../declarations/corral-file.ts";
import { type SchemaKind, schemaFileName, schemaModeline } from "../declarations/editor/kinds.ts";
import { schemaFiles } from "../declarations/editor/schemas.ts";
import { templateFiles } from "../declarations/place/package-root.ts";
import { loadProject } from "../declarations/project.ts";
import { nameFault } from "../declarations/terms/names.ts";
import { DeclarationError } from "../declarations/yaml/problem.ts";
import { writeNewFiles } from "../files/host/new-files.ts";
import { type CheckReport, check, checkDeclaration } from "../run/explain/check.ts";
import { openPreview } from "../run/open/preview.ts";
import type { ApprovalMode } from "../sandbox/approval.ts";
import { present } from "../text/present.ts";
import type { MachinePlace } from "./machine.ts";

interface Kind {
  /** What it does, as a choice shows it. */
  readonly does: string;
  /** Two commands that work in the new project as it is. */
  readonly next: readonly [string, string];
}

/** The kinds of projects that `corral init` makes, in the order of the choice. Each has its folder below `templates/`; that of `ci` has several. */
export const PROJECT_KINDS = {
  documents: { does: "turns strangers' PDF files into text", next: ["corral explain extract", "corral run extract"] },
  batch: {
    does: "runs one worker over many files",
    next: ["corral map --fleet all --json", "corral fleet ls"],
  },
  agent: { does: "lets a model read files and write notes", next: ["corral explain clerk", "corral run clerk"] },
  ci: { does: "tests a stranger's branch without a network", next: ["corral ci check", "corral ci run"] },
} as const satisfies Readonly<Record<string, Kind>>;

export type ProjectKind = keyof typeof PROJECT_KINDS;

/** A folder below `templates/`. `convert` is what `corral convert` runs. */
export type ProjectTemplate = Exclude<ProjectKind, "ci"> | "convert";

/** Where a new project has the formats of its files, for editors. They are for git too: who clones the project has them. */
const SCHEMAS = ".corral/schemas";

export interface NewProject {
  /** The paths of its files. */
  readonly files: readonly string[];
  /** The folder of the schemas that these files name. */
  readonly schemas: string;
}

/**
 * Writes a new project into a folder that exists.
 *
 * @throws NameTaken if one of its files is there already; then nothing was written
 */
export async function makeProject(kind: ProjectTemplate, dir: string): Promise<NewProject> {
  const files = await templateFiles(kind);
  const named = [...files].map(([path, text]) => [path, withModeline(path, text)] as const);
  const schemas = [...schemaFiles()].map(([name, text]) => [`${SCHEMAS}/${name}`, text] as const);
  writeNewFiles(dir, new Map([...named, ...schemas]));
  return { files: [...files.keys()], schemas: SCHEMAS };
}

/** A `*.worker` has no such line: editors do not read it as YAML by themselves. */
function withModeline(path: string, text: string): string {
  const kind: SchemaKind | null =
    path === "corral.yaml" ? "project" : /^fleets\/[^/]+\.yaml$/.test(path) ? "fleet" : null;
  if (kind === null) return text;
  const up = "../".repeat(path.split("/").length - 1);
  return `${schemaModeline(`${up}${SCHEMAS}/${schemaFileName(kind)}`)}\n${text}`;
}

/** A host path that a command line gives to a command. */
export interface ImpliedPath {
  readonly name: string;
  /** Where it is in the cell: `/NAME`, or another that no name can be. */
  readonly place: string;
  /** As typed: relative to the working directory. */
  readonly path: string;
  readonly mode: "ro" | "rw";
  /** True: the first run makes the folder if it is missing. */
  readonly create: boolean;
  /** The name of the file, if it is one; null for a folder. */
  readonly file: string | null;
}

/** A worker and its project as a command line gives them: nothing of it is in a file. */
export interface ImpliedProject {
  /** The name of the worker. */
  readonly name: string;
  readonly image: string;
  /** The program and its arguments. */
  readonly command: readonly string[];
  readonly paths: readonly ImpliedPath[];
  /** Rules of a network, as `HOST:PORT` or `HOST:PORT=RANGE,RANGE`, and presets. */
  readonly allow: readonly string[];
  readonly packages: readonly string[];
  /** Packages beside what the image has; each list that is there has some. */
  readonly environment: { readonly [Tool in "apt" | "pip" | "npm"]?: readonly string[] };
  /** The only addresses at which registries may be; empty: any that is public. */
  readonly addresses: readonly string[];
  /** As typed, by their keys in a worker's file. */
  readonly limits: Readonly<Record<string, string>>;
  readonly env: Readonly<Record<string, string>>;
  /** Null: `/`. */
  readonly workdir: string | null;
  readonly policy: string;
  /** It may ask for further folders while it runs. */
  readonly isDynamic: boolean;
  readonly approval: ApprovalMode;
  /** True for a session: its commands are typed by who opened it, or by the model of an MCP client. */
  readonly runsCommands: boolean;
}

/** The strictest policy: a folder of strange files is what this form is for. */
export const IMPLIED_POLICY = "untrusted";

/** The name for a worker with this command, as audit trail and screens show it. */
export function impliedName([program = ""]: readonly string[]): string {
  const name = basename(program);
  return nameFault(name) === null ? name : "command";
}

/** The texts of `corral.yaml` and of the worker's file that say the same. They are run, and saved. */
export function impliedTexts(project: ImpliedProject): DeclaredTexts {
  return { corral: corralText(project), workers: new Map([[project.name, workerText(project)]]) };
}

function corralText(project: ImpliedProject): string {
  const { name, policy, approval, paths } = project;
  const network = networkOf(project);
  const own = ownPlaces(paths);
  return [
    `# A project of Corral. \`corral explain ${name}\` shows what its worker gets; docs/formats.md has every key.`,
    "version: 1",
    "",
    "# The hardening and the limits. `untrusted`: for strangers' files, without network, never as root.",
    block({ policy }),
    "",
    "# What workers may get, each as /NAME. Paths are relative to this folder. What is written with `stage` waits",
    "# outside of the folder until it is checked and agreed to.",
    block({
      sandbox: {
        paths: Object.fromEntries(paths.map((path) => [path.name, pathOf(path)])),
        ...present({ network }),
      },
    }),
    "",
    "# Changes are shown as a diff, and applied when the user agrees. `approve_all` applies them without asking.",
    block({ approval: { mode: approval, ...(own.length === 0 ? {} : { rules: [ownRule(own)] }) } }),
    "",
  ].join("\n");
}

function pathOf({ name, place, path, mode, create }: ImpliedPath) {
  const at = place === `/${name}` ? {} : { at: place };
  if (mode === "ro") return { root: path, ...at, mode };
  return { root: path, ...at, mode, ...(create ? { create } : {}), stage: true };
}

const OWN_FILE = "corral.yaml";

/** Where the command could leave a project. */
function ownPlaces(paths: readonly ImpliedPath[]): string[] {
  return paths.flatMap(({ place, mode, file }) => {
    if (mode === "ro") return [];
    // In a rule, `*` and `?` of a name match themselves too: no less is denied.
    return file === null ? [`${place}/${OWN_FILE}`] : file === OWN_FILE ? [place] : [];
  });
}

/** What a run leaves there must not be the project of the next one. */
function ownRule(paths: readonly string[]) {
  const why = "a corral.yaml says what the next run may do";
  return { decide: "deny", operation: ["write", "delete"], paths, why };
}

function workerText(project: ImpliedProject): string {
  const { image, command, runsCommands, limits, env, workdir, isDynamic } = project;
  const network = networkOf(project);
  return [
    "---",
    block({ image }),
    block({ command }),
    ...environmentLines(project),
    ...(isEmpty(limits) ? [] : [block({ limits: Object.fromEntries(Object.entries(limits).map(asNumber)) })]),
    ...(isEmpty(env) ? [] : [block({ env })]),
    "# All that corral.yaml gives; a network must be asked for.",
    block({
      sandbox: {
        inherit: true,
        ...present({ working_dir: workdir ?? undefined, network, dynamic: isDynamic || undefined }),
      },
    }),
    ...(runsCommands
      ? [
          "# Commands of a session run without being asked about: they are in the container, and what they write is.",
          block({ shell_rules: { default: "pre_approved" } }),
        ]
      : []),
    "---",
    "",
  ].join("\n");
}

function environmentLines({ environment, addresses }: ImpliedProject): string[] {
  if (Object.keys(environment).length === 0) return [];
  const { pip, npm } = environment;
  const at = addresses.length === 0 || (pip ?? npm) === undefined ? {} : { addresses };
  return [block({ environment: { ...environment, ...at } })];
}

function isEmpty(map: Readonly<Record<string, string>>): boolean {
  return Object.keys(map).length === 0;
}

/** Limits that are counts are numbers in a file. */
function asNumber([key, typed]: readonly [string, string]): readonly [string, string | number] {
  return [key, /^\d+(\.\d+)?$/.test(typed) ? Number(typed) : typed];
}

function networkOf({ allow, packages, addresses }: ImpliedProject) {
  if (allow.length === 0 && packages.length === 0) return undefined;
  const presets = addresses.length === 0 ? packages : packages.map((kind) => ({ kind, addresses }));
  const rules = allow.map((typed) => {
    const [to = "", ranges] = typed.split("=", 2);
    return ranges === undefined ? to : { to, addresses: ranges.split(",") };
  });
  return { ...(allow.length === 0 ? {} : { allow: rules }), ...(packages.length === 0 ? {} : { packages: presets }) };
}

function block(value: unknown): string {
  return stringify(value, { lineWidth: 0 }).trimEnd();
}

/** Every call path of a project's folder that would be refused, or the mistakes in its files. Runs nothing, and needs no Engine. */
export async function checkProject(dir: string, machine: MachinePlace): Promise<CheckReport> {
  try {
    return await check(await openPreview(await loadProject(dir, machine.engineEnv), machine));
  } catch (error) {
    if (error instanceof DeclarationError) return checkDeclaration(error);
    throw error;
  }
}
