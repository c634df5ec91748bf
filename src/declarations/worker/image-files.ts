import { lstat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { nullFor } from "../../platform/errno.ts";
import type { ProjectDeclaration } from "../../sandbox/declare.ts";
import type { PackageKind } from "../../sandbox/network/rule.ts";
import { environmentInputs } from "../images/environment-inputs.ts";
import { fileFault, followed } from "../place/host-place.ts";
import type { Checked } from "../yaml/check.ts";
import type { Problem } from "../yaml/problem.ts";
import { exposureFault, writableFolders } from "./exposure.ts";
import type { WorkerDefinition } from "./worker.ts";

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
  const beside = npm === undefined ? [] : [npm, join(dirname(npm), "package.json")];
  return [...(pip === undefined ? [] : [pip]), ...beside];
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
