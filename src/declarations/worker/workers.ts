import { lstat, readdir } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { nullFor } from "../../platform/errno.ts";
import type { ProjectDeclaration } from "../../sandbox/declare.ts";
import type { PackageKind } from "../../sandbox/network/rule.ts";
import { environmentInputs } from "../images/environment-inputs.ts";
import { fileFault, followed } from "../place/host-place.ts";
import { secretNameFault } from "../terms/names.ts";
import { type Checked, readDeclarationFile } from "../yaml/document.ts";
import { DeclarationError, type Problem } from "../yaml/problem.ts";
import { nearest } from "../yaml/shape.ts";
import { exposureFault, writableFolders } from "./exposure.ts";
import { isOnlyForSessions, readWorker, type WorkerDefinition, type WorkerFile, workerNameOf } from "./worker.ts";

const MAX_WORKERS = 1000;

/** Names that the project has; null if they are not known. */
export interface KnownNames {
  readonly mounts: readonly string[] | null;
  readonly secrets: readonly string[] | null;
}

/** `sound`: of the workers, if something is wrong, those whose own files are not. */
export type CheckedWorkers =
  | { readonly ok: true; readonly value: ReadonlyMap<string, WorkerDefinition> }
  | {
      readonly ok: false;
      readonly problems: readonly Problem[];
      readonly sound?: ReadonlyMap<string, WorkerDefinition>;
    };

/** Every `*.worker` file of a folder, by name; `shownDir` is how messages name it. Problems of all files come together. */
export async function readWorkers(dir: string, shownDir: string, known: KnownNames): Promise<CheckedWorkers> {
  const wrong = (message: string) =>
    ({ ok: false, problems: [{ file: shownDir, line: 1, column: 1, path: "", message }] }) as const;
  const entries = await readdir(dir).catch(fileFault);
  if (typeof entries === "string") return wrong(entries);
  const files = entries.filter((entry) => entry.endsWith(".worker") && !entry.startsWith(".")).toSorted();
  if (files.length > MAX_WORKERS) return wrong(`holds ${files.length} workers; at most ${MAX_WORKERS} are read`);
  const workers: Checked<WorkerFile>[] = [];
  for (const entry of files) workers.push(await readFrom(join(dir, entry), join(shownDir, entry)));
  return await checkedTogether(workers, files.map(workerNameOf), known);
}

/** The same from the texts of such files, by the names of the workers. */
export async function readWorkerTexts(texts: ReadonlyMap<string, string>, known: KnownNames): Promise<CheckedWorkers> {
  const workers = [...texts].map(([name, text]) => readWorker(text, `${name}.worker`));
  return await checkedTogether(workers, [...texts.keys()], known);
}

async function checkedTogether(
  workers: readonly Checked<WorkerFile>[],
  names: readonly string[],
  { mounts, secrets }: KnownNames,
): Promise<CheckedWorkers> {
  const problems: Problem[] = [];
  const read: WorkerFile[] = [];
  for (const worker of workers) {
    const faults = worker.ok ? await schemaProblems(worker.value) : [];
    if (worker.ok && faults.length === 0) read.push(worker.value);
    else if (worker.ok) problems.push(...faults);
    else problems.push(...worker.problems);
  }
  // A worker whose file is wrong still exists: its callers are not to blame.
  const notRun = read.map(({ worker }) => worker).filter(isOnlyForSessions);
  const known = { names, notRun: new Set(notRun.map(({ name }) => name)) };
  problems.push(...read.flatMap((caller) => unknownCalls(caller, known)));
  problems.push(...read.flatMap((file) => unknownServices(file, known)));
  if (secrets !== null) problems.push(...read.flatMap((file) => unknownInside(file, secrets)));
  if (mounts !== null && problems.length === 0) problems.push(...misspeltZones(read, mounts));
  const value = new Map(read.map(({ worker }) => [worker.name, worker]));
  return problems.length > 0 ? { ok: false, problems, sound: withoutFaults(value, problems) } : { ok: true, value };
}

/** Those with whose own files no problem is. */
export function withoutFaults(
  workers: ReadonlyMap<string, WorkerDefinition>,
  problems: readonly Problem[],
): ReadonlyMap<string, WorkerDefinition> {
  const wrong = new Set(problems.map(({ file }) => file));
  return new Map([...workers].filter(([, { file }]) => !wrong.has(file)));
}

async function readFrom(path: string, file: string): Promise<Checked<WorkerFile>> {
  try {
    return readWorker(await readDeclarationFile(path, file), file);
  } catch (error) {
    if (error instanceof DeclarationError) return { ok: false, problems: error.problems };
    return { ok: false, problems: [{ file, line: 1, column: 1, path: "", message: fileFault(error) }] };
  }
}

/** Few workers have a schema: what compiles them is loaded for those alone. */
async function schemaProblems({ worker, document }: WorkerFile): Promise<Problem[]> {
  const schemas = { input_schema: worker.inputSchema, output_schema: worker.outputSchema };
  const problems: Problem[] = [];
  for (const [key, schema] of Object.entries(schemas)) {
    if (schema === undefined) continue;
    const { schemaFault } = await import("../schema/json-schema.ts");
    const fault = schemaFault(schema);
    if (fault !== null) problems.push(document.problemAt([key], fault));
  }
  return problems;
}

interface OtherWorkers {
  readonly names: readonly string[];
  readonly notRun: ReadonlySet<string>;
}

const NOT_RUN = "has no `command` and is only for sessions";

