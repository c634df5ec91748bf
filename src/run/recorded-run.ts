import { tmpdir } from "node:os";
import { dirname } from "node:path";
import type { Approver } from "../approval/approver.ts";
import { type AuditedRun, type AuditRecord, networkUsed } from "../audit/records.ts";
import type { AuditTrail } from "../audit/trail.ts";
import type { WorkerDefinition } from "../declarations/worker/worker.ts";
import { type Enforcement, grantedMounts, type Plan } from "../isolation/plan/plan.ts";
import type { CellExit } from "../isolation/port/cell.ts";
import { EngineTrouble } from "../isolation/port/driver.ts";
import { planHash } from "../isolation/port/labels.ts";
import { engineData } from "../isolation/sources/refused-sources.ts";
import { parseJson } from "../json/parse-json.ts";
import { DiskFull, fullPlace, fullText, isDiskFull, isHostTrouble } from "../platform/errno.ts";
import type { Masking } from "../secrets/read-secret.ts";
import { formatBytes, formatDuration } from "../text/amounts.ts";
import type { BegunRun, CellHost, Records, RunEnvironment, RunHistory } from "./model/environment.ts";
import type { Emit, RunEvent } from "./model/events.ts";
import { type BoundedOutput, identityOf, type Job, outputError, type SchemaChecks } from "./model/job.ts";
import {
  brokenResult,
  type Ending,
  endingOf,
  type RunError,
  type RunResult,
  type StopReason,
  unstartedResult,
} from "./model/result.ts";

/**
 * Runs a job by `act`, and reports it from its request to its end. Every outcome is a result, also a failure of the engine
 * and a cancellation. It rejects only for a bug, which is then the caller's to report; the run is recorded as lost.
 */
export async function recordedRun(job: Job, env: Recording, act: () => Promise<RunResult>): Promise<RunResult> {
  env.emit({ type: "requested", ...identityOf(job) });
  const requestedAt = env.now();
  const outcome = await outcomeOf(job, env, act).catch((error: unknown) => {
    env.emit({ type: "ended", ...identityOf(job), result: brokenResult({ run: job.run, worker: job.worker.name }) });
    if (job.parent === null) env.masking.release(job.root);
    throw error;
  });
  const result = env.masking.value(job.root, { ...outcome, durationMs: Math.round(env.now() - requestedAt) });
  env.emit({ type: "ended", ...identityOf(job), result });
  if (job.parent === null) env.masking.release(job.root);
  return result;
}

type Recording = Records & Pick<CellHost, "ownerDir" | "refusedSources">;

/** Why runs fail now whatever they do, with the folder and what to do; null: there is room where Corral, its Engine and these places are. */
export function fullDisk(
  written: readonly string[],
  { ownerDir, refusedSources }: Pick<CellHost, "ownerDir" | "refusedSources">,
): string | null {
  // The directory of this process is two below that of all state, which has a name that users know.
  const stateDir = dirname(dirname(ownerDir));
  const place = fullPlace([...written, stateDir, tmpdir(), ...engineData(refusedSources)]);
  return place === null ? null : fullText(place);
}

async function outcomeOf(job: Job, env: Recording, act: () => Promise<RunResult>): Promise<RunResult> {
  const unstarted = (status: "cancelled" | "lost", code: string, message: string): RunResult =>
    unstartedResult({ run: job.run, worker: job.worker.name }, status, { code, message });
  try {
    // It may have been cancelled while it waited for its turn.
    job.signal.throwIfAborted();
    return await act();
  } catch (error) {
    if (job.signal.aborted)
      return unstarted("cancelled", "CANCELLED", "The run was cancelled before its worker began.");
    const isHosts = isHostTrouble(error);
    if (!isHosts && !(error instanceof EngineTrouble)) throw error;
    // The system names no path of a file that was already open.
    const full = isDiskFull(error) && !(error instanceof DiskFull) ? fullDisk([], env) : null;
    env.emit({ type: "trouble", ...identityOf(job), detail: full ?? error.message });
    if (isHosts) {
      const message = `The host failed (${error.code}), not the worker. Free what it lacks, then run it again.`;
      return unstarted("lost", "HOST_TROUBLE", message);
    }
    const message = "The container engine failed, not the worker. `corral doctor` checks the engine.";
    return unstarted("lost", "ENGINE_TROUBLE", message);
  }
}

