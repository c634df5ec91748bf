import type { Project } from "../declarations/project.ts";
import type { WorkerDefinition } from "../declarations/worker/worker.ts";
import type { CellInfo } from "../isolation/port/driver.ts";
import { listCells } from "../operations/machine.ts";
import { type MapRequest, mapItems, runFleet } from "../operations/run-fleet.ts";
import { type AttachedPath, runWorker, workerNamed, workerSandbox } from "../operations/workers.ts";
import { type CheckReport, check } from "../run/explain/check.ts";
import { type Explanation, explain } from "../run/explain/explain.ts";
import type { Emit } from "../run/model/events.ts";
import type { RunResult } from "../run/model/result.ts";
import { type Corral, openCorralFor } from "../run/open/corral.ts";
import type { OpenOptions } from "../run/open/options.ts";
import { openPreview } from "../run/open/preview.ts";
import { FileSandbox } from "./file-sandbox.ts";
import { type FleetResults, Grants, ProjectAudit, ProjectChangesets, ProjectFleets } from "./project-state.ts";
import { type WorkerPlan, workerPlan } from "./worker-plan.ts";
import { openTools, type ToolsOptions, type WorkerTools } from "./worker-tools.ts";

/** One run of a worker by itself. Everything may be left out. */
export interface ProjectRun {
  /** JSON for the worker's standard input, or for an agent to read; absent: none. */
  readonly input?: unknown;
  readonly attachments?: readonly AttachedPath[];
  /** Cancels the run: it ends as `cancelled`, and nothing is left of it. */
  readonly signal?: AbortSignal;
  /** A policy in place of the project's. */
  readonly policy?: string;
  /** Gets the events of this run and of all runs below it, in addition to the project's `emit`. It must not throw. */
  readonly onEvent?: Emit;
}

/** All that is left out is as on the command line. */
export type ProjectMap = Omit<MapRequest, "worker">;

/** The policy under which something is inspected. */
export interface PolicyChoice {
  /** A policy in place of the project's. */
  readonly policy?: string;
}

/**
 * A project in a program's hands. Each method that takes a worker's name throws a `RequestError` (`UNKNOWN_WORKER`) if there is none, and
 * `UnknownPolicyError` where there is no such policy. What needs an Engine throws `EngineUnavailableError` where none answers.
 *
 * Disposing cancels whatever is still at work, and ends when nothing is left of it.
 */
export class OpenedProject implements AsyncDisposable {
  /** As it was read: its workers by name, its declaration. */
  readonly definition: Project;
  /** Where Corral keeps its own. Absolute. */
  readonly stateDir: string;
  /** Fleets of this project: list, resume, retry, cancel, results. */
  readonly fleets: ProjectFleets;
  /** What its runs wrote and was not applied: list, show, diff, apply, discard. */
  readonly changesets: ProjectChangesets;
  /** What running workers were granted, in all projects of the state directory: list, revoke. */
  readonly grants: Grants;
  /** Its audit trail: read, filter, verify. */
  readonly audit: ProjectAudit;
  readonly #options: Omit<OpenOptions, "projectDir">;
  readonly #policy: string | null;
  readonly #over = new AbortController();
  readonly #working = new Set<Promise<unknown>>();
  readonly #ending = new Set<() => Promise<unknown>>();
  #corral: Promise<Corral> | null = null;
  #closing: Promise<void> | null = null;