function unknownCalls({ worker, document }: WorkerFile, { names, notRun }: OtherWorkers): Problem[] {
  const written = (document.raw as { calls?: readonly string[] }).calls ?? [];
  return written.flatMap((name, index) => {
    if (notRun.has(name))
      return [document.problemAt(["calls", index], `\`${worker.name}\` cannot call \`${name}\`, which ${NOT_RUN}`)];
    if (names.includes(name)) return [];
    const instead = nearest(name, names) ?? `; there are: ${names.join(", ")}`;
    return [
      document.problemAt(
        ["calls", index],
        `\`${worker.name}\` cannot call \`${name}\`, which does not exist${instead}`,
      ),
    ];
  });
}

function unknownServices({ worker: { services = [] }, document }: WorkerFile, { names, notRun }: OtherWorkers) {
  return services.flatMap(({ name, worker }): Problem[] => {
    const at = ["services", name, "worker"];
    if (notRun.has(worker)) return [document.problemAt(at, `\`${worker}\` ${NOT_RUN}`)];
    if (names.includes(worker)) return [];
    const instead = nearest(worker, names) ?? `; there are: ${names.join(", ")}`;
    return [document.problemAt(at, `there is no worker \`${worker}\`${instead}`)];
  });
}

function unknownInside({ worker, document }: WorkerFile, known: readonly string[]): Problem[] {
  const { secrets = [] } = worker.needs;
  const written = (document.raw as { secrets?: readonly string[] }).secrets ?? [];
  return secrets.flatMap((name) => {
    const fault = secretNameFault(name, known);
    return fault === null ? [] : [document.problemAt(["secrets", written.indexOf(name)], fault)];
  });
}

/**
 * Names that neither the project nor any worker's own `paths` have, but that are near to one that they have. A worker with any
 * other unknown name is refused when it is run.
 */
function misspeltZones(workers: readonly WorkerFile[], given: readonly string[]): Problem[] {
  const own = workers.flatMap(({ worker }) => worker.needs.paths ?? []).map(({ name }) => name);
  const known = [...new Set([...given, ...own])];
  return workers.flatMap(({ worker, document }) =>
    (worker.needs.zones ?? []).flatMap(({ name }, index) => {
      const meant = known.includes(name) ? null : nearest(name, known);
      if (meant === null) return [];
      return [document.problemAt(["sandbox", "zones", index, "name"], `the project has no zone \`${name}\`${meant}`)];
    }),
  );
}

/**
 * What images and environments of workers are made from, as absolute paths: as much the project's own as `corral.yaml`, since
 * who can write it says what runs in the next cell.
 */
export async function imageFiles(
  projectDir: string,
  workers: Checked<ReadonlyMap<string, WorkerDefinition>>,
  declaration: Checked<Pick<ProjectDeclaration, "rooted" | "mounts">>,
): Promise<Checked<readonly string[]>> {
  if (!workers.ok || !declaration.ok) return { ok: true, value: [] };
  const { rooted, mounts } = declaration.value;
  // In the root form Corral mounts the project's own files read-only.
  const writable = await writableFolders(projectDir, { mounts: rooted ? [] : mounts }, workers.value);
  const problems: Problem[] = [];
  const places: string[] = [];
  for (const { imageFrom, environment, imagePlaces } of workers.value.values()) {
    if (imagePlaces === undefined) continue;
    if (imageFrom?.kind === "build") {
      const place = resolve(projectDir, imageFrom.folder);
      const fault = await placeFault(projectDir, place, writable, true);
      if (fault !== null) problems.push({ ...imagePlaces.image, message: `\`${imageFrom.folder}\` ${fault}` });
      else places.push(place);
    }
    for (const path of filesOf(environment)) {
      const place = resolve(projectDir, path);
      const fault = await placeFault(projectDir, place, writable, false);
      if (fault !== null) problems.push({ ...imagePlaces.environment, message: `\`${path}\` ${fault}` });
      else places.push(place);
    }
    const read = problems.length > 0 ? null : await environmentInputs(projectDir, environment ?? {});
    if (read?.ok === false) problems.push(...read.faults.map((message) => ({ ...imagePlaces.environment, message })));
  }
  return problems.length > 0 ? { ok: false, problems } : { ok: true, value: places };
}

/** The presets with which the environments of these workers are prepared. */
export function environmentKinds(workers: ReadonlyMap<string, WorkerDefinition>): PackageKind[] {
  return [...workers.values()].flatMap(({ environment }): PackageKind[] => [
    ...(environment?.pip === undefined ? [] : (["pypi"] as const)),
    ...(environment?.npm === undefined ? [] : (["npm"] as const)),
  ]);
}

function filesOf({ pip, npm }: NonNullable<WorkerDefinition["environment"]> = {}): string[] {
  const beside = typeof npm === "string" ? [npm, join(dirname(npm), "package.json")] : [];
  return [...(typeof pip === "string" ? [pip] : []), ...beside];
}

async function placeFault(
  projectDir: string,
  place: string,
  writable: readonly string[],
  isFolder: boolean,
): Promise<string | null> {
  if (!place.startsWith(`${projectDir}/`)) return "must be inside of the project's folder";
  try {
    const { host, links } = await followed(place);
    if (links.length > 0 || host !== place) return "leads through a symbolic link; use the real path";
    const found = await lstat(place);
    if (isFolder && !found.isDirectory()) return "is not a folder";
    if (!isFolder && !found.isFile()) return "is not a regular file";
    const exposed = await exposureFault(place, writable);
    if (exposed !== null || !isFolder) return exposed;
    const dockerfile = await lstat(join(place, "Dockerfile")).catch(nullFor("ENOENT"));
    return dockerfile?.isFile() === true ? null : "has no Dockerfile";
  } catch (error) {
    return fileFault(error);
  }
}