/** The environment of one root run whose events are kept in the history; and what stops it from outside. */
export function keptRun<Env extends Pick<RunEnvironment, "history" | "emit" | "masking">>(
  begun: BegunRun,
  env: Env,
): Pick<RunHistory, "stopped" | "closed"> & { readonly env: Env } {
  const kept = env.history.begin(begun);
  const { masking } = env;
  const see = maskedEmit((event) => kept.see(event), masking);
  const emit: Env["emit"] = (event) => {
    see(event);
    env.emit(event);
  };
  const closed: RunHistory["closed"] = (session) => kept.closed(masking.value(begun.run, session));
  return { env: { ...env, emit }, stopped: kept.stopped, closed };
}

export interface EndedCell {
  readonly exit: CellExit;
  readonly stopped: StopReason | null;
  readonly output: BoundedOutput;
  readonly enforcement: Enforcement;
  readonly calls: readonly RunResult[];
}

/** The result of a run whose worker began. */
export async function endedResult(
  worker: WorkerDefinition,
  plan: Plan,
  ended: EndedCell,
  schemas: SchemaChecks,
): Promise<RunResult> {
  const { exit, output } = ended;
  const stdout = output.text("stdout");
  const parsed =
    worker.output === "json" ? parseJson(stdout) : { ok: true as const, value: stdout === "" ? null : stdout };
  const known = endingOf(exit, ended.stopped);
  const notValid = parsed.ok && known.status === "succeeded" ? await outputError(worker, parsed.value, schemas) : null;
  const isWrong = !parsed.ok || notValid !== null;
  const ending: Ending = known.status === "succeeded" && isWrong ? { ...known, status: "failed" } : known;
  return {
    run: plan.run,
    worker: worker.name,
    ...ending,
    output: parsed.ok ? parsed.value : null,
    stdout,
    stderr: output.text("stderr"),
    truncated: output.truncated,
    violations: [],
    changes: [],
    changeset: null,
    durationMs: 0,
    usage:
      exit.kind === "exited"
        ? { ...exit.usage, outOfMemory: exit.outOfMemory }
        : { cpuMs: null, memoryBytesPeak: null, outOfMemory: null },
    enforcement: ended.enforcement,
    calls: ended.calls,
    error: notValid ?? errorOf(ending, exit, plan, parsed.ok ? null : parsed.problem),
  };
}

function errorOf(
  { status, exitCode, signal }: Ending,
  exit: CellExit,
  plan: Plan,
  notJson: string | null,
): RunError | null {
  const { worker: name, limits } = plan;
  const error = (code: string, how: string): RunError => ({ code, message: `Worker ${name} ${how}` });
  const atMost = formatDuration(limits.timeoutMs);
  const memory = formatBytes(limits.memoryBytes);
  const tooLarge =
    signal === "SIGXFSZ" ? `, as for a file larger than its limit of ${formatBytes(limits.diskBytes)}` : "";
  const byItself = `${signal}${tooLarge}${exitCode === null ? "" : `, or ended with exit code ${exitCode} itself`}`;
  switch (status) {
    case "succeeded":
      return null;
    case "failed":
      if (exitCode !== 0) return error("FAILED", `ended with exit code ${exitCode}.`);
      return error("OUTPUT_NOT_JSON", `declares \`output: json\`, and what it printed is not JSON: ${notJson}`);
    case "signaled":
      if (exit.kind === "lost" || exit.sent === undefined) return error("SIGNALED", `was ended by ${byItself}.`);
      return error(
        "SIGNALED",
        `was sent ${exit.sent} through the container engine, as by \`docker stop\` or \`docker kill\`, and ended with ${exitCode === null ? signal : `exit code ${exitCode}`}.`,
      );
    case "timed_out": {
      const how = `did not end within its time limit (at most ${atMost}, less if its caller's limit ends sooner).`;
      return error("TIMED_OUT", how);
    }
    case "oom_killed":
      return error("OUT_OF_MEMORY", `was killed for using more memory than its limit of ${memory}.`);
    case "output_limit":
      return error("OUTPUT_LIMIT", `printed more than its limit of ${formatBytes(limits.outputBytes)}, and was ended.`);
    case "disk_limit":
      return error(
        "DISK_LIMIT",
        `wrote more than its limit of ${formatBytes(limits.diskBytes)}: each file counts as the blocks that it takes, mostly 4 KiB or more.`,
      );
    case "cancelled":
      return { code: "CANCELLED", message: `The run of worker ${name} was cancelled.` };
    default:
      return { code: "LOST", message: "The container engine stopped answering. It is not known how the worker ended." };
  }
}

