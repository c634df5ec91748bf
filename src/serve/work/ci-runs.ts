import { randomBytes } from "node:crypto";
import { ownerOfNewZone } from "../../declarations/place/zone-folder.ts";
import { keptResults, makeKeptResults, removeKeptResults, removeLeftOfCi } from "../../files/host/ci-folder.ts";
import { isRoot } from "../../files/host/descriptor.ts";
import { type ResultEntry, resultFile } from "../../files/host/results-folder.ts";
import { type CiEnd, type CiStepEnd, isGood } from "../../operations/ci/ci-end.ts";
import type { CiStep } from "../../operations/ci/plan-ci.ts";
import { type CiSource, runCi } from "../../operations/ci/run-ci.ts";
import type { MachinePlace } from "../../operations/machine.ts";
import { lockOwner } from "../../state/owner.ts";
import type { HidePaths } from "../http/answer.ts";
import { ServiceFault } from "../http/fault.ts";
import type { Log } from "../logging/log.ts";
import type { Metrics } from "../metrics/metrics.ts";
import type { CiOrder, CiRuns, ServedProject, ShownCi } from "../model/served.ts";

/** They share the machine. */
const MAX_RUNNING = 4;
/** Those that have ended are removed, the oldest first. */
const MAX_KEPT = 50;
const CONCURRENCY = 2;

interface Kept {
  readonly id: string;
  readonly project: ServedProject;
  readonly out: string;
  readonly startedAt: string;
  readonly stop: AbortController;
  source: CiSource | null;
  steps: readonly CiStep[];
  readonly ends: Map<string, CiStepEnd>;
  end: CiEnd | null;
  endedAt: string | null;
  why: string | null;
  ended: Promise<void>;
}

interface Parts {
  readonly machine: MachinePlace;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly hide: HidePaths;
  readonly over: AbortSignal;
}

/** The runs of jobs of the service. What they are stands in memory, and their results in `.corral/ci` of the project's folder. */
export class ServiceCi implements CiRuns, AsyncDisposable {
  readonly #parts: Parts;
  readonly #kept = new Map<string, Kept>();

  private constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** `dirs`: of the projects, in which a service that was killed may have left results. */
  static async open(parts: Parts, dirs: readonly string[]): Promise<ServiceCi> {
    for (const dir of dirs) await removeLeftOfCi(dir, lockOwner());
    return new ServiceCi(parts);
  }

  start({ project, ...asked }: CiOrder): string {
    if (this.all.filter(({ state }) => state === "running").length >= MAX_RUNNING)
      throw new ServiceFault(503, "TOO_MANY", `${MAX_RUNNING} runs of jobs are running already`);
    const id = randomBytes(6).toString("hex");
    const kept: Kept = {
      id,
      project,
      out: keptResults(project.dir, id),
      startedAt: new Date().toISOString(),
      stop: new AbortController(),
      source: null,
      steps: [],
      ends: new Map(),
      end: null,
      endedAt: null,
      why: null,
      ended: Promise.resolve(),
    };
    this.#kept.set(id, kept);
    kept.ended = this.#run(kept, asked);
    void this.#removeOld();
    return id;
  }

  get all(): readonly ShownCi[] {
    return [...this.#kept.values()].toReversed().map(shown);
  }

  find(id: string): ShownCi {
    return shown(this.#found(id));
  }

  ending(id: string): Promise<void> | null {
    const kept = this.#found(id);
    return kept.endedAt === null ? kept.ended : null;
  }

  file(id: string, path: string): ResultEntry {
    const kept = this.#found(id);
    const file = kept.endedAt === null ? null : resultFile(kept.out, path);
    if (file === null) throw new ServiceFault(404, "NOT_FOUND", "the results have no such file, or not yet");
    return file;
  }

  async remove(id: string): Promise<void> {
    const kept = this.#found(id);
    kept.stop.abort(new Error("the run of jobs was stopped"));
    await kept.ended;
    this.#kept.delete(id);
    await removeKeptResults(kept.project.dir, id);
  }

  /** When all have ended. */
  async idle(): Promise<void> {
    await Promise.allSettled([...this.#kept.values()].map(({ ended }) => ended));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.idle();
    for (const id of [...this.#kept.keys()]) await this.remove(id);
  }

  #found(id: string): Kept {
    const kept = this.#kept.get(id);
    if (kept === undefined) throw new ServiceFault(404, "UNKNOWN_CI", `the service has no run of jobs ${id}`);
    return kept;
  }

  async #run(kept: Kept, asked: Omit<CiOrder, "project">): Promise<void> {
    const { machine, log, metrics, hide, over } = this.#parts;
    const { id, project, out, stop } = kept;
    const of = { project: project.name, declares: () => true };
    try {
      const owner = isRoot() ? await ownerOfNewZone(project.dir) : null;
      await makeKeptResults(project.dir, id, owner, lockOwner());
      kept.end = await runCi({
        ...asked,
        cwd: project.dir,
        out,
        concurrency: CONCURRENCY,
        machine,
        signal: AbortSignal.any([over, stop.signal]),
        emit: (event) => metrics.see(event, of),
        onSource(source, steps) {
          kept.source = source;
          kept.steps = steps;
        },
        onStart: () => {},
        onEnd: (end) => kept.ends.set(end.step.name, end),
      });
      if (over.aborted || stop.signal.aborted) kept.why = "it was stopped before its end";
      log.info({ project: project.name, ci: id }, "run of jobs ended");
    } catch (error) {
      kept.why = hide((error as Error).message);
      log.warn({ project: project.name, ci: id, error: (error as Error).name }, "a run of jobs stopped");
    } finally {
      kept.endedAt = new Date().toISOString();
    }
  }

  async #removeOld(): Promise<void> {
    const ended = [...this.#kept.values()].filter(({ endedAt }) => endedAt !== null);
    for (const { id } of ended.slice(0, Math.max(0, this.#kept.size - MAX_KEPT))) await this.remove(id).catch(() => {});
  }
}

function shown({ id, project, source, steps, ends, end, startedAt, endedAt, why }: Kept): ShownCi {
  const isAllGood = end?.ends.every(({ status }) => isGood(status)) === true;
  return {
    id,
    project: project.name,
    state: endedAt === null ? "running" : why !== null ? "stopped" : isAllGood ? "succeeded" : "failed",
    base: source?.base ?? null,
    head: source?.head ?? null,
    isChanged: source?.isChanged ?? false,
    startedAt,
    endedAt,
    why,
    steps: steps.map(({ name, title, kind, needs }) => {
      const { status = null, result = null, reports = null } = ends.get(name) ?? {};
      const tests = reports?.tests ?? [];
      const failed = tests.filter((test) => test.status === "failed" || test.status === "error").length;
      // A step that was refused wrote no report, and of its tests nothing is known.
      const failedTests = tests.length === 0 ? null : failed;
      const { run = null, exitCode = null, durationMs = null } = result ?? {};
      return { name, title, kind, needs, status, run, exitCode, durationMs, failedTests };
    }),
  };
}
