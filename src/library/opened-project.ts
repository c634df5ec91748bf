import { resolve } from "node:path";
import type { Approver } from "../approval/approver.ts";
import { loadProject, type Project } from "../declarations/project.ts";
import type { WorkerDefinition } from "../declarations/worker/worker.ts";
import type { Plan } from "../isolation/plan/plan.ts";
import { type ListedCell, listCells } from "../operations/machine.ts";
import { type MapRequest, mapItems, runFleet } from "../operations/run-fleet.ts";
import { type AttachedPath, runWorker, workerNamed, workerSandbox } from "../operations/workers.ts";
import { type CheckReport, check } from "../run/explain/check.ts";
import { Budget, type Explanation, explain, explainRoot } from "../run/explain/explain.ts";
import type { Emit } from "../run/model/events.ts";
import type { DescribedViolation, RunResult } from "../run/model/result.ts";
import { type LaterCorral, openCorralLater } from "../run/open/corral.ts";
import type { OpenOptions } from "../run/open/options.ts";
import { openPreview, type Preview } from "../run/open/preview.ts";
import { APPROVAL_MODE_NAMES, type ApprovalMode } from "../sandbox/approval.ts";
import { DRIVER_CHOICES, type DriverChoice } from "../sandbox/driver-choice.ts";
import { stateDirFrom } from "../state/state-dir.ts";
import { present } from "../text/present.ts";
import { any, checkKeys, type KeyChecks } from "./checked-request.ts";
import { FileSandbox } from "./file-sandbox.ts";
import {
  type FleetResults,
  Grants,
  ProjectApprovals,
  ProjectAudit,
  ProjectChangesets,
  ProjectFleets,
  ProjectRuns,
} from "./project-state.ts";
import { openTools, type ToolsOptions, type WorkerTools } from "./worker-tools.ts";

/** How a project is opened. Every option is optional. */
export interface OpenProjectOptions {
  /**
   * Variables that name the Engine (`DOCKER_HOST`, `DOCKER_CONTEXT`, …), the state directory and the keys of models: usually
   * `process.env`, which the library does not read by itself. Absent: Corral uses the Engine's default socket, and models that
   * need a key are not available. None of them enters a container.
   */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /**
   * The directory of Corral's own state: the audit trail, changes that are not applied yet, transcripts. Corral creates it with
   * mode 0700; no worker can see it. Absent: as on the command line, from `env` (`CORRAL_STATE_DIR`, `XDG_STATE_HOME`, `HOME`),
   * else `~/.local/state/corral`, so `corral changes` and `corral audit` show what the program did.
   */
  readonly stateDir?: string;
  /**
   * Answers the questions of the mode `interactive` in place of the user, for example a `callbackApprover`. Without it and
   * without a `person`, every question is answered with a denial.
   */
  readonly approver?: Approver;
  /** Answers the questions of that mode if there is no `approver`. */
  readonly person?: Approver;
  /** Replaces the project's `approval.mode`. */
  readonly approvalMode?: ApprovalMode;
  /** Replaces the project's policy, for every worker that names none. */
  readonly policy?: string;
  /**
   * What makes containers: the Engine, or runc without it. Replaces `CORRAL_DRIVER` of `env`; absent in both: `auto`, the Engine, and runc for
   * fresh items of fleets if it can make cells here. With `prefer-runc` it makes all that it can, and with `runc` nothing runs if it cannot.
   */
  readonly driver?: DriverChoice;
  /** Receives every event of every run. It must not throw. */
  readonly emit?: Emit;
}

/**
 * Opens a project. Reads and checks `corral.yaml` and the workers now; connects to the Engine when an operation first needs it.
 *
 *     await using project = await openProject(".", { env: process.env });
 *     const { status, output } = await project.run("summarize", { attachments: ["./paper.txt"] });
 *
 * @throws DeclarationError with every mistake in the project's files; RangeError for an option, an `approvalMode` or a `driver`
 *   that does not exist.
 */
