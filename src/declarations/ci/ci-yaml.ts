import { z } from "zod";
import type { Limits } from "../../sandbox/limits.ts";
import { present } from "../../text/present.ts";
import { type Environment, environmentYaml } from "../images/environment-inputs.ts";
import { named, nameFault, variableNameFault } from "../terms/names.ts";
import { addressList, limits } from "../terms/terms.ts";
import { MAX_SERVICES, refuseSamePort, serviceAccess, serviceNameFault } from "../worker/worker-yaml.ts";
import { type Checked, checkShape, type KeyPath, parseYaml } from "../yaml/document.ts";
import type { Problem } from "../yaml/problem.ts";
import { byKind, map, namedMap, nearest } from "../yaml/shape.ts";
import { CI_SERVERS, type CiFetcher, type CiServer, type CiToolName, ciServers, ciTools } from "./tools.ts";

/** One job of `ci.yaml`, as in docs/ci.md. */
export interface CiJob {
  readonly name: string;
  /** Whose packages it has; null: none. */
  readonly uses: CiToolName | null;
  /** A worker of the base, which says what the job does not say; null: none. */
  readonly worker: string | null;
  /** What its worker does if it fetches; null: it does not, or the worker was not read yet. */
  readonly fetcher: CiFetcher | null;
  /** What its worker gets of a commit; empty if it does not fetch. */
  readonly lockFiles: readonly string[];
  /** `base`: it fetches packages and runs nothing of the head. */
  readonly trust: "head" | "base";
  readonly needs: readonly string[];
  /** Lines of a shell; null for one that only fetches. */
  readonly run: string | null;
  /** May hold `{axis}`. Null: that of its tool. */
  readonly image: string | null;
  readonly environment: Environment;
  /** From the root of the repository; empty: the root. */
  readonly dir: string;
  /** Whose lock file is fetched. */
  readonly lock: "head" | "base";
  readonly matrix: ReadonlyMap<string, readonly string[]>;
  readonly env: ReadonlyMap<string, string>;
  readonly limits: Limits;
  readonly reports: { readonly junit: readonly string[]; readonly coverage: readonly string[] };
  readonly artifacts: readonly string[];
  readonly cache: readonly CiCache[];
  readonly services: ReadonlyMap<string, CiService>;
}

/** A server beside each run of a job. It is the base's alone: it has no file of the head. */
export interface CiService {
  /** Null: `corral/base`. */
  readonly image: string | null;
  readonly environment: Environment;
  /** Lines of a shell; null: the image's own command. */
  readonly run: string | null;
  readonly env: ReadonlyMap<string, string>;
  readonly ports: readonly number[];
  readonly ready: readonly string[] | null;
  readonly readyWithinMs: number;
}

/** A folder that jobs of the base keep for later ones. */
export interface CiCache {
  readonly path: string;
  /** Files of the head; their contents choose which one is read. */
  readonly key: readonly string[];
}

/** `ci.yaml`, checked: its needs are there, and lead in no circle. */
export interface CiFile {
  /** The only addresses at which registries may be; empty: any that is public. */
  readonly addresses: readonly string[];
  readonly jobs: ReadonlyMap<string, CiJob>;
}

export const CI_FILE = "ci.yaml";

const MAX_JOBS = 100;
const MAX_AXES = 6;
const MAX_VALUES = 32;
/** Runs of one job. */
const MAX_PARTS = 64;
/** Runs of all jobs. */
const MAX_ALL_PARTS = 256;

const name = z.string().superRefine((raw, context) => {
  const message = jobNameFault(raw);
  if (message !== null) context.addIssue({ code: "custom", message });
});

/** It is part of names of workers and folders, with the values of its matrix. */
function jobNameFault(raw: string): string | null {
  return /^[A-Za-z][A-Za-z0-9_-]{0,30}$/.test(raw)
    ? null
    : "must be at most 31 letters, digits, `_` or `-`, and begin with a letter";
}

/** A path in the repository that leads nowhere else. A shell reads none of its characters. */
const inside = (what: string) =>
  z
    .string()
    .max(500)
    .refine(
      (raw) => /^[\w.+@*?-]+(\/[\w.+@*?-]+)*$/.test(raw) && !raw.split("/").some((part) => /^\.\.?$/.test(part)),
      `must be ${what}: letters, digits and \`. _ - + @\`, without \`..\``,
    );

const plainPath = inside("a path in the repository").refine(
  (raw) => !/[*?]/.test(raw),
  "must be one path, without `*` and `?`",
);
const pattern = inside("a path or a pattern such as `reports/*.xml`");
const patterns = byKind(
  { text: pattern.transform((only) => [only]), list: z.array(pattern).max(50) },
  "must be a pattern or a list of patterns, such as `reports/*.xml`",
);

