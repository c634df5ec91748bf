import { chownSync, lstatSync, mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { mkdtemp, readdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type Docker from "dockerode";
import type { Approver } from "../../src/approval/approver.ts";
import { loadProject } from "../../src/declarations/project.ts";
import { removeTree } from "../../src/files/host/system-program.ts";
import type { RunEvent, RunResult } from "../../src/index.ts";
import { connect } from "../../src/isolation/engine/open.ts";
import type { Plan } from "../../src/isolation/plan/plan.ts";
import type { EnginePort } from "../../src/isolation/port/engine.ts";
import type { NetworkHost } from "../../src/run/model/environment.ts";
import type { Attachment } from "../../src/run/model/job.ts";
import { type Corral, openCorral, openCorralFor } from "../../src/run/open/corral.ts";
import { run } from "../../src/run/run.ts";
import { giveGate } from "../tiers/give-gate.ts";

/** The user that cells run as where nothing else is said. */
export const WORKER_UID = 65532;

/** A worker's front matter; JSON is YAML. */
export type WorkerSpec = Readonly<Record<string, unknown>>;

export interface ProjectSpec {
  readonly workers: Readonly<Record<string, WorkerSpec>>;
  /** Folders of the project by zone name; all are made, empty and of the worker's user. */
  readonly zones?: Readonly<Record<string, "ro" | "rw">>;
  /** By path below the project. */
  readonly files?: Readonly<Record<string, string>>;
  /** Symbolic links: what each says, by path below the project. */
  readonly links?: Readonly<Record<string, string>>;
  /** What else stands in `corral.yaml`, and in its `sandbox`. */
  readonly yaml?: Readonly<Record<string, unknown>>;
  readonly sandbox?: Readonly<Record<string, unknown>>;
  readonly policy?: string;
}

export interface RunOptions {
  readonly input?: unknown;
  readonly attachments?: readonly Attachment[];
  readonly policy?: string;
  readonly learnsNetwork?: boolean;
  readonly appliesFailed?: boolean;
  readonly signal?: AbortSignal;
}

/** A project of its own in a temporary folder, open on the Engine. Disposing removes all of it. */
export interface ProjectFixture extends AsyncDisposable {
  readonly dir: string;
  readonly stateDir: string;
  readonly corral: Corral;
  /** The Engine's own client: to see, and to change, what Corral made there. Throws if the engine is in memory. */
  readonly docker: Docker;
  readonly events: readonly RunEvent[];
  run(worker: string, options?: RunOptions): Promise<RunResult>;
  /** The plan of the one run of this worker that began. */
  planOf(worker: string): Plan;
  /** Settles when this worker has printed this text on its standard output. */
  printed(worker: string, text: string): Promise<void>;
  /** Everything of this project's runs that is still there: cells, volumes, sockets. */
  traces(): Promise<string[]>;
}

export interface OpenFixtureOptions {
  readonly engineEnv?: Readonly<Record<string, string | undefined>>;
  readonly approvalMode?: "interactive" | "approve_all" | "auto_deny";
  readonly person?: Approver;
  readonly overlays?: boolean;
  readonly networkHost?: Partial<NetworkHost>;
  /** In place of the real Engine. */
  readonly engine?: (stateDir: string) => Promise<EnginePort>;
}

/** A shell command for a worker. */
export const sh = (script: string): string[] => ["sh", "-c", script];
export const python = (script: string): string[] => ["python3", "-c", script];

/** A writable zone as a worker asks for it, agreed to beforehand. */
export const writable = (name: string) => ({ name, mode: "rw", approval: "pre_approved" });

/** Writes the project and opens it. */
export async function openProject(spec: ProjectSpec, options: OpenFixtureOptions = {}): Promise<ProjectFixture> {
  const base = await mkdtemp(join(tmpdir(), "cr-"));
  try {
    writeProject(join(base, "p"), spec);
    return await openAt(base, options);
  } catch (error) {
    await removeFolder(base);
    throw error;
  }
}

/** `corral.yaml`, the workers, the zones' folders and the files. Everything in a zone belongs to the worker's user. */
export function writeProject(dir: string, spec: ProjectSpec): void {
  const { workers, zones = {}, files = {}, links = {}, yaml = {}, sandbox = {}, policy = "untrusted" } = spec;
  mkdirSync(join(dir, "workers"), { recursive: true });
  const zonesYaml = Object.fromEntries(
    Object.entries(zones).map(([name, mode]) => [name, { path: `./${name}`, mode }]),
  );
  const declared = { mode: "direct", zones: zonesYaml, ...sandbox };
  writeFileSync(join(dir, "corral.yaml"), JSON.stringify({ version: 1, policy, sandbox: declared, ...yaml }));
  for (const [name, worker] of Object.entries(workers))
    writeFileSync(join(dir, "workers", `${name}.worker`), `---\n${JSON.stringify(worker)}\n---\n`);
  for (const zone of Object.keys(zones)) mkdirSync(join(dir, zone), { recursive: true });
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(dir, path)), { recursive: true });
    writeFileSync(join(dir, path), content);
  }
  for (const [path, target] of Object.entries(links)) symlinkSync(target, join(dir, path));
  if (process.getuid?.() === 0) for (const zone of Object.keys(zones)) giveToWorker(join(dir, zone));
}

