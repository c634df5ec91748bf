import { repositoryOf } from "../declarations/images/environment-inputs.ts";
import { IMAGES_DIR } from "../declarations/place/package-root.ts";
import type { Project } from "../declarations/project.ts";
import type { WorkerDefinition } from "../declarations/worker/worker.ts";
import { openEngine } from "../isolation/open-engine.ts";
import type { EnginePort } from "../isolation/port/engine.ts";
import { IMAGE_PREFIX, type ImageStatus, MADE_PREFIX, type OnImageProgress } from "../isolation/port/images.ts";
import { type ReachedParts, reachParts } from "../run/images/worker-images.ts";
import type { PartOfImage } from "../run/model/worker-images.ts";
import { openCorralFor } from "../run/open/corral.ts";
import { imagePlaceOf } from "../run/open/options.ts";
import { projectMark } from "../state/state-dir.ts";
import {
  removeEnvironment,
  removeUnfinished,
  type StoredEnvironment,
  storedEnvironments,
} from "../state/stored-environments.ts";
import { printableLine } from "../text/visible.ts";
import type { MachinePlace } from "./machine.ts";
import { RequestError, unknownError } from "./request-error.ts";

/** An image, or what is prepared on one. */
export interface ListedImage {
  /** As the other operations take it: `base`, `images/ocr`, `pip:requirements.txt`. */
  readonly name: string;
  /** `own`: comes with Corral. */
  readonly kind: "own" | PartOfImage["kind"];
  /** `stale`: not made of what a build would use now. */
  readonly state: "present" | "stale" | "missing";
  /** The Engine's name; null for what is not an image, or not made. */
  readonly tag: string | null;
  /** The Engine's id or, of what is not an image, its digest; null if it is missing. */
  readonly id: string | null;
  readonly sizeBytes: number | null;
  /** The workers of the project that use it. */
  readonly usedBy: readonly string[];
}

/** What is listed, built and removed belongs to this project; null: only the images that come with Corral. */
export interface ImagesOf extends MachinePlace {
  readonly project: Project | null;
}

/** The images of Corral, then those of the project's workers. Makes nothing, and asks no registry. */
export async function listImages(of: ImagesOf): Promise<ListedImage[]> {
  const engine = await openEngine(of);
  const own = (await engine.images.status(IMAGES_DIR)).map((status) => ownImage(status, of.project));
  if (of.project === null) return own;
  const parts = await projectParts(of.project, of, engine);
  const listed = parts.filter(({ kind, name }) => kind !== "named" || !own.some(({ tag }) => tag === name));
  return [...own, ...listed, ...(await superseded(of, engine, listed))];
}

function ownImage({ name, tag, state, id, sizeBytes }: ImageStatus, project: Project | null): ListedImage {
  const workers = [...(project?.workers.values() ?? [])];
  const usedBy = workers.filter(({ image, imageFrom }) => imageFrom === undefined && image === tag);
  return { name, kind: "own", state, tag, id, sizeBytes, usedBy: usedBy.map((worker) => worker.name) };
}

/** Each part of each worker once. */
async function projectParts(project: Project, machine: MachinePlace, engine: EnginePort): Promise<ListedImage[]> {
  const place = imagePlaceOf(project, engine.images, machine);
  const rows = new Map<string, ListedImage>();
  for (const worker of project.workers.values()) {
    const { parts } = await reachParts(worker, place, (step) => step.look());
    for (const part of parts) {
      const row = rowOf(part);
      const key = `${row.kind} ${row.name} ${row.id}`;
      const usedBy = [...(rows.get(key)?.usedBy ?? []), worker.name];
      rows.set(key, { ...row, usedBy });
    }
  }
  return [...rows.values()];
}

function rowOf({ kind, name, found }: ReachedParts["parts"][number]): ListedImage {
  const row = { name, kind, usedBy: [] };
  if (found === null) return { ...row, state: "missing", tag: null, id: null, sizeBytes: null };
  if ("reference" in found)
    return { ...row, state: "present", tag: found.reference, id: found.id, sizeBytes: found.sizeBytes };
  return { ...row, state: "present", tag: null, id: found.digest, sizeBytes: found.sizeBytes };
}

