import { join } from "node:path";
import { stringify } from "yaml";
import type { CiFile, CiService } from "../../declarations/ci/ci-yaml.ts";
import type { CiNetwork } from "../../declarations/ci/tools.ts";
import type { DeclaredTexts } from "../../declarations/corral-file.ts";
import type { Environment } from "../../declarations/images/environment-inputs.ts";
import { PACKAGE_ROOT } from "../../declarations/place/package-root.ts";
import { LIMIT_NAMES, LIMITS, type Limits } from "../../sandbox/limits.ts";
import { type CiFetch, type CiPart, type CiStep, fetcherOf, imageOf, toolNamed, toolsOf } from "./plan-ci.ts";

/** The policies and the scripts of jobs. */
export const CI_FOLDER = "ci-run";

/** Folders of the host, absolute. */
export interface CiPlaces {
  /** Of one run of `corral ci`; it is removed at its end. */
  readonly run: string;
  /** Of all runs for this repository. An entry is a folder with the name of its key, which is never written twice. */
  readonly cache: string;
  readonly out: string;
}

/** Everything that is known before anything runs. */
export interface PreparedCi {
  readonly file: CiFile;
  readonly steps: readonly CiStep[];
  /** The head is the base: what it makes is kept for later runs. */
  readonly isTrusted: boolean;
  /** Of each step that fetches, by its name. */
  readonly fetchKeys: ReadonlyMap<string, string>;
  /** Of each part, by its name, in the order of its `cache`. */
  readonly cacheKeys: ReadonlyMap<string, readonly string[]>;
  /** Keys that the cache has. */
  readonly kept: ReadonlySet<string>;
  /** By name: `fetch.sh` and `job.sh`. */
  readonly scripts: ReadonlyMap<string, string>;
}

interface Place {
  readonly root: string;
  readonly mode: "ro" | "rw";
  readonly create?: true;
  readonly stage?: true;
  readonly discard?: true;
  readonly suffixes?: readonly string[];
  readonly max_file_bytes?: string;
}

/** Declarations have no aliases. */
const PLAIN = { lineWidth: 0, aliasDuplicateObjects: false };
const REPORT_SUFFIXES = [".xml", ".info", ".json", ".lcov", ".txt"];

/** True: nothing is to be fetched for it. */
export function isKept({ kept, fetchKeys }: Pick<PreparedCi, "kept" | "fetchKeys">, { name }: CiFetch): boolean {
  return kept.has(fetchKeys.get(name) ?? "");
}

/** Where a step that fetches leaves its lock files for its cell. */
export function lockFolder({ run }: Pick<CiPlaces, "run">, index: number): string {
  return join(run, "lock", String(index));
}

/** One project with a worker for each step. A run whose head is not the base has no place of the cache that can be written. */
export function ciTexts(prepared: PreparedCi, places: CiPlaces): DeclaredTexts {
  const { steps, file } = prepared;
  const paths: Record<string, Place> = {
    work: { root: join(places.run, "work"), mode: "rw", create: true, discard: true },
  };
  const workers = new Map<string, string>();
  for (const [index, step] of steps.entries()) {
    const worker =
      step.kind === "fetch"
        ? fetchWorker(step, index, paths, prepared, places)
        : partWorker(step, index, paths, prepared, places);
    if (worker !== null) workers.set(step.name, workerText(worker));
    if (step.kind !== "part") continue;
    for (const [at, service] of [...step.job.services.values()].entries())
      workers.set(serviceWorkerName(step.job, at, steps), workerText(serviceWorker(service, file)));
  }
  const networks = steps.flatMap((step, index) => {
    return step.kind === "fetch" ? [networkOf(step, file, lockFolder(places, index))] : [];
  });
  const [allow, packages] = (["allow", "packages"] as const).map((key) => distinct(networks.map((one) => one[key])));
  const corral = {
    version: 1,
    policy: "ci",
    policies: join(PACKAGE_ROOT, "templates", CI_FOLDER, "policies"),
    sandbox: { paths, ...(networks.length === 0 ? {} : { network: { allow, packages } }) },
    approval: { mode: "auto_deny", inbox: "closed" },
  };
  return { corral: stringify(corral, PLAIN), workers };
}

function workerText(worker: object): string {
  return `---\n${stringify(worker, PLAIN)}---\n`;
}