/**
 * Records the events of runs, and passes them on. No run waits for the disk: a run that cannot be recorded continues, and
 * the failure is reported once, until a record is written again.
 */
export function recordedEmit(emit: Emit, trail: AuditTrail): Emit {
  let told = false;
  // A cell that serves many items has one plan.
  const hashes = new WeakMap<Plan, string>();
  const hashOf = (plan: Plan): string => {
    const hash = hashes.get(plan) ?? planHash(plan);
    hashes.set(plan, hash);
    return hash;
  };
  return (event) => {
    const record = eventRecord(event, hashOf);
    if (record !== null) {
      const { run, root, parent, worker, attachments } = event;
      trail.append(record).then(
        () => {
          told = false;
        },
        (error: Error) => {
          if (told) return;
          told = true;
          emit({ type: "trouble", run, root, parent, worker, attachments, detail: error.message });
        },
      );
    }
    emit(event);
  };
}

/** The audit record of an event; null if it has none. */
function eventRecord(event: RunEvent, hashOf: (plan: Plan) => string): AuditRecord | null {
  const { run, root, worker } = event;
  switch (event.type) {
    case "requested":
      return {
        type: "run_requested",
        run,
        root,
        worker,
        parent: event.parent,
        attachments: event.attachments,
        arguments: event.arguments,
        continues: event.continues,
      };
    case "started":
      return startedRecord({ run, root, worker }, event, hashOf(event.plan));
    case "agent_started": {
      const { type, model, tools, policy, mounts } = event;
      return { type, run, root, worker, model, tools, policy, mounts };
    }
    case "network_denied":
      return { type: "egress", run, root, worker, allowed: [], denied: [event.denied], unlisted: 0, whole: false };
    case "network_used":
      return networkUsed({ run, root, worker }, event.report);
    case "ended":
      return endedRecord({ run, root, worker }, event.result);
    default:
      return null;
  }
}

function startedRecord(
  of: AuditedRun,
  { plan, driver }: Extract<RunEvent, { type: "started" }>,
  hash: string,
): AuditRecord {
  const mounts = grantedMounts(plan).map(({ path, mode }) => ({ path, mode }));
  const { policy, image, environments } = plan;
  const network = typeof plan.network === "string" ? plan.network : plan.network.rules.map(({ to }) => to).join(", ");
  return { type: "run_started", ...of, plan: hash, driver, policy, image, environments, network, mounts };
}

function endedRecord(of: AuditedRun, result: RunResult): AuditRecord {
  const { status, exitCode, signal, error, violations, durationMs } = result;
  if (status === "refused") {
    // Where nothing was violated, the error says why.
    const reasons = violations.length > 0 ? violations : error === null ? [] : [error];
    const codes = reasons.map(({ code }) => code);
    return { type: "refused", ...of, codes, messages: reasons.map(({ message }) => message) };
  }
  const codes = [...new Set([...(error === null ? [] : [error.code]), ...violations.map(({ code }) => code)])];
  // The list of changes may be cut; the counts are of all of them.
  const counted = Object.entries(result.changeset?.counts ?? {}).filter(([, count]) => count > 0);
  const changes = Object.fromEntries(counted);
  return { type: "run_ended", ...of, status, exitCode, signal, codes, changes, durationMs };
}

/* What leaves a tree of runs, without the secrets that are inside of its cells. */

/** Output is masked where it is read: a secret may be split between two pieces of it. */
export function maskedEmit(emit: Emit, masking: Masking): Emit {
  return (event) => emit(event.type === "output" ? event : masking.value(event.root, event));
}

export function maskedTrail(trail: AuditTrail, masking: Masking): AuditTrail {
  return { append: (record) => trail.append("root" in record ? masking.value(record.root, record) : record) };
}

/** Who decides sees that there is a secret, and not which. */
export function maskedApprover(approver: Approver, masking: Masking): Approver {
  return { decide: (request, signal) => approver.decide(masking.value(request.root, request), signal) };
}