function giveToWorker(path: string): void {
  chownSync(path, WORKER_UID, WORKER_UID);
  if (!lstatSync(path).isDirectory()) return;
  for (const name of readdirSync(path)) giveToWorker(join(path, name));
}

async function openAt(
  base: string,
  { engineEnv = process.env, engine, ...options }: OpenFixtureOptions,
): Promise<ProjectFixture> {
  const events: RunEvent[] = [];
  const waiting = new Set<() => void>();
  const running = new Set<Promise<unknown>>();
  const over = new AbortController();
  const stateDir = join(base, "s");
  const dir = join(base, "p");
  const emit = (event: RunEvent): void => {
    // How long something took is tested with the metrics and the spans that are made of it.
    if (event.type !== "measured") events.push(event);
    for (const look of waiting) look();
  };
  const opening = { projectDir: dir, stateDir, engineEnv, ...options, emit };
  await giveGate(stateDir);
  const corral =
    engine === undefined
      ? await openCorral(opening)
      : await openCorralFor(await loadProject(dir), opening, engine(stateDir));
  const docker = engine === undefined ? await dockerAt(engineEnv) : null;
  return {
    dir,
    stateDir,
    corral,
    get docker() {
      if (docker === null) throw new Error("this project is open on an engine in memory");
      return docker;
    },
    events,
    async run(worker, request = {}) {
      const signal = request.signal === undefined ? over.signal : AbortSignal.any([over.signal, request.signal]);
      const result = runIn(corral, worker, { ...request, signal });
      running.add(result);
      return await result.finally(() => running.delete(result));
    },
    planOf: (worker) => planOf(events, worker),
    printed(worker, text) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const look = (): void => {
        if (stdoutOf(events, worker).includes(text)) resolve();
      };
      waiting.add(look);
      look();
      return promise.finally(() => waiting.delete(look));
    },
    traces: () => tracesOf({ corral, events, stateDir }, docker),
    async [Symbol.asyncDispose]() {
      // A test that failed in the middle has runs that are still on.
      over.abort();
      await Promise.allSettled(running);
      await corral[Symbol.asyncDispose]();
      await removeFolder(base);
    },
  };
}

let local: Docker | null = null;

/** This machine's Engine has one client for all files that share the process: to connect costs it more than most calls. */
async function dockerAt(env: NonNullable<OpenFixtureOptions["engineEnv"]>): Promise<Docker> {
  const isElsewhere = Object.keys({ ...env, ...process.env }).some(
    (name) => /^DOCKER_/.test(name) && env[name] !== process.env[name],
  );
  if (isElsewhere || env.HOME !== process.env.HOME) return (await connect(env)).docker;
  local ??= (await connect(env)).docker;
  return local;
}

/** Quicker than by a program, but not if a worker made a tree that is deeper than a path can be long. */
async function removeFolder(dir: string): Promise<void> {
  try {
    rmSync(dir, { recursive: true, force: true });
  } catch {
    await removeTree(dir);
  }
}

function runIn({ project, environment }: Corral, name: string, options: RunOptions & { signal: AbortSignal }) {
  const worker = project.workers.get(name);
  if (worker === undefined) throw new Error(`the fixture has no worker ${name}`);
  return run({ worker, ...options }, environment);
}

function planOf(events: readonly RunEvent[], worker: string): Plan {
  const started = events.find((event) => event.type === "started" && event.worker === worker);
  if (started?.type !== "started") throw new Error(`no run of ${worker} began`);
  return started.plan;
}

export function stdoutOf(events: readonly RunEvent[], worker: string): string {
  return events
    .map((event) =>
      event.type === "output" && event.worker === worker && event.stream === "stdout" ? event.chunk : "",
    )
    .join("");
}

async function tracesOf(
  { corral, events, stateDir }: Pick<ProjectFixture, "corral" | "events" | "stateDir">,
  docker: Docker | null,
): Promise<string[]> {
  const runs = new Set(events.map((event) => event.run));
  const cells = await corral.environment.driver.list();
  const listed = (await docker?.listVolumes())?.Volumes ?? [];
  const volumes = listed.map(({ Labels }) => Labels?.["dev.corral.run"] ?? "");
  return [
    ...cells.map(({ run, state }) => `cell of run ${run}, ${state}`),
    ...volumes.filter((run) => runs.has(run)).map((run) => `volume of run ${run}`),
    ...(await socketDirs(stateDir)).map((name) => `socket of run ${name}`),
  ];
}

async function socketDirs(stateDir: string): Promise<string[]> {
  const live = join(stateDir, "live");
  const owners = await readdir(live);
  const names = await Promise.all(owners.map((owner) => readdir(join(live, owner))));
  // `owner` says who it is; `fleets` and `environments` hold a file for each that the process runs or uses.
  return names.flat().filter((name) => !["owner", "fleets", "environments"].includes(name));
}
