import PQueue from "p-queue";
import type { Meter } from "../../egress/traffic/traffic.ts";
import type { Pins } from "../../isolation/sources/pin.ts";
import { parsePathIn } from "../../sandbox/access.ts";
import { isLooser } from "../../sandbox/approval.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import type { Declared, Records, RunConsent } from "../model/environment.ts";
import { emitRefusal } from "../model/events.ts";
import type { Grantee } from "../model/grantee.ts";
import { type Job, type Narrow, newRunId } from "../model/job.ts";
import { permissionOf } from "../model/permission.ts";
import { type RunResult, refusedResult, unstartedResult } from "../model/result.ts";
import {
  agreedToCall,
  type CallRequest,
  callConsent,
  callViolations,
  notApproved,
  resolveCallAttachments,
} from "./call.ts";

/** Performs a called job; `run.ts` gives it, so that runs and calls may need each other. */
export type Perform = (job: Job) => Promise<RunResult>;

export interface CallsRequest {
  /** The run that calls. */
  readonly job: Job;
  readonly grantee: Grantee;
  /** Its own, by which the attachments that it hands on stay the files that it was given. */
  readonly pins: Pins;
  /** Its end, on the environment's clock: no called run has longer. */
  readonly deadline: number;
  /** The budget for its network, which the runs that it calls use too. */
  readonly meter: Meter | null;
  readonly env: Declared & RunConsent & Records;
  readonly perform: Perform;
}

/** The answer to a caller, and if its own result will include it. */
interface CallAnswer {
  readonly result: RunResult;
  readonly kept: boolean;
}

const CHANGED = "what the worker sees has changed since it asked; call again";

type Judgement =
  | { readonly ok: true; readonly job: Job }
  | { readonly ok: false; readonly violations: readonly Violation[] };

/** The calls that one run makes: bounded, one tree with it, and over when it is over. */
export class Calls implements AsyncDisposable {
  readonly #request: CallsRequest;
  readonly #over = new AbortController();
  readonly #queue: PQueue;
  /** In the order of the requests. */
  readonly #answers = new Set<Promise<CallAnswer>>();

  constructor(request: CallsRequest) {
    const attachments = request.job.attachments.map((attachment) => {
      const source = request.pins.sources.get(attachment.host);
      return source === undefined ? attachment : { ...attachment, identity: `${source.device}:${source.inode}` };
    });
    this.#request = { ...request, job: { ...request.job, attachments } };
    this.#queue = new PQueue({ concurrency: request.env.project.delegation.maxParallel });
  }