/** What was made for this project and is not what its workers would get now. */
async function superseded(
  { project, stateDir }: ImagesOf,
  engine: EnginePort,
  current: readonly ListedImage[],
): Promise<ListedImage[]> {
  const mark = project === null ? "" : projectMark(project.dir);
  const [made, prepared] = await Promise.all([engine.images.made(), storedEnvironments(stateDir)]);
  const rows = [
    ...made.filter((one) => one.project === mark),
    ...prepared.filter((one) => one.project === mark).map((one) => ({ ...one, tag: null, id: one.digest })),
  ];
  return rows
    .filter(({ id }) => !current.some((row) => row.id === id))
    .map(({ kind, name, tag, id, sizeBytes }) => ({ name, kind, state: "stale", tag, id, sizeBytes, usedBy: [] }));
}

export interface MadeNow {
  readonly name: string;
  readonly tag: string | null;
  readonly id: string | null;
  readonly sizeBytes: number | null;
  /** False if it was up to date already. */
  readonly built: boolean;
  readonly durationMs: number;
}

export interface MakeOptions {
  /** Absent: all. */
  readonly names?: readonly string[];
  readonly onProgress?: OnImageProgress;
  readonly signal?: AbortSignal;
}

/**
 * Builds, pulls and prepares what is missing or stale: all of Corral's and of the project's, or what `names` names.
 *
 * @throws RequestError UNKNOWN_IMAGE; ImageBuildError
 */
export async function buildImages(of: ImagesOf, options: MakeOptions): Promise<MadeNow[]> {
  const { names, onProgress = () => {}, signal } = options;
  const engine = await openEngine(of);
  const own = await engine.images.status(IMAGES_DIR);
  const ownNames = names?.filter((raw) => own.some(({ name }) => name === withoutPrefix(raw)));
  const further = names?.filter((raw) => !ownNames?.includes(raw));
  const parts = further?.length === 0 ? [] : await partsOfProject(of, engine);
  refuseUnknown(further ?? [], [...own.map(({ name }) => name), ...parts.map(({ name }) => name)]);
  const built: MadeNow[] = [];
  if (ownNames?.length !== 0) {
    const how = { imagesDir: IMAGES_DIR, env: of.engineEnv, onProgress, ...(signal && { signal }) };
    built.push(...(await engine.images.build({ ...how, ...(ownNames && { names: ownNames }) })));
  }
  const chosen = parts.filter(({ name, kind }) => kind !== "named" && (further?.includes(name) ?? true));
  return [...built, ...(await madeFor(chosen, of, { onProgress, ...(signal && { signal }) }))];
}

async function partsOfProject(of: ImagesOf, engine: EnginePort): Promise<ListedImage[]> {
  return of.project === null ? [] : await projectParts(of.project, of, engine);
}

/** With the same step as a run, so that a run finds what it needs. */
async function madeFor(
  chosen: readonly ListedImage[],
  of: ImagesOf,
  { onProgress = () => {}, signal = new AbortController().signal }: MakeOptions,
): Promise<MadeNow[]> {
  const { project } = of;
  if (project === null || chosen.length === 0) return [];
  await using corral = await openCorralFor(project, { stateDir: of.stateDir, engineEnv: of.engineEnv });
  const started = performance.now();
  const workers = new Set(chosen.flatMap(({ usedBy }) => usedBy));
  for (const name of workers) {
    const ready = await corral.environment.images.ready(project.workers.get(name) as WorkerDefinition, {
      owner: null,
      signal,
      onProgress,
    });
    if (ready.state === "ready") continue;
    const reason = ready.state === "refused" ? ready.violations.map(reasonOf).join("\n") : "it could not be made";
    throw new RequestError("IMAGE_NOT_MADE", name, `the image of ${name} is not there: ${reason}`);
  }
  const durationMs = Math.round(performance.now() - started);
  const now = await projectParts(project, of, await openEngine(of));
  return chosen.flatMap(({ kind, name, state }) =>
    now
      .filter((row) => row.kind === kind && row.name === name)
      .map(({ tag, id, sizeBytes }) => ({ name, tag, id, sizeBytes, built: state !== "present", durationMs })),
  );
}

