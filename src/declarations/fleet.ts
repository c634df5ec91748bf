import { readdir } from "node:fs/promises";
import { basename, join, relative } from "node:path";
import { hasCode } from "../platform/errno.ts";
import { present } from "../text/present.ts";
import { type FleetManner, type FleetYaml, fleetYaml, type MachineNeeds, mannerOf } from "./fleet-yaml.ts";
import { fileFault } from "./place/host-place.ts";
import type { Project } from "./project.ts";
import { nameFault } from "./terms/names.ts";
import { type Checked, checkShape, parseYaml, readDeclarationFile, type YamlDocument } from "./yaml/document.ts";
import { DeclarationError, type Problem } from "./yaml/problem.ts";
import { nearest } from "./yaml/shape.ts";

/** A fleet, from its file: one worker, its items, and how each item's run is made of them. */
export interface FleetDefinition {
  readonly name: string;
  /** As it was found; for messages. */
  readonly file: string;
  readonly description: string;
  readonly worker: string;
  readonly items: FleetItems;
  /** Every text is a template that parses. `input`: a JSON value in which every text is one. */
  readonly template: {
    readonly key?: string;
    readonly attach: readonly string[];
    readonly allowRead?: readonly string[];
    readonly allowWrite?: readonly string[];
    readonly input?: unknown;
  };
  readonly concurrency: number | "auto";
  readonly reuse: "fresh" | "scrubbed";
  /** Attempts after the first. */
  readonly retries: number;
  /** More failed items than this end the fleet; null: none do. */
  readonly maxFailures: number | null;
  readonly cache: boolean;
  /** Null: the project's policy. */
  readonly policyName: string | null;
  /** For one item; null: the worker's own. */
  readonly timeoutMs: number | null;
  /** False: that there is no item is an error. */
  readonly allowEmpty: boolean;
  /** Which other machines may run items; null: none. */
  readonly machines: MachineNeeds | null;
}

/** A fleet of a project. */
export interface NamedFleet extends FleetDefinition {
  /** A mistake that was found in a template later, at its place in the file. `about`: `attach {pth}=in.pdf`. */
  readonly problemOf: (about: string, fault: string) => Problem;
}

/** Where a fleet's items come from. Host paths are as written, relative to the project. */
export type FleetItems =
  | { readonly kind: "glob"; readonly pattern: string }
  | {
      readonly kind: "manifest";
      readonly path: string;
      /** Null: taken from its name. */
      readonly format: "jsonl" | "csv" | "paths" | null;
      /** Folders, in addition to the manifest's own, in which its lines may name files by absolute paths. */
      readonly within: readonly string[];
    };

const MAX_FLEETS = 1000;

/** The defaults of Corral itself. */
const BUILT_IN: Required<FleetManner> = {
  concurrency: "auto",
  reuse: "fresh",
  retries: 0,
  maxFailures: null,
  cache: true,
  timeoutMs: null,
  machines: null,
};

/** Parses the text of a `fleets/NAME.yaml`. Throws a `DeclarationError` with every problem in it. */
export function parseFleet(text: string, file: string, defaults: FleetManner = {}): FleetDefinition {
  const read = readFleet(text, file, defaults);
  if (!read.ok) throw new DeclarationError(read.problems);
  return read.value.fleet;
}

/**
 * The fleet of that name. Throws a `DeclarationError` if there is none, or with every problem in its file; that it
 * names a worker which the project has not is one of them. `shownDir`: the project's folder as a person knows it.
 */
export async function fleetNamed(
  project: Pick<Project, "dir" | "workers" | "fleetsDir" | "fleet">,
  name: string,
  shownDir = project.dir,
): Promise<NamedFleet> {
  const { fleetsDir } = project;
  if (fleetsDir === null) throw unnamed(join(shownDir, "corral.yaml"));
  const file = join(shownDir, relative(project.dir, fleetsDir), `${name}.yaml`);
  const read = readFleet(await readFleetFile(fleetsDir, name, file), file, project.fleet);
  if (!read.ok) throw new DeclarationError(read.problems);
  const { fleet, document } = read.value;
  const problemOf: NamedFleet["problemOf"] = (about, fault) => {
    const text = about.split(" ").slice(1).join(" ");
    return document.problemAt(templatePlace(about, document), text === "" ? fault : `${text}: ${fault}`);
  };
  if (project.workers.has(fleet.worker)) return { ...fleet, problemOf };
  const known = [...project.workers.keys()];
  const instead = nearest(fleet.worker, known) ?? (known.length === 0 ? "" : `; there are: ${known.join(", ")}`);
  throw new DeclarationError([
    document.problemAt(["worker"], `there is no worker \`${fleet.worker}\` in this project${instead}`),
  ]);
}