const value = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,30}$/, "must be at most 31 letters, digits, `.`, `_` or `-`");
const axis = z
  .array(value)
  .min(1)
  .max(MAX_VALUES)
  .refine((all) => new Set(all).size === all.length, "names a value twice");

function axisFault(raw: string): string | null {
  return /^[a-z][a-z0-9_]{0,20}$/.test(raw)
    ? null
    : "must be at most 21 small letters, digits or `_`, and begin with a letter";
}

const lines = byKind(
  { text: z.string().min(1).max(20_000), list: z.array(z.string().max(4000)).min(1).max(200) },
  "must be a command of a shell, or a list of them",
).transform((raw) => (typeof raw === "string" ? raw : raw.join("\n")));

const text = z
  .string()
  .max(8000)
  .refine((raw) => !raw.includes("\0"), "must not contain a NUL character");

/** A file that names the packages would be read from the work tree, which is not the base's. */
const environment = environmentYaml(addressList).refine(
  ({ pip, npm }) => typeof pip !== "string" && typeof npm !== "string",
  "must have lists of packages; what a lock file of the repository names comes with `uses`",
);

const image = z
  .string()
  .regex(/^[a-z0-9][A-Za-z0-9._/:@{}-]{0,254}$/, "must be the name of an image such as `corral/base`");

const service = map({
  uses: z.enum(ciServers()).optional(),
  image: image.refine((raw) => !/[{}]/.test(raw), "must be one image: a service has no matrix").optional(),
  environment: environment.optional(),
  run: lines.optional(),
  env: namedMap(text, variableNameFault, 100).prefault({}),
  ...serviceAccess,
  ports: serviceAccess.ports.optional(),
})
  .refine(({ uses, ...own }) => uses === undefined || !(own.image ?? own.run ?? own.environment), {
    message: "is packaged: leave out `image`, `environment` and `run`, or `uses`",
    path: ["uses"],
  })
  .refine(({ uses, image, run }) => uses ?? image ?? run, "needs `uses`, or an `image`, or `run`")
  .refine(({ uses, ports }) => uses ?? ports, { message: "must name at least one port", path: ["ports"] })
  .transform(({ uses, image = null, environment: asked, run = null, env, ports, ready, ready_within }): CiService => {
    const packaged: CiServer | null = uses === undefined ? null : CI_SERVERS[uses];
    return {
      image,
      environment: present(packaged?.environment ?? asked ?? {}),
      run: packaged?.run ?? run,
      env,
      ports: ports ?? packaged?.ports ?? [],
      ready: ready ?? packaged?.ready ?? null,
      readyWithinMs: ready_within,
    };
  });

/** What is known of other tools is said, and nothing is guessed. */
const tool = z.enum(ciTools(), {
  error: ({ input }) =>
    input === "apt"
      ? "has no packaged worker for apt, which has no lock file: name packages of Debian in `environment: { apt: [NAME] }`"
      : undefined,
});

const job = map({
  uses: tool.optional(),
  worker: named(nameFault).optional(),
  lock_files: z.array(plainPath).min(1).max(20).optional(),
  trust: z.enum(["head", "base"]).default("head"),
  needs: z.array(name).max(MAX_JOBS).default([]),
  run: lines.optional(),
  image: image.optional(),
  environment: environment.optional(),
  dir: plainPath.default(""),
  lock: z.enum(["head", "base"]).default("head"),
  matrix: namedMap(axis, axisFault, MAX_AXES).prefault({}),
  env: namedMap(text, variableNameFault, 100).prefault({}),
  limits: limits.prefault({}),
  reports: map({ junit: patterns.default([]), coverage: patterns.default([]) }).prefault({}),
  artifacts: patterns.default([]),
  cache: z
    .array(map({ path: plainPath, key: z.array(plainPath).min(1).max(20) }))
    .max(8)
    .default([]),
  services: namedMap(service, serviceNameFault, MAX_SERVICES).superRefine(refuseSamePort).prefault({}),
});

export const ciYaml = map({
  version: z.literal(1),
  addresses: addressList.optional(),
  jobs: namedMap(job, jobNameFault, MAX_JOBS),
});