  /** Always answers with a result; a refusal is one. */
  async call(request: CallRequest, hangUp: AbortSignal): Promise<RunResult> {
    const place = { run: newRunId(), worker: request.worker };
    if (this.#over.signal.aborted)
      return unstartedResult(place, "cancelled", { code: "CANCELLED", message: "The calling run has ended." });
    const answer = this.#answer(place.run, request, hangUp);
    this.#answers.add(answer);
    const { result, kept } = await answer;
    if (!kept) this.#answers.delete(answer);
    return result;
  }

  /** Cancels what still runs, waits until it is gone, and answers with every call's result, in the order of the calls. */
  async end(): Promise<RunResult[]> {
    this.#over.abort(new Error("the calling run has ended"));
    // If a call failed by a bug, every other call has ended before the error is thrown.
    await Promise.allSettled(this.#answers);
    const answers = await Promise.all(this.#answers);
    return answers.filter(({ kept }) => kept).map(({ result }) => result);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over.abort(new Error("the calling run has ended"));
    await Promise.allSettled(this.#answers);
  }

  /** A refused call is answered at once; one that is allowed takes its turn. */
  async #answer(run: string, request: CallRequest, hangUp: AbortSignal): Promise<CallAnswer> {
    const judgement = await this.#judge(run, request, hangUp);
    if (!judgement.ok) return this.#refuse({ run, worker: request.worker }, judgement.violations);
    const result = await this.#queue.add(() => this.#performNow(judgement.job, request));
    return { result, kept: true };
  }

  /** With what the caller has when the call's turn comes: a grant may have been revoked meanwhile. */
  async #performNow(job: Job, request: CallRequest): Promise<RunResult> {
    const { job: caller, grantee, env, perform } = this.#request;
    await env.grants.look();
    const { sandbox } = grantee;
    if (sandbox === job.callerSandbox) return await perform(job);
    // What it sees now may need more consent than what was asked.
    const consent = callConsent(caller.worker, sandbox);
    if (isLooser(callConsent(caller.worker, job.callerSandbox).consent, consent.consent))
      return refusedResult({ run: job.run, worker: job.worker.name }, [notApproved(job.worker.name, consent, CHANGED)]);
    const asking = { job: caller, sandbox, hidden: grantee.hidden };
    const { attachments, violations } = resolveCallAttachments(request.attachments, asking);
    if (violations.length > 0) return refusedResult({ run: job.run, worker: job.worker.name }, violations);
    return await perform({ ...job, callerSandbox: sandbox, attachments });
  }

  async #judge(run: string, request: CallRequest, hangUp: AbortSignal): Promise<Judgement> {
    const { job, grantee, deadline, env } = this.#request;
    // As it is now: workers that are called can have what the caller was granted meanwhile.
    await env.grants.look();
    const { sandbox } = grantee;
    const { workers } = env.project;
    const signal = AbortSignal.any([job.signal, this.#over.signal, hangUp]);
    const violations: Violation[] = callViolations(request.worker, { job }, workers);
    const asking = { job, sandbox, hidden: grantee.hidden };
    const { attachments, violations: unreadable } = resolveCallAttachments(request.attachments, asking);
    violations.push(...unreadable);

    const worker = workers.get(request.worker);
    const narrow = request.narrow === null ? null : narrowFromCell(request.narrow, sandbox);
    if (worker !== undefined && job.worker.calls.includes(request.worker)) {
      // Derived here as well, so that the answer to a refused call names everything that is wrong with it.
      const derivation = await permissionOf(worker, sandbox, narrow, env);
      if (!derivation.ok) violations.push(...derivation.violations);
    }
    if (violations.length === 0) violations.push(...(await agreedToCall(request, attachments, asking, env, signal)));
    if (violations.length === 0 && !job.tree.takeCall())
      violations.push({ code: "CALL_LIMIT", max: job.tree.maxCalls });
    if (violations.length > 0 || worker === undefined) return { ok: false, violations };
    return {
      ok: true,
      job: {
        run,
        root: job.root,
        parent: job.run,
        worker,
        callerSandbox: sandbox,
        caller: grantee,
        path: [...job.path, worker.name],
        input: request.input,
        attachments,
        narrow,
        deadline,
        signal,
        tree: job.tree,
        spending: job.spending,
        callerMeter: this.#request.meter,
        ...beginningOf(job),
      },
    };
  }

  #refuse(place: { run: string; worker: string }, violations: readonly Violation[]): CallAnswer {
    const { job, env } = this.#request;
    if (!job.tree.keepsRefusal()) return { result: refusedResult(place, violations), kept: false };
    const at = { ...place, root: job.root, parent: job.run, attachments: [] };
    return { result: emitRefusal(env.emit, at, violations), kept: true };
  }
}

/** What a called run changes in the project is an effect of its root run, which continues. */
function beginningOf({ begin }: Job): Pick<Job, "begin"> {
  return begin === undefined ? {} : { begin: () => begin(null) };
}

/** As the caller means it: by its own working directory and home, as for the files that it attaches. */
function narrowFromCell(narrow: Narrow, sandbox: Sandbox): Narrow {
  const meant = (path: string): string => {
    const parsed = parsePathIn(sandbox, path);
    return parsed.ok ? parsed.path : path;
  };
  const paths = (list: readonly string[]): string[] => list.map(meant);
  return {
    ...narrow,
    ...(narrow.allowRead === undefined ? {} : { allowRead: paths(narrow.allowRead) }),
    ...(narrow.allowWrite === undefined ? {} : { allowWrite: paths(narrow.allowWrite) }),
  };
}