/** No step has it. */
function serviceWorkerName({ name }: CiPart["job"], at: number, steps: readonly CiStep[]): string {
  let own = `${name}.service-${at + 1}`;
  while (steps.some((step) => step.name === own)) own += "_";
  return own;
}

/** It has no file at all: what it does is the base's alone. */
function serviceWorker({ image, environment, run, env }: CiService, { addresses }: Pick<CiFile, "addresses">): object {
  const isAnywhere = addresses.length === 0 || environment.addresses !== undefined;
  const needsAddresses = !isAnywhere && (environment.pip ?? environment.npm) !== undefined;
  return {
    description: "A server beside a job of the same ci.yaml",
    ...(image === null ? {} : { image }),
    ...(Object.keys(environment).length === 0
      ? {}
      : { environment: { ...environment, ...(needsAddresses ? { addresses } : {}) } }),
    ...(run === null ? {} : { command: ["sh", "-eu", "-c", run] }),
    env: Object.fromEntries(env),
  };
}

/** Of a project that has what each of its steps has. */
function distinct(lists: readonly (readonly unknown[] | undefined)[]): unknown[] {
  const texts = lists.flatMap((list) => (list ?? []).map((one) => JSON.stringify(one)));
  return [...new Set(texts)].map((text) => JSON.parse(text));
}

/** The network of a step that fetches. A name of a lock file becomes its path. */
function networkOf({ tool, job }: CiFetch, file: Pick<CiFile, "addresses">, lock: string): CiNetwork {
  if (tool === null) {
    const { packages = [], lockfiles = [], ...rest } = job.fetcher?.network ?? {};
    const presets = packages.map((one) => (typeof one === "string" ? presetWith(one, file) : one));
    return { ...rest, packages: presets, lockfiles: lockfiles.map((name) => join(lock, name)) };
  }
  const { packages, lockFiles } = toolNamed(tool);
  const isBounded = packages !== "go";
  return {
    packages: packages === null ? [] : [presetWith(packages, file)],
    ...(isBounded ? { lockfiles: [join(lock, lockFiles.at(-1) ?? "")] } : {}),
  };
}

function presetWith(kind: string, { addresses }: Pick<CiFile, "addresses">) {
  return addresses.length === 0 ? kind : { kind, addresses };
}

/** Null: the cache has its packages. */
function fetchWorker(
  step: CiFetch,
  index: number,
  paths: Record<string, Place>,
  prepared: PreparedCi,
  places: CiPlaces,
): object | null {
  const { tool, job } = step;
  const key = prepared.fetchKeys.get(step.name) ?? "";
  const packages = `packages-${index}`;
  if (isKept(prepared, step)) {
    paths[packages] = { root: join(places.cache, key), mode: "ro" };
    return null;
  }
  const root = prepared.isTrusted ? join(places.cache, key) : join(places.run, packages);
  const bounds = { suffixes: [".tar"], max_file_bytes: "2g" };
  paths[packages] = { root, mode: "rw", create: true, stage: true, ...bounds };
  const lock = `lock-${index}`;
  paths[lock] = { root: lockFolder(places, index), mode: "ro" };
  const { image, environment } = fetcherOf(step);
  const own = tool === null ? job.fetcher : null;
  const words = ["fetch", tool ?? "worker", `/${lock}`, `/${packages}`, ...(own?.command ?? [])];
  return {
    description: "Fetches what a lock file names. It runs nothing of the head.",
    image,
    ...writtenEnvironment([environment], environment.addresses ?? prepared.file.addresses),
    command: ["sh", "-eu", "-c", script(prepared, "fetch.sh"), ...words],
    ...(own === null ? {} : { env: own.env, limits: writtenLimits(own.limits) }),
    sandbox: {
      zones: [{ name: lock }, writable("work"), writable(packages)],
      network: networkOf(step, prepared.file, lockFolder(places, index)),
    },
    policy: "registry",
  };
}

function writable(name: string) {
  return { name, mode: "rw", approval: "pre_approved" };
}

