import { type CiCache, type CiFile, type CiJob, partsOf } from "../../declarations/ci/ci-yaml.ts";
import { CI_TOOLS, type CiFetcher, type CiTool, type CiToolName } from "../../declarations/ci/tools.ts";
import { sha256 } from "../../platform/sha256.ts";
import { RequestError, unknownError } from "../request-error.ts";

/** A command of the base on the files of the head: one job with one set of values of its matrix. */
export interface CiPart {
  readonly kind: "part";
  /** Unique among all steps; the name of its worker, and of its folder of results. */
  readonly name: string;
  readonly title: string;
  readonly job: CiJob;
  readonly values: Readonly<Record<string, string>>;
  /** Names of steps. */
  readonly needs: readonly string[];
  /** Names of the steps that fetch its packages. */
  readonly fetches: readonly string[];
}

/** Fetches the packages of one lock file. It runs nothing of the head. */
export interface CiFetch {
  readonly kind: "fetch";
  readonly name: string;
  readonly title: string;
  /** Null: a worker of the base fetches. */
  readonly tool: CiToolName | null;
  readonly job: CiJob;
  readonly dir: string;
  readonly lock: "head" | "base";
  readonly needs: readonly string[];
}

export type CiStep = CiPart | CiFetch;

/** What a caller wants of all that `ci.yaml` has; absent: everything. */
export interface CiSelection {
  /** Names of jobs. What they need runs too. */
  readonly jobs?: readonly string[];
  /** Values of axes. A job whose matrix does not have the axis is not left out. */
  readonly matrix?: Readonly<Record<string, string>>;
}

export const toolNamed = (name: CiToolName): CiTool => CI_TOOLS[name];

/** Where it fetches, and what it reads. */
export function fetcherOf({ tool, job }: CiFetch): CiFetching {
  const { fetcher } = job;
  if (tool !== null) {
    const { image, environment, lockFiles, optional = [], isFetchedByTool } = toolNamed(tool);
    return { image, environment: isFetchedByTool ? environment : {}, lockFiles, optional };
  }
  if (fetcher === null) throw new Error(`the worker of the job ${job.name} was not read`);
  return { ...fetcher, optional: [] };
}

interface CiFetching extends Pick<CiFetcher, "image" | "environment" | "lockFiles"> {
  /** Those of its lock files that a commit may not have. */
  readonly optional: readonly string[];
}

/**
 * The steps in an order in which each comes after what it needs.
 *
 * @throws RequestError UNKNOWN_WORKER for a job, ARGUMENTS for a value that no job has
 */
export function planCi({ jobs }: CiFile, { jobs: asked, matrix = {} }: CiSelection = {}): readonly CiStep[] {
  const wanted = asked === undefined ? [...jobs.keys()] : withNeeds(asked, jobs);
  refuseUnknownValues([...jobs.values()], matrix);
  const steps = new Map<string, CiStep>();
  const fetchOf = new Map<string, CiFetch>();
  const stepsOf = new Map<string, readonly string[]>();
  const add = <Step extends CiStep>(step: Step): Step => {
    steps.set(step.name, step);
    return step;
  };
  const fetched = (tool: CiToolName | null, job: CiJob): string => {
    const { dir, lock, name, run, needs } = job;
    const key = JSON.stringify([tool ?? name, tool === null, dir, lock]);
    const known = fetchOf.get(key);
    if (known !== undefined) return known.name;
    const own = run === null ? name : `fetch.${tool}${fetchOf.size === 0 ? "" : `.${fetchOf.size}`}`;
    const before = run === null ? needs.flatMap((need) => stepsOf.get(need) ?? []) : [];
    const step = add({ kind: "fetch", name: own, title: own, tool, job, dir, lock, needs: before } as const);
    fetchOf.set(key, step);
    return own;
  };
  for (const job of inOrder(wanted, jobs)) {
    const isFetched = job.uses !== null && toolNamed(job.uses).lockFiles.length > 0;
    const own = isFetched || (job.trust === "base" && job.worker !== null) ? [fetched(job.uses, job)] : [];
    if (job.trust === "base") {
      stepsOf.set(job.name, own);
      continue;
    }
    const before = job.needs.flatMap((need) => stepsOf.get(need) ?? []);
    const fetches = [...new Set([...before.filter((name) => steps.get(name)?.kind === "fetch"), ...own])];
    const parts = partsOf(job).filter((values) =>
      Object.entries(matrix).every(([axis, value]) => (values[axis] ?? value) === value),
    );
    const names = parts.map((values, index) => {
      const shown = Object.entries(values).map(([axis, value]) => `${axis}=${value}`);
      const short = [job.name, ...Object.values(values)].join(".");
      const name =
        short.length <= 60 && !steps.has(short) && !/\.(json|xml|sarif)$/.test(short)
          ? short
          : `${job.name}.part-${index + 1}`;
      const title = shown.length === 0 ? job.name : `${job.name} (${shown.join(", ")})`;
      const needs = [...new Set([...before, ...own])];
      return add({ kind: "part", name, title, job, values, needs, fetches } as const).name;
    });
    stepsOf.set(job.name, names);
  }
  return [...steps.values()];
}