/** A worker could have written what a person then runs. */
function unnamed(file: string): DeclarationError {
  const message =
    "workers may write to fleets/, so Corral uses it only if corral.yaml names it: check its files and add `fleets: ./fleets`, or run without --fleet";
  return new DeclarationError([{ file, line: 1, column: 1, path: "fleets", message }]);
}

async function readFleetFile(fleetsDir: string, name: string, file: string): Promise<string> {
  const wrong = (message: string) => new DeclarationError([{ file, line: 1, column: 1, path: "", message }]);
  const fault = nameFault(name);
  if (fault !== null) throw wrong(`a fleet's name ${fault}`);
  try {
    return await readDeclarationFile(join(fleetsDir, `${name}.yaml`), file);
  } catch (error) {
    if (error instanceof DeclarationError) throw error;
    const message = fileFault(error);
    if (!hasCode(error, "ENOENT")) throw wrong(message);
    const known = await fleetNames(fleetsDir);
    const instead =
      known.length === 0 ? "; the project has no fleets" : (nearest(name, known) ?? `; there are: ${known.join(", ")}`);
    throw wrong(`${message}${instead}`);
  }
}

/** The names of a project's fleets, sorted; of very many, the first thousand. */
export async function fleetNames(fleetsDir: string): Promise<string[]> {
  const entries = await readdir(fleetsDir).catch((error: unknown) => {
    fileFault(error);
    return [];
  });
  const files = entries.filter((entry) => entry.endsWith(".yaml") && !entry.startsWith("."));
  return files
    .map((entry) => basename(entry, ".yaml"))
    .toSorted()
    .slice(0, MAX_FLEETS);
}

interface FleetFile {
  readonly fleet: FleetDefinition;
  readonly document: YamlDocument;
}

function readFleet(text: string, file: string, defaults: FleetManner): Checked<FleetFile> {
  const parsed = parseYaml(text, file);
  if (!parsed.ok) return parsed;
  const { document } = parsed;
  const checked = checkShape(document, fleetYaml);
  const problems = [...(checked.ok ? [] : checked.problems), ...itemsProblems(document)];
  if (!checked.ok || problems.length > 0) return { ok: false, problems };
  return { ok: true, value: { fleet: definitionOf(checked.value, file, defaults), document } };
}

/** What depends on more than one key, or on the file's name. */
function itemsProblems({ raw, file, problemAt }: YamlDocument): Problem[] {
  if (raw === null || typeof raw !== "object" || Array.isArray(raw)) return [];
  const fault = nameFault(basename(file, ".yaml"));
  const problems: Problem[] = fault === null ? [] : [problemAt([], `the file's name without .yaml ${fault}`)];
  if ("over" in raw && "manifest" in raw) {
    const message = "`over` and `manifest` cannot be used together; items come from one source";
    problems.push(problemAt(["manifest"], message, "key"));
  }
  if (!("over" in raw) && !("manifest" in raw)) {
    problems.push(
      problemAt([], "needs `over` (files that match a pattern) or `manifest` (a file with one item a line)"),
    );
  }
  for (const key of ["format", "within"]) {
    if (key in raw && !("manifest" in raw)) problems.push(problemAt([key], "is only for `manifest`", "key"));
  }
  return problems;
}

function definitionOf(yaml: FleetYaml, file: string, defaults: FleetManner): FleetDefinition {
  return {
    name: basename(file, ".yaml"),
    file,
    description: yaml.description,
    worker: yaml.worker,
    items: itemsOf(yaml),
    template: {
      attach: yaml.attach,
      ...present({
        key: yaml.key,
        allowRead: yaml.allow_read,
        allowWrite: yaml.allow_write,
        input: inputOf(yaml.input),
      }),
    },
    ...BUILT_IN,
    ...defaults,
    ...mannerOf(yaml),
    policyName: yaml.policy ?? null,
    allowEmpty: yaml.allow_empty,
  };
}

/** The key of a template, and its place in the list if the file has one. */
function templatePlace(about: string, { raw }: YamlDocument): (string | number)[] {
  const [kind = "", ...words] = about.split(" ");
  const templates = (raw as Readonly<Record<string, unknown>>)[kind];
  const index = Array.isArray(templates) ? templates.indexOf(words.join(" ")) : -1;
  return index < 0 ? [kind] : [kind, index];
}

function itemsOf({ over, manifest = "", format, within }: FleetYaml): FleetItems {
  if (over !== undefined) return { kind: "glob", pattern: over };
  return { kind: "manifest", path: manifest, format: format ?? null, within };
}

/** On the command line a text is JSON; here it is a text, and is written as JSON has it. */
function inputOf(input: unknown): unknown {
  return typeof input === "string" ? JSON.stringify(input) : input;
}