/** Every mistake at its place; `shown`: the file as a person knows it. */
export function parseCiYaml(source: string, shown: string): Checked<CiFile> {
  const parsed = parseYaml(source, shown);
  if (!parsed.ok) return parsed;
  const { document } = parsed;
  const checked = checkShape(document, ciYaml);
  if (!checked.ok) return checked;
  const jobs = new Map(
    [...checked.value.jobs].map(([key, raw]) => {
      const { uses = null, worker = null, lock_files: lockFiles = [], run = null, image = null, ...more } = raw;
      const { environment = {}, ...rest } = more;
      const own = { name: key, uses, worker, fetcher: null, lockFiles, run, image, environment: present(environment) };
      return [key, { ...own, ...rest } satisfies CiJob];
    }),
  );
  const faults: Fault[] = [...jobs.values()].flatMap((one) => [...jobFaults(one, jobs)]);
  const problems: Problem[] = [...faults, ...circles(jobs), ...bombs(jobs)].map(([path, message]) =>
    document.problemAt(["jobs", ...path], message),
  );
  if (jobs.size === 0) problems.push(document.problemAt(["jobs"], "must name at least one job"));
  if (problems.length > 0) return { ok: false, problems };
  return { ok: true, value: { addresses: checked.value.addresses ?? [], jobs } };
}

type Fault = readonly [path: KeyPath, message: string];

function* jobFaults(one: CiJob, jobs: ReadonlyMap<string, CiJob>): Generator<Fault> {
  const { name: key, uses, run, trust, needs, image, matrix, services } = one;
  for (const [index, need] of needs.entries()) {
    const found = jobs.get(need);
    const known = [...jobs.keys()];
    if (found === undefined)
      yield [[key, "needs", index], `there is no job \`${need}\`${nearest(need, known) ?? `; there are: ${known}`}`];
    else if (trust === "base" && found.trust !== "base")
      yield [[key, "needs", index], `\`${need}\` runs the head's code, and this job is of \`trust: base\``];
  }
  const { worker, lockFiles } = one;
  if (run === null && uses === null && worker === null)
    yield [[key], "needs `run`, a command; or `uses` with `trust: base`, to fetch; or `worker`"];
  if (run === null && worker === null && trust !== "base")
    yield [[key], "only fetches packages: write `trust: base`, since it runs nothing of the head; or write `run`"];
  if (run !== null && trust === "base")
    yield [[key, "trust"], "can only be `base` without `run`: a command runs what the head has"];
  if (trust === "base" && uses !== null && worker !== null)
    yield [[key, "worker"], "fetches in place of `uses`; leave one of them out"];
  const isFetcher = trust === "base" && worker !== null;
  if (isFetcher !== lockFiles.length > 0)
    yield [
      [key, ...(isFetcher ? [] : ["lock_files"])],
      isFetcher
        ? "needs `lock_files`: the files that its worker gets, and by whose contents its packages are kept"
        : "belongs to a job with `worker` and `trust: base`",
    ];
  if (trust === "base" && services.size > 0) yield [[key, "services"], "belongs to a job with `run`"];
  if (trust === "base" && matrix.size > 0) yield [[key, "matrix"], "belongs to a job with `run`"];
  for (const [, used = ""] of (image ?? "").matchAll(/\{([^}]*)\}?/g))
    if (!matrix.has(used)) yield [[key, "image"], `\`{${used}}\` is no axis of the matrix`];
}

/** A job that needs itself, through others or not. */
function* circles(jobs: ReadonlyMap<string, CiJob>): Generator<Fault> {
  const done = new Set<string>();
  const ready = (one: CiJob): boolean => one.needs.every((need) => done.has(need) || !jobs.has(need));
  for (let before = -1; before < done.size; ) {
    before = done.size;
    for (const one of jobs.values()) if (ready(one)) done.add(one.name);
  }
  const left = [...jobs.keys()].filter((key) => !done.has(key));
  const [first] = left;
  if (first !== undefined) yield [[first, "needs"], `leads in a circle: ${left.join(", ")} wait for each other`];
}

/** Counted before any part is made. */
function* bombs(jobs: ReadonlyMap<string, CiJob>): Generator<Fault> {
  let all = 0;
  for (const { name: key, matrix } of jobs.values()) {
    const parts = [...matrix.values()].reduce((product, values) => product * values.length, 1);
    all += parts;
    if (parts > MAX_PARTS) yield [[key, "matrix"], `makes ${parts} runs; at most ${MAX_PARTS} are allowed`];
    else if (all > MAX_ALL_PARTS && all - parts <= MAX_ALL_PARTS)
      yield [[key, "matrix"], `is one too many: all jobs together may have at most ${MAX_ALL_PARTS} runs`];
  }
}

/** The values of each run of a job, in the order of its matrix. */
export function partsOf({ matrix }: Pick<CiJob, "matrix">): readonly Readonly<Record<string, string>>[] {
  let parts: Readonly<Record<string, string>>[] = [{}];
  for (const [key, values] of matrix) parts = parts.flatMap((part) => values.map((one) => ({ ...part, [key]: one })));
  return parts;
}