function partWorker(
  step: CiPart,
  index: number,
  paths: Record<string, Place>,
  prepared: PreparedCi,
  places: CiPlaces,
): object {
  const { job, values, fetches } = step;
  const zones: object[] = [writable("work")];
  const packages = prepared.steps.flatMap((one, at) => {
    if (one.kind !== "fetch" || !fetches.includes(one.name)) return [];
    zones.push({ name: `packages-${at}` });
    return [`${one.tool ?? `worker.${one.job.name}`}:/packages-${at}`];
  });
  const out = (kind: "reports" | "artifacts", patterns: readonly string[], bounds: Partial<Place>): string => {
    const name = `${kind}-${index}`;
    if (patterns.length === 0) return "/work";
    paths[name] = { root: join(places.out, step.name, kind), mode: "rw", create: true, stage: true, ...bounds };
    zones.push(writable(name));
    return `/${name}`;
  };
  const { junit, coverage } = job.reports;
  const reports = [...junit, ...coverage];
  const reportsAt = out("reports", reports, { suffixes: REPORT_SUFFIXES, max_file_bytes: "8m" });
  const artifactsAt = out("artifacts", job.artifacts, { max_file_bytes: "1g" });
  const caches = job.cache.flatMap(({ path }, at) => {
    const key = prepared.cacheKeys.get(step.name)?.[at] ?? "";
    const name = `cache-${index}-${at}`;
    const root = join(places.cache, key);
    if (prepared.kept.has(key)) {
      paths[name] = { root, mode: "ro" };
      zones.push({ name });
    } else if (prepared.isTrusted) {
      paths[name] = { root, mode: "rw", create: true, stage: true, suffixes: [".tar"], max_file_bytes: "2g" };
      zones.push(writable(name));
    } else return [];
    return [`/${name}:${path}`];
  });
  const words = [packages.join(" "), job.dir || ".", job.run ?? "", reports.join(" "), reportsAt];
  const further = [job.artifacts.join(" "), artifactsAt, caches.join(" ")];
  const axes = Object.entries(values).map(([axis, value]) => [`MATRIX_${axis.toUpperCase()}`, value]);
  return {
    description: "Runs a command of the base on the files of the head, without a network",
    image: imageOf(step, prepared.steps),
    ...environmentOf(step, prepared),
    command: ["sh", "-eu", "-c", script(prepared, "job.sh"), "job", ...words, ...further],
    sandbox: { zones },
    env: { CI: "true", ...Object.fromEntries(axes), ...Object.fromEntries(job.env) },
    limits: writtenLimits(job.limits),
    ...servicesOfPart(job, prepared),
  };
}

function servicesOfPart(job: CiPart["job"], { steps }: PreparedCi) {
  if (job.services.size === 0) return {};
  const services = [...job.services].map(([name, { ports, ready, readyWithinMs }], at) => {
    const worker = serviceWorkerName(job, at, steps);
    return [name, { worker, ports, ...(ready === null ? {} : { ready }), ready_within: `${readyWithinMs}ms` }] as const;
  });
  return { services: Object.fromEntries(services) };
}

function script({ scripts }: PreparedCi, name: string): string {
  return scripts.get(name) ?? "";
}

/** What the job says, what its tools have, and what the values of its matrix mean to them. */
function environmentOf(step: CiPart, { steps, file }: PreparedCi) {
  const all: Environment[] = [step.job.environment];
  for (const tool of toolsOf(step, steps).map(toolNamed)) {
    // A job that names an image has brought what it needs.
    if (step.job.image === null) all.push(tool.environment);
    const value = tool.axis === null ? undefined : step.values[tool.axis.name];
    if (tool.axis !== null && value !== undefined && step.job.image === null) all.push(tool.axis.environmentOf(value));
  }
  return writtenEnvironment(all, step.job.environment.addresses ?? file.addresses);
}

/** All lists as one. */
function writtenEnvironment(all: readonly Environment[], addresses: readonly string[]) {
  const kinds = ["apt", "pip", "npm"] as const;
  const lists = kinds.map((kind) => [kind, [...new Set(all.flatMap((one) => one[kind] ?? []))].sort()] as const);
  const some = lists.filter(([, list]) => list.length > 0);
  if (some.length === 0) return {};
  const needsAddresses = some.some(([kind]) => kind !== "apt") && addresses.length > 0;
  return { environment: { ...Object.fromEntries(some), ...(needsAddresses ? { addresses } : {}) } };
}

function writtenLimits(limits: Limits) {
  const written = LIMIT_NAMES.flatMap((name) => {
    const value = limits[name];
    const { key, unit } = LIMITS[name];
    return value === undefined ? [] : [[key, unit === "duration" ? `${value}ms` : value] as const];
  });
  return Object.fromEntries(written);
}