  /** Use `openProject`. */
  constructor(definition: Project, options: Omit<OpenOptions, "projectDir">, policy: string | null) {
    this.definition = definition;
    this.stateDir = options.stateDir;
    this.#options = options;
    this.#policy = policy;
    const place = { stateDir: this.stateDir, projectDir: definition.dir, engineEnv: options.engineEnv };
    this.fleets = new ProjectFleets(place, (start, { signal, onEvent }) =>
      this.#ended((corral) =>
        runFleet(corral, start, { stop: this.#until(signal), ...(onEvent === undefined ? {} : { onEvent }) }),
      ),
    );
    this.changesets = new ProjectChangesets(
      place,
      () => options,
      (signal) => this.#until(signal),
    );
    this.grants = new Grants(this.stateDir);
    this.audit = new ProjectAudit(place);
  }

  /**
   * Runs a worker by itself, and returns its result: a failure, a refusal and a denial are results too.
   *
   * @throws RequestError ATTACHMENT for a file that does not exist.
   */
  async run(worker: string, { input, attachments = [], signal, policy, onEvent }: ProjectRun = {}): Promise<RunResult> {
    const definition = this.#named(worker);
    return await this.#while(async () => {
      const { environment } = await this.#opened();
      const { emit } = environment;
      const env = onEvent === undefined ? environment : { ...environment, emit: both(emit, onEvent) };
      const chosen = this.#policyOr(policy);
      const request = { worker: definition, input, attachments, cwd: process.cwd(), policy: chosen };
      return await runWorker({ ...request, signal: this.#until(signal) }, env);
    });
  }

  /**
   * Runs a worker over many items, each in a sandbox of its own, and tells of each result as it comes: see `mapItems`. Whoever
   * stops taking results lets what runs end.
   *
   * @throws RequestError FLEET_REFUSED if nothing was run.
   */
  map(worker: string, request: ProjectMap): FleetResults {
    this.#named(worker);
    const { signal, policy, ...rest } = request;
    const chosen = named(this.#policyOr(policy ?? undefined));
    return this.#ended((corral) => mapItems(corral, { ...rest, worker, ...chosen, signal: this.#until(signal) }));
  }

  /**
   * A worker's tools, for a program or a model of its own. Its container is started with the first command.
   *
   *     await using tools = await project.tools("clerk");
   *     const { text } = await generateText({ model, tools: tools.ai, prompt, stopWhen: isStepCount(10) });
   *     await tools.close();
   *
   * @throws RequestError WORKER_REFUSED if the worker may not have what its file asks for.
   */
  async tools(worker: string, { signal, policy, ...options }: ToolsOptions = {}): Promise<WorkerTools> {
    const definition = this.#named(worker);
    return await this.#while(async () => {
      const { environment } = await this.#opened();
      const request = { ...options, ...named(this.#policyOr(policy)), signal: this.#until(signal) };
      const tools = await openTools(definition, request, environment, () => this.#ending.delete(end));
      const end = async (): Promise<void> => await tools[Symbol.asyncDispose]();
      this.#ending.add(end);
      return tools;
    });
  }

  /** What a worker and all that it may call would get, and who narrowed what. Runs nothing; without an Engine it has no plans. */
  async explain(worker: string, { policy }: PolicyChoice = {}): Promise<Explanation> {
    const definition = this.#named(worker);
    return await explain(definition, this.#policyOr(policy), await this.#preview());
  }

  /** Every call path that would be refused or denied under the project's own policy. Runs nothing, and needs no Engine. */
  async check(): Promise<CheckReport> {
    return await check(await this.#preview());
  }

  /** The container that a run of this worker would get, as plain JSON, or every reason why there would be none. */
  async planFor(worker: string, { policy }: PolicyChoice = {}): Promise<WorkerPlan> {
    const definition = this.#named(worker);
    return await workerPlan(definition, this.#policyOr(policy), await this.#preview());
  }

  /**
   * What a worker may do when it is run by itself, to ask and to derive from; without a name, what the project gives.
   *
   * @throws RequestError WORKER_REFUSED if it may not have what its file asks for.
   */
  async sandbox(worker?: string, { policy }: PolicyChoice = {}): Promise<FileSandbox> {
    const definition = worker === undefined ? null : this.#named(worker);
    const { environment } = await this.#preview();
    return new FileSandbox(await workerSandbox(definition, this.#policyOr(policy), environment));
  }

  /** The containers of all projects of the state directory, also those that dead processes left; the oldest first. */
  async cells(): Promise<CellInfo[]> {
    return await listCells({ stateDir: this.stateDir, engineEnv: this.#options.engineEnv });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing ??= this.#close();
    await this.#closing;
  }

  async #close(): Promise<void> {
    this.#over.abort(new Error("the project is closed"));
    const corral = await this.#corral?.catch(() => null);
    try {
      await Promise.allSettled(this.#working);
      await Promise.allSettled([...this.#ending].map((end) => end()));
    } finally {
      await corral?.[Symbol.asyncDispose]();
    }
  }

  #named(worker: string): WorkerDefinition {
    return workerNamed(worker, this.definition);
  }

  /** One that could not be opened is tried again with the next that needs it. */
  #opened(): Promise<Corral> {
    this.#over.signal.throwIfAborted();
    if (this.#corral === null) {
      const opening = openCorralFor(this.definition, this.#options);
      this.#corral = opening;
      opening.catch(() => {
        if (this.#corral === opening) this.#corral = null;
      });
    }
    return this.#corral;
  }

  async #preview() {
    return await openPreview(this.definition, this.#options);
  }

  async #while<T>(act: () => Promise<T>): Promise<T> {
    const work = act();
    this.#working.add(work);
    try {
      return await work;
    } finally {
      this.#working.delete(work);
    }
  }

  /** Results that closing the project ends. */
  #ended(run: (corral: Corral) => FleetResults): FleetResults {
    const results = this.#fleet(run, () => this.#ending.delete(end));
    const end = async (): Promise<unknown> => await results.return(undefined as never);
    this.#ending.add(end);
    return results;
  }

  async *#fleet(run: (corral: Corral) => FleetResults, ended: () => void): FleetResults {
    try {
      return yield* run(await this.#opened());
    } finally {
      ended();
    }
  }

  #policyOr(policy: string | undefined): string | null {
    return policy ?? this.#policy;
  }

  #until(signal: AbortSignal | undefined): AbortSignal {
    return signal === undefined ? this.#over.signal : AbortSignal.any([signal, this.#over.signal]);
  }
}

function named(policy: string | null): { policy?: string } {
  return policy === null ? {} : { policy };
}

function both(first: Emit, second: Emit): Emit {
  return (event) => {
    first(event);
    second(event);
  };
}