export async function openProject(dir: string, options: OpenProjectOptions = {}): Promise<OpenedProject> {
  checkKeys(options, OPTIONS, "openProject");
  const { env: given = {}, driver, stateDir, policy = null, ...rest } = options;
  if (driver !== undefined && !DRIVER_CHOICES.includes(driver))
    throw new RangeError(`\`driver\` must be one of ${DRIVER_CHOICES.join(", ")}, not ${JSON.stringify(driver)}`);
  const env = driver === undefined ? given : { ...given, CORRAL_DRIVER: driver };
  const { approvalMode } = rest;
  if (approvalMode !== undefined && !APPROVAL_MODE_NAMES.includes(approvalMode)) {
    const names = APPROVAL_MODE_NAMES.join(", ");
    throw new RangeError(`\`approvalMode\` must be one of ${names}, not ${JSON.stringify(approvalMode)}`);
  }
  const project = await loadProject(dir, env);
  const engine = { stateDir: resolve(stateDir ?? stateDirFrom(env)), engineEnv: env };
  return new OpenedProject(project, { ...rest, ...engine }, policy);
}

const OPTIONS: KeyChecks<OpenProjectOptions> = {
  env: any,
  stateDir: any,
  approver: any,
  person: any,
  approvalMode: any,
  policy: any,
  driver: any,
  emit: any,
};

/** One run of a worker. Every option is optional. */
export interface ProjectRun {
  /** JSON for the worker's standard input, or for an agent to read; absent: none. */
  readonly input?: unknown;
  readonly attachments?: readonly AttachedPath[];
  /** For an agent: the id of a run of it that has ended. Its conversation is continued, in a sandbox that is derived anew. */
  readonly continues?: string;
  /** Cancels the run. It ends as `cancelled`, and nothing of it is left. */
  readonly signal?: AbortSignal;
  /** Replaces the project's policy. */
  readonly policy?: string;
  /** Receives the events of this run and of all runs below it, in addition to the project's `emit`. It must not throw. */
  readonly onEvent?: Emit;
}

/** Defaults are those of the command line. */
export type ProjectMap = Omit<MapRequest, "worker">;

/** The policy under which something is inspected. */
export interface PolicyChoice {
  /** Replaces the project's policy. */
  readonly policy?: string;
}

/**
 * An opened project. Methods that take a worker's name throw a `RequestError` (`UNKNOWN_WORKER`) for an unknown one, and
 * `UnknownPolicyError` for an unknown policy. Methods that need an Engine throw `EngineUnavailableError` if none answers.
 *
 * Disposing cancels everything that still runs, and resolves when nothing of it is left.
 */
export class OpenedProject implements AsyncDisposable {
  /** The project as read: its workers by name, and its declaration. */
  readonly definition: Project;
  /** The absolute path of Corral's state directory. */
  readonly stateDir: string;
  /** The history of its runs: list, show, logs, stop, remove. */
  readonly runs: ProjectRuns;
  /** Fleets of this project: list, resume, retry, cancel, results. */
  readonly fleets: ProjectFleets;
  /** Changes of its runs that are not applied yet: list, show, diff, apply, discard. */
  readonly changesets: ProjectChangesets;
  /** Questions of its runs, in all processes: list, show, decide. */
  readonly approvals: ProjectApprovals;
  /** Grants of running workers, in all projects of the state directory: list, revoke. */
  readonly grants: Grants;
  /** Its audit trail: read, filter, verify. */
  readonly audit: ProjectAudit;
  readonly #options: Omit<OpenOptions, "projectDir">;
  readonly #policy: string | null;
  readonly #over = new AbortController();
  readonly #working = new Set<Promise<unknown>>();
  readonly #ending = new Set<() => Promise<unknown>>();
  #corral: Promise<LaterCorral> | null = null;
  #closing: Promise<void> | null = null;

  /** Use `openProject`. */
  constructor(definition: Project, options: Omit<OpenOptions, "projectDir">, policy: string | null) {
    this.definition = definition;
    this.stateDir = options.stateDir;
    this.#options = options;
    this.#policy = policy;
    const place = { stateDir: this.stateDir, projectDir: definition.dir, engineEnv: options.engineEnv };
    this.runs = new ProjectRuns(place);
    this.fleets = new ProjectFleets(place, (start, { signal, onEvent }) =>
      this.#ended((corral) => runFleet(corral, start, { stop: this.#until(signal), ...present({ onEvent }) })),
    );
    this.changesets = new ProjectChangesets(
      place,
      () => options,
      (signal) => this.#until(signal),
    );
    this.approvals = new ProjectApprovals(place);
    this.grants = new Grants(this.stateDir);
    this.audit = new ProjectAudit(place);
  }

