import { type ApprovalRequest, type Approver, type Decision, denied } from "../../approval/approver.ts";
import { approvalDecided } from "../../audit/records.ts";
import { auditKey } from "../../audit/seal.ts";
import { type AuditTrail, TrailFile } from "../../audit/trail.ts";
import {
  type EndedEntry,
  type HeldEntry,
  MAX_STREAMS_BYTES,
  Recording,
  runFolderName,
  type StartedEntry,
} from "../../history/recording.ts";
import { type Keep, Pruning } from "../../history/retention.ts";
import type { Plan } from "../../isolation/plan/plan.ts";
import { sha256 } from "../../platform/sha256.ts";
import { onAbort } from "../../platform/within.ts";
import { LiveRuns } from "../../state/live-dir.ts";
import { loadSealKey, lockOwner } from "../../state/owner.ts";
import { projectPaths, statePaths } from "../../state/state-dir.ts";
import { present } from "../../text/present.ts";
import type { BegunRun, ClosedSession, History, Records, RunHistory } from "../model/environment.ts";
import type { Emit, RunEvent } from "../model/events.ts";
import { inputBytes } from "../model/job.ts";
import type { RunResult } from "../model/result.ts";

/** What a worker chose is cut to this in the record. */
const MAX_NAME = 200;
const MAX_PATH = 1000;
const MAX_MESSAGE = 8 * 1024;
const MAX_NAMES = 200;
/** A report of a network that is longer, as JSON, is left out. */
const MAX_REPORT = 128 * 1024;

interface HistoryPlace {
  readonly stateDir: string;
  readonly projectDir: string;
  /** This process's own directory. */
  readonly ownerDir: string;
  readonly keep: Keep;
  /** Of all projects together. */
  readonly maxBytes: number;
}

/** The history of one project on the disk, as one process adds to it. */
export class ProjectHistory implements History, AsyncDisposable {
  readonly #place: HistoryPlace;
  readonly #projectRuns: string;
  readonly #owner: string;
  readonly #emit: Emit;
  readonly #live: LiveRuns;
  readonly #pruning: Pruning;
  readonly #ending = new Set<Promise<void>>();

  constructor(place: HistoryPlace, emit: Emit) {
    const { stateDir, projectDir, ownerDir, keep, maxBytes } = place;
    const { name, isDead } = lockOwner();
    this.#place = place;
    this.#projectRuns = projectPaths(stateDir, projectDir).runs;
    this.#owner = name;
    this.#emit = emit;
    this.#live = new LiveRuns(ownerDir);
    this.#pruning = new Pruning({ runsDir: statePaths(stateDir).runs, keep, maxBytes, isDead });
  }

