import type { WorkerDefinition } from "../declarations/worker/worker.ts";
import type { Enforcement } from "../isolation/plan/enforcement.ts";
import type { Plan } from "../isolation/plan/plan.ts";
import type { CellExit } from "../isolation/port/cell.ts";
import { parseJson } from "../json/parse-json.ts";
import { formatBytes, formatDuration } from "../sandbox/units.ts";
import type { BoundedOutput } from "./model/output.ts";
import { type Ending, endingOf, type RunError, type RunResult, type StopReason } from "./model/result.ts";
import { outputError, type SchemaChecks } from "./model/schema-check.ts";

export interface Ended {
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
  ended: Ended,
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
  switch (status) {
    case "succeeded":
      return null;
    case "failed":
      if (exitCode !== 0) return error("FAILED", `ended with exit code ${exitCode}.`);
      return error("OUTPUT_NOT_JSON", `declares \`output: json\`, and what it printed is not JSON: ${notJson}`);
    case "signaled":
      if (exit.kind === "lost" || exit.sent === undefined) return error("SIGNALED", `was ended by ${signal}.`);
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
      return error("DISK_LIMIT", `wrote more than its limit of ${formatBytes(limits.diskBytes)}.`);
    case "cancelled":
      return { code: "CANCELLED", message: `The run of worker ${name} was cancelled.` };
    default:
      return { code: "LOST", message: "The container engine stopped answering. It is not known how the worker ended." };
  }
}