function reasonOf(violation: object): string {
  return "reason" in violation ? String(violation.reason) : "the Engine does not have it";
}

/**
 * Pulls what a worker of the project declares, or any image of a registry; `digest` is what a worker's file should name.
 *
 * @throws ImageBuildError
 */
export async function pullImage(
  of: ImagesOf,
  name: string,
  { onProgress = () => {}, signal }: MakeOptions,
): Promise<{ readonly reference: string; readonly digest: string | null; readonly sizeBytes: number }> {
  const engine = await openEngine(of);
  const declared = [...(of.project?.workers.values() ?? [])].find(
    ({ image, imageFrom }) => imageFrom?.kind === "pull" && image === name,
  );
  const digested = declared?.imageFrom?.kind === "pull" ? declared.imageFrom.digest : null;
  const reference = digested === null ? name : `${repositoryOf(name)}@${digested}`;
  const found = await engine.images.pull(reference, { onProgress, ...(signal && { signal }) });
  const digest = found.digests.find((one) => one.startsWith(`${repositoryOf(name)}@`))?.split("@")[1] ?? null;
  return { reference: name, digest, sizeBytes: found.sizeBytes };
}

/** What `removeImages` would remove. */
export async function removableImages(of: ImagesOf, names: readonly string[] | "unused"): Promise<ListedImage[]> {
  const listed = (await listImages(of)).filter(({ kind }) => kind !== "own" && kind !== "named");
  if (names === "unused") return listed.filter(({ state }) => state === "stale");
  refuseUnknown(
    names,
    listed.map(({ name }) => name),
  );
  return listed.filter(({ name, state }) => state !== "missing" && names.includes(name));
}

/** @throws ImageBuildError, RequestError IMAGE_IN_USE if a cell still uses one; those before it are removed then */
export async function removeImages(of: ImagesOf, chosen: readonly ListedImage[]): Promise<void> {
  const { images } = await openEngine(of);
  for (const { kind, name, tag, id } of chosen) {
    if (tag !== null) await images.remove(tag);
    else if ((kind === "pip" || kind === "npm") && !(await removeEnvironment(of.stateDir, id ?? "")))
      throw new RequestError(
        "IMAGE_IN_USE",
        name,
        `${name} is in use by a running Corral; try again when that has ended`,
      );
  }
}

function refuseUnknown(names: readonly string[], known: readonly string[]): void {
  for (const raw of names) {
    if (raw.startsWith(`${MADE_PREFIX}/`))
      throw new RequestError(
        "UNKNOWN_IMAGE",
        raw,
        `${printableLine(raw, 200)} is what the Engine calls an image; use its name of \`corral images ls\``,
      );
    if (!known.includes(raw)) throw unknownError("UNKNOWN_IMAGE", "image", raw, [...new Set(known)]);
  }
}

function withoutPrefix(raw: string): string {
  return raw.startsWith(`${IMAGE_PREFIX}/`) ? raw.slice(IMAGE_PREFIX.length + 1) : raw;
}

/**
 * Removes those that no process has used for this long and that none uses now, and what dead processes left unfinished. A run
 * that needs one again prepares it again. Returns what was removed.
 */
export async function removeUnusedEnvironments(
  { stateDir }: Pick<MachinePlace, "stateDir">,
  {
    unusedMs,
    now = Date.now(),
    dryRun = false,
  }: { readonly unusedMs: number; readonly now?: number; readonly dryRun?: boolean },
): Promise<StoredEnvironment[]> {
  if (!dryRun) await removeUnfinished(stateDir);
  const removed: StoredEnvironment[] = [];
  for (const one of await storedEnvironments(stateDir)) {
    if (now - one.usedAt < unusedMs) continue;
    if (dryRun || (await removeEnvironment(stateDir, one.digest))) removed.push(one);
  }
  return removed;
}