  /**
   * Runs a worker and returns its result. A failure, a refusal and a denial are results too.
   *
   * @throws RequestError ATTACHMENT for a file that does not exist; UNKNOWN_TRANSCRIPT or CONTINUE for a run that cannot be continued.
   */
  async run(worker: string, options: ProjectRun = {}): Promise<RunResult> {
    const { input, attachments = [], continues, signal, policy, onEvent } = options;
    const definition = this.#named(worker);
    return await this.#while(async () => {
      // An agent's cell starts with its first command.
      const { environment } = await (definition.agent === undefined ? this.#opened() : this.#withoutEngine());
      const { emit } = environment;
      const env = onEvent === undefined ? environment : { ...environment, emit: both(emit, onEvent) };
      const chosen = this.#policyOr(policy);
      const request = { worker: definition, input, attachments, cwd: process.cwd(), policy: chosen };
      const earlier = present({ continues });
      return await runWorker({ ...request, ...earlier, signal: this.#until(signal) }, env);
    });
  }

  /**
   * Runs a worker once for each item, each in its own sandbox, and yields results as they come. If the caller stops iterating,
   * running items end normally and no further item starts.
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
   * A worker's tools, for the program itself or for its own model. The container starts with the first command.
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
      const { environment } = await this.#withoutEngine();
      const request = { ...options, ...named(this.#policyOr(policy)), signal: this.#until(signal) };
      const tools = await openTools(definition, request, environment, () => this.#ending.delete(end));
      const end = async (): Promise<void> => await tools[Symbol.asyncDispose]();
      this.#ending.add(end);
      return tools;
    });
  }

  /** What a worker and every worker that it may call would get, and who narrowed it. Runs nothing; without an Engine it has no plans. */
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
   * The sandbox of a worker that no other worker calls, to query and to derive from; without a name, the project's.
   *
   * @throws RequestError WORKER_REFUSED if it may not have what its file asks for.
   */
  async sandbox(worker?: string, { policy }: PolicyChoice = {}): Promise<FileSandbox> {
    const definition = worker === undefined ? null : this.#named(worker);
    const { environment } = await this.#preview();
    return new FileSandbox(await workerSandbox(definition, this.#policyOr(policy), environment));
  }

  /** The containers of all projects of the state directory, also those of dead processes; the oldest first. */
  async cells(): Promise<ListedCell[]> {
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

  /** With its Engine. */
  async #opened(): Promise<LaterCorral> {
    const corral = await this.#withoutEngine();
    await corral.ready();
    return corral;
  }

  /** If opening fails, the next operation that needs it tries again. */
  #withoutEngine(): Promise<LaterCorral> {
    this.#over.signal.throwIfAborted();
    if (this.#corral === null) {
      const opening = openCorralLater(this.definition, this.#options);
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

  /** Iterations that closing the project ends. */
  #ended(run: (corral: LaterCorral) => FleetResults): FleetResults {
    const results = this.#fleet(run, () => this.#ending.delete(end));
    const end = async (): Promise<unknown> => await results.return(undefined as never);
    this.#ending.add(end);
    return results;
  }

  async *#fleet(run: (corral: LaterCorral) => FleetResults, ended: () => void): FleetResults {
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

/** The container that a worker would get. The run's ids and its socket are placeholders that no run can have. */
export type WorkerPlan =
  | { readonly ok: true; readonly plan: Plan; readonly notes: readonly string[] }
  /** If `violations` is empty, the worker is fine, and `message` says what else is missing. */
  | { readonly ok: false; readonly violations: readonly DescribedViolation[]; readonly message: string };

/** Takes the same steps as a run. Does not check the workers that it may call. */
async function workerPlan(worker: WorkerDefinition, policy: string | null, preview: Preview): Promise<WorkerPlan> {
  const { plan, refused, notes } = await explainRoot(worker, policy, { preview, budget: new Budget(1) });
  if (plan !== null) return { ok: true, plan, notes };
  const violations = refused ?? [];
  const messages = violations.map((violation) => violation.message);
  const missing = preview.unavailable === null ? [] : [preview.unavailable];
  return { ok: false, violations, message: [...messages, ...missing].join("\n") };
}