  begin(begun: BegunRun): RunHistory {
    const { run, worker } = begun;
    const tell = (why: string): void => {
      const detail = `the history of run ${run} could not be written: ${why}`;
      this.#emit({ type: "trouble", run, root: run, parent: null, worker, attachments: [], detail });
    };
    const recording = new Recording(`${this.#projectRuns}/${runFolderName(run, Date.now())}`, tell);
    recording.add({ type: "begin", version: 1, ...this.#headOf(begun), at: now() });
    recording.digest(begun.attachments.map(({ name, host }) => ({ name: cut(name), host })));
    const stopped = this.#stoppable(run, tell);
    const end = (last: (() => EndedEntry) | null): void => {
      const written = last === null ? recording.discard() : recording.end(last);
      // Its last line is written: who looks now sees that it is over.
      this.#live.remove(run);
      const ending = written.then(() => {
        if (last !== null) this.#pruning.added(Math.min(recording.outputBytes, MAX_STREAMS_BYTES));
      });
      this.#ending.add(ending);
      void ending.finally(() => this.#ending.delete(ending));
    };
    this.#pruning.begin(this.#projectRuns);
    return recorded(begun, recording, stopped, end);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#ending);
    await this.#pruning.idle();
    this.#live[Symbol.dispose]();
  }

  #headOf({ run, kind, worker, words = [], input, attachments, continues }: BegunRun) {
    const { keep, projectDir: project } = this.#place;
    const earlier = present({ continues });
    const names = attachments.slice(0, MAX_NAMES).map(({ name }) => cut(name));
    const said = words.length === 0 ? {} : { arguments: words.slice(0, MAX_NAMES).map((word) => cut(word)) };
    return {
      run,
      kind,
      worker,
      project,
      owner: this.#owner,
      input: digestOf(input),
      attachments: names,
      keep,
      ...said,
      ...earlier,
    };
  }

  #stoppable(run: string, tell: (why: string) => void): AbortSignal {
    try {
      return this.#live.add(run);
    } catch (error) {
      tell(`it cannot be stopped from outside: ${(error as Error).message}`);
      return new AbortController().signal;
    }
  }
}

function recorded(
  { run: root }: BegunRun,
  recording: Recording,
  stopped: AbortSignal,
  end: (last: (() => EndedEntry) | null) => void,
): RunHistory {
  const startedAt = Date.now();
  let isOver = false;
  // A session that leaves no record here: its tools are in the audit trail.
  let isEmpty = true;
  return {
    stopped,
    see(event) {
      const { run, parent, worker, attachments } = event;
      const isRoot = run === root;
      if (event.type === "started" || event.type === "requested") isEmpty = false;
      if (event.type === "output") {
        if (isRoot || (event.service !== undefined && parent === root))
          recording.output(event.stream, event.chunk, event.service);
      } else if (event.type === "requested") {
        const names = attachments.slice(0, MAX_NAMES).map((name) => cut(name));
        const beside = present({ service: event.service });
        const called = {
          type: "called",
          run,
          parent,
          worker: cut(worker),
          at: now(),
          attachments: names,
          ...beside,
        } as const;
        if (!isRoot) recording.add(called, { mayBeLeftOut: true });
      } else if (event.type === "started" || event.type === "agent_started") {
        recording.add(startedOf(event), { mayBeLeftOut: !isRoot });
      } else if (event.type === "ended" && isRoot) {
        // An agent says its answer at its end.
        if (recording.outputBytes === 0) recording.output("stdout", Buffer.from(event.result.stdout));
        end(() => endedOf(run, event.result, recording.leftOut));
      } else if (event.type === "ended") {
        recording.add(endedOf(run, event.result, 0), { mayBeLeftOut: true });
      }
    },
    closed: ({ status, ...rest }: ClosedSession) => {
      if (isOver) return;
      isOver = true;
      if (isEmpty && rest.changeset === null) return end(null);
      const none = { exitCode: null, signal: null, error: null, cpuMs: null, memoryBytesPeak: null, agent: null };
      const durationMs = Math.max(0, Date.now() - startedAt);
      end(() => ({
        type: "ended",
        run: root,
        at: now(),
        status,
        ...none,
        durationMs,
        truncated: false,
        leftOut: recording.leftOut,
        ...rest,
        network: bounded(rest.network),
      }));
    },
  };
}

function startedOf(event: Extract<RunEvent, { type: "started" | "agent_started" }>): StartedEntry {
  const { run } = event;
  if (event.type === "started") {
    const { policy, image, limits } = event.plan;
    const what = { policy, image: image.name, model: null, limits: { ...limits }, held: heldIn(event.plan) };
    return { type: "started", run, at: now(), ...what };
  }
  const { policy, model, mounts, tools } = event;
  const held = {
    mounts: heldMounts(mounts),
    network: null,
    secrets: [],
    tools: tools.slice(0, MAX_NAMES).map((name) => cut(name)),
  };
  return { type: "started", run, at: now(), policy, image: null, model, limits: null, held };
}

/** Attachments are named with the call, and what is Corral's own no worker chose. */
function heldIn({ mounts, network, secrets = [] }: Plan): HeldEntry {
  const hosts = typeof network === "string" ? [] : network.rules.slice(0, MAX_NAMES).map(({ to }) => cut(to));
  return {
    mounts: heldMounts(mounts.filter(({ origin }) => origin === "sandbox")),
    network: network === "open" ? "open" : hosts,
    secrets: secrets.slice(0, MAX_NAMES).map((name) => cut(name)),
    tools: null,
  };
}

function heldMounts(mounts: readonly { readonly path: string; readonly mode: "ro" | "rw" }[]): HeldEntry["mounts"] {
  return mounts.slice(0, MAX_NAMES).map(({ path, mode }) => ({ path: cut(path, MAX_PATH), mode }));
}

function endedOf(run: string, result: RunResult, leftOut: number): EndedEntry {
  const { status, exitCode, signal, error, durationMs, truncated, changeset, usage, network, agent } = result;
  return {
    type: "ended",
    run,
    at: now(),
    status,
    exitCode,
    signal,
    error: error === null ? null : { code: error.code, message: cut(error.message, MAX_MESSAGE) },
    durationMs,
    cpuMs: usage.cpuMs,
    memoryBytesPeak: usage.memoryBytesPeak,
    truncated,
    changeset: changeset === null ? null : { id: changeset.id, counts: { ...changeset.counts } },
    network: bounded(network),
    agent: agent === undefined ? null : { ...agent },
    leftOut,
  };
}

function bounded(report: object | null | undefined): Readonly<Record<string, unknown>> | null {
  if (report === null || report === undefined || JSON.stringify(report).length > MAX_REPORT) return null;
  return { ...report } as Record<string, unknown>;
}

/** Null if there is none. An input that is no JSON is refused by the run. */
function digestOf(input: unknown): { bytes: number; sha256: string } | null {
  if (input === undefined) return null;
  try {
    const bytes = inputBytes(input);
    return { bytes: bytes.length, sha256: sha256(bytes) };
  } catch {
    return null;
  }
}

function cut(text: string, max = MAX_NAME): string {
  return text.length > max ? `${text.slice(0, max - 1)}…` : text;
}

function now(): string {
  return new Date().toISOString();
}

/** The audit trail of a project, to append to. `projectDir` is absolute, with no symbolic link in it. */
export async function openTrail(stateDir: string, projectDir: string): Promise<TrailFile> {
  const key = auditKey(await loadSealKey(stateDir), projectDir);
  return new TrailFile({ place: projectPaths(stateDir, projectDir).trail, key, owner: lockOwner() });
}

/** A worker may ask for ever and be denied each time; the trail must not grow with it. */
const MAX_REFUSALS_PER_TREE = 1000;
/** Approvals by rules and earlier answers are bounded too: each of them is recorded. */
const MAX_APPROVALS_PER_TREE = 20_000;
/** Trees that are counted at once; the one that was counted first is forgotten first. */
const MAX_TREES = 1000;

const LAST_NOTE = "further denied requests of this tree of runs are not recorded";
const TOO_MANY = `this tree of runs already had ${MAX_APPROVALS_PER_TREE} approvals, which is the limit`;
const NOT_RECORDED = "the approval could not be recorded in the audit trail, and nothing happens unrecorded";

/** Passes a decision on after it is recorded. An approval that cannot be recorded does not count. */
export class RecordedApprover implements Approver {
  readonly #approver: Approver;
  readonly #trail: AuditTrail;
  readonly #around: Pick<Records, "emit" | "now">;
  readonly #refusals = new Counts();
  readonly #approvals = new Counts();

