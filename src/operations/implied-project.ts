import { basename } from "node:path";
import { stringify } from "yaml";
import type { DeclaredTexts } from "../declarations/corral-file.ts";
import { nameFault } from "../declarations/terms/names.ts";
import type { ApprovalMode } from "../sandbox/approval.ts";

/** A host path that a command line gives to a command. */
export interface ImpliedPath {
  /** Its place is `/NAME`. */
  readonly name: string;
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
  /** Rules of a network, and presets. */
  readonly allow: readonly string[];
  readonly packages: readonly string[];
  readonly policy: string;
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
        ...(network === undefined ? {} : { network }),
      },
    }),
    "",
    "# Changes are shown as a diff, and applied when the user agrees. `approve_all` applies them without asking.",
    block({ approval: { mode: approval, ...(own.length === 0 ? {} : { rules: [ownRule(own)] }) } }),
    "",
  ].join("\n");
}

function pathOf({ path, mode, create }: ImpliedPath) {
  return mode === "ro" ? { root: path, mode } : { root: path, mode, ...(create ? { create } : {}), stage: true };
}

const OWN_FILE = "corral.yaml";

/** Where the command could leave a project. */
function ownPlaces(paths: readonly ImpliedPath[]): string[] {
  return paths.flatMap(({ name, mode, file }) => {
    if (mode === "ro") return [];
    return file === null ? [`/${name}/${OWN_FILE}`] : file === OWN_FILE ? [`/${name}`] : [];
  });
}

/** What a run leaves there must not be the project of the next one. */
function ownRule(paths: readonly string[]) {
  const why = "a corral.yaml says what the next run may do";
  return { decide: "deny", operation: ["write", "delete"], paths, why };
}

function workerText(project: ImpliedProject): string {
  const { image, command, runsCommands } = project;
  const network = networkOf(project);
  return [
    "---",
    block({ image }),
    block({ command }),
    "# All that corral.yaml gives; a network must be asked for.",
    block({ sandbox: { inherit: true, ...(network === undefined ? {} : { network }) } }),
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

function networkOf({ allow, packages }: ImpliedProject) {
  if (allow.length === 0 && packages.length === 0) return undefined;
  return { ...(allow.length === 0 ? {} : { allow }), ...(packages.length === 0 ? {} : { packages }) };
}

function block(value: unknown): string {
  return stringify(value, { lineWidth: 0 }).trimEnd();
}