function withNeeds(asked: readonly string[], jobs: CiFile["jobs"]): readonly string[] {
  const found = new Set<string>();
  const visit = (name: string): void => {
    const job = jobs.get(name);
    if (job === undefined) throw unknownError("UNKNOWN_WORKER", "job", name, [...jobs.keys()].sort(), "there is none");
    if (found.has(name)) return;
    found.add(name);
    job.needs.forEach(visit);
  };
  asked.forEach(visit);
  return [...jobs.keys()].filter((name) => found.has(name));
}

/** `ci.yaml` has no circle. */
function inOrder(wanted: readonly string[], jobs: CiFile["jobs"]): readonly CiJob[] {
  const ordered = new Map<string, CiJob>();
  const visit = (name: string): void => {
    const job = jobs.get(name);
    if (job === undefined || ordered.has(name)) return;
    job.needs.forEach(visit);
    ordered.set(name, job);
  };
  wanted.forEach(visit);
  return [...ordered.values()];
}

function refuseUnknownValues(jobs: readonly CiJob[], matrix: Readonly<Record<string, string>>): void {
  for (const [axis, value] of Object.entries(matrix)) {
    const known = [...new Set(jobs.flatMap((job) => job.matrix.get(axis) ?? []))];
    if (known.includes(value)) continue;
    const have = known.length === 0 ? `no job has the axis ${axis}` : `${axis} is one of ${known.join(", ")}`;
    throw new RequestError("ARGUMENTS", `${axis}=${value}`, `no job has the value ${axis}=${value}: ${have}`);
  }
}

/** The image of a part. */
export function imageOf({ job, values, fetches }: CiPart, steps: readonly CiStep[]): string {
  const asked = job.image?.replaceAll(/\{([^}]*)\}/g, (_, axis: string) => values[axis] ?? "");
  const tool = toolsOf({ job, fetches }, steps)[0];
  return asked ?? (tool === undefined ? "corral/base" : toolNamed(tool).image);
}

/** The tools of a part: its own, and those of what it needs. */
export function toolsOf(
  { job, fetches }: Pick<CiPart, "job" | "fetches">,
  steps: readonly CiStep[],
): readonly CiToolName[] {
  const fetched = steps.flatMap((step) =>
    step.kind === "fetch" && step.tool !== null && fetches.includes(step.name) ? [step.tool] : [],
  );
  return [...new Set([...(job.uses === null ? [] : [job.uses]), ...fetched])];
}

/** The lock files of a step as they are in its commit, by name; null: the commit has no such file. */
export type LockTexts = ReadonlyMap<string, Buffer | null>;

/** Under which name the packages of a lock file are kept: whatever is different makes another one. */
export function fetchKey(step: CiFetch, texts: LockTexts, script: string): string {
  const contents = [...texts].map(([name, text]) => [name, text === null ? null : sha256(text)]);
  return sha256(JSON.stringify(["fetch", step.tool, step.dir, fetcherOf(step), sha256(script), contents]));
}

/** The same for a folder that a job keeps. `contents`: of the files that its key names. */
export function cacheKey(part: CiPart, image: string, { path, key }: CiCache, contents: LockTexts): string {
  const { job, values } = part;
  const files = key.map((name) => [name, contents.get(name) ?? null]).map(([name, text]) => [name, digestOf(text)]);
  return sha256(JSON.stringify(["cache", job.name, job.dir, image, job.environment, values, path, files]));
}

function digestOf(text: string | Buffer | null | undefined): string | null {
  return text === null || text === undefined ? null : sha256(text);
}