  constructor(approver: Approver, trail: AuditTrail, around: Pick<Records, "emit" | "now">) {
    this.#approver = approver;
    this.#trail = trail;
    this.#around = around;
  }

  async decide(request: ApprovalRequest, signal: AbortSignal): Promise<Decision> {
    const askedAt = this.#around.now();
    const decided = await this.#answer(request, signal);
    const decision = this.#isTooMuch(request.root, decided) ? denied(TOO_MANY) : decided;
    const note = decision.outcome === "approved" ? undefined : this.#counted(request.root);
    if (note === "skip") return decision;
    const waitedMs = Math.round(this.#around.now() - askedAt);
    try {
      await this.#trail.append({ ...approvalDecided(request, decision, waitedMs), note });
      return decision;
    } catch (error) {
      const { run, root, worker } = request;
      const detail = (error as Error).message;
      this.#around.emit({ type: "trouble", run, root, parent: null, worker, attachments: [], detail });
      if (decision.outcome !== "approved") return decision;
      return { outcome: "denied", scope: "once", reason: NOT_RECORDED };
    }
  }

  /**
   * Rejects when the run is over. A run that is already over asks nothing: an approver that only listens for the end would
   * never notice. An approver that does not listen at all does not delay the run; its late answer is dropped.
   */
  async #answer(request: ApprovalRequest, signal: AbortSignal): Promise<Decision> {
    signal.throwIfAborted();
    const { promise: over, reject } = Promise.withResolvers<never>();
    using _ = onAbort(signal, () => reject(signal.reason));
    return await Promise.race([this.#approver.decide(request, signal), over]);
  }

  /** The note on the record of one more refusal; `skip` if there are enough. */
  #counted(root: string): string | undefined {
    const count = this.#refusals.next(root);
    if (count > MAX_REFUSALS_PER_TREE) return "skip";
    return count === MAX_REFUSALS_PER_TREE ? LAST_NOTE : undefined;
  }

  #isTooMuch(root: string, { outcome }: Decision): boolean {
    return outcome === "approved" && this.#approvals.next(root) > MAX_APPROVALS_PER_TREE;
  }
}

/** Counts by tree. */
class Counts {
  readonly #counts = new Map<string, number>();

  next(root: string): number {
    const count = (this.#counts.get(root) ?? 0) + 1;
    this.#counts.set(root, count);
    const [oldest] = this.#counts.keys();
    if (this.#counts.size > MAX_TREES && oldest !== undefined) this.#counts.delete(oldest);
    return count;
  }
}
