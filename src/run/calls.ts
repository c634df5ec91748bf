import PQueue from "p-queue";
import type { Pins } from "../isolation/pin.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { Violation } from "../sandbox/violation.ts";
import { type CallRequest, callViolations, fromCell, resolveAttachments } from "./call.ts";
import type { RunEnvironment } from "./environment.ts";
import { type Job, type Narrow, newRunId } from "./job.ts";
import { permissionOf } from "./permission.ts";
import { refusedResult } from "./refusal.ts";
import type { RunResult } from "./result.ts";

/** Performs a called job; `run.ts` gives it, so that runs and calls may need each other. */
export type Perform = (job: Job, env: RunEnvironment) => Promise<RunResult>;

/** The calls that one run makes: bounded, one tree with it, and over when it is over. */
export class Calls implements AsyncDisposable {
  readonly #caller: { readonly job: Job; readonly sandbox: Sandbox };
  readonly #deadline: number;
  readonly #env: RunEnvironment;
  readonly #perform: Perform;
  readonly #over = new AbortController();
  readonly #queue: PQueue;
  readonly #results: Promise<RunResult>[] = [];

  /** `pins`: the caller's own, by which the attachments that it hands on stay the files that it was given. */
  constructor(job: Job, sandbox: Sandbox, pins: Pins, deadline: number, env: RunEnvironment, perform: Perform) {
    const attachments = job.attachments.map((attachment) => {
      const source = pins.sources.get(attachment.host);
      return source === undefined ? attachment : { ...attachment, identity: `${source.device}:${source.inode}` };
    });
    this.#caller = { job: { ...job, attachments }, sandbox };
    this.#deadline = deadline;
    this.#env = env;
    this.#perform = perform;
    this.#queue = new PQueue({ concurrency: env.project.delegation.maxParallel });
  }

  /** Always answers with a result; a refusal is one. */
  async call(request: CallRequest, hangUp: AbortSignal): Promise<RunResult> {
    const result = this.#queue.add(() => this.#callNow(request, hangUp));
    this.#results.push(result);
    return await result;
  }

  /** Cancels what still runs, waits until it is gone, and answers with every call's result, in the order of the calls. */
  async end(): Promise<RunResult[]> {
    this.#over.abort(new Error("the calling run has ended"));
    return await Promise.all(this.#results);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.end();
  }

  async #callNow(request: CallRequest, hangUp: AbortSignal): Promise<RunResult> {
    const { job, sandbox } = this.#caller;
    const { workers } = this.#env.project;
    const run = newRunId();
    const place = { run, worker: request.worker };
    const violations: Violation[] = callViolations(request.worker, this.#caller, workers);
    const { attachments, violations: unreadable } = resolveAttachments(request.attachments, this.#caller);
    violations.push(...unreadable);

    const worker = workers.get(request.worker);
    const narrow = request.narrow === null ? null : narrowFromCell(request.narrow, sandbox);
    if (worker !== undefined && job.worker.calls.includes(request.worker)) {
      // Derived here as well, so that the answer to a refused call names everything that is wrong with it.
      const derivation = await permissionOf(worker, sandbox, narrow, this.#env);
      if (!derivation.ok) violations.push(...derivation.violations);
    }
    if (violations.length === 0 && !job.tree.takeCall())
      violations.push({ code: "CALL_LIMIT", max: job.tree.maxCalls });
    if (violations.length > 0 || worker === undefined) return this.#refuse(place, violations);
    return await this.#perform(
      {
        run,
        root: job.root,
        parent: job.run,
        worker,
        callerSandbox: sandbox,
        path: [...job.path, worker.name],
        input: request.input,
        attachments,
        narrow,
        deadline: this.#deadline,
        signal: AbortSignal.any([job.signal, this.#over.signal, hangUp]),
        tree: job.tree,
      },
      this.#env,
    );
  }

  #refuse(place: { run: string; worker: string }, violations: readonly Violation[]): RunResult {
    const { job } = this.#caller;
    const result = refusedResult(place, violations);
    const at = { ...place, root: job.root, parent: job.run, attachments: [] };
    this.#env.emit({ type: "requested", ...at });
    this.#env.emit({ type: "ended", ...at, result });
    return result;
  }
}

function narrowFromCell(narrow: Narrow, sandbox: Sandbox): Narrow {
  const paths = (list: readonly string[]): string[] => list.map((path) => fromCell(path, sandbox));
  return {
    ...narrow,
    ...(narrow.allowRead === undefined ? {} : { allowRead: paths(narrow.allowRead) }),
    ...(narrow.allowWrite === undefined ? {} : { allowWrite: paths(narrow.allowWrite) }),
  };
}
