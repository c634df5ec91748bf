import type { WorkerDefinition } from "../declarations/worker/worker.ts";
import type { RunEnvironment } from "../run/model/environment.ts";
import { permissionOf, rootSandbox } from "../run/model/permission.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { formatDuration } from "../sandbox/units.ts";
import type { Violation } from "../sandbox/violation.ts";
import type { FleetSpec } from "./model/item.ts";

/** What the worker of a fleet may do, before an Engine is asked; or why the fleet cannot run. */
export type FleetPermission =
  | {
      readonly ok: true;
      readonly worker: WorkerDefinition;
      /** The project's sandbox, under the fleet's policy. */
      readonly caller: Sandbox;
      readonly sandbox: Sandbox;
    }
  | { readonly ok: false; readonly violations: readonly Violation[] }
  | { readonly ok: false; readonly reason: string };

export async function fleetPermission(spec: FleetSpec, run: RunEnvironment): Promise<FleetPermission> {
  const declared = run.project.workers.get(spec.worker);
  if (declared === undefined) return { ok: false, reason: `there is no worker ${spec.worker}` };
  const caller = await rootSandbox(run, spec.policy, declared);
  const own = await permissionOf(declared, caller, null, run);
  if (!own.ok) return own;
  const tooLong = whyTooLong(spec, own.sandbox);
  if (tooLong !== null) return { ok: false, reason: tooLong };
  const worker = spec.timeoutMs === null ? declared : withTimeout(declared, spec.timeoutMs);
  const derivation = spec.timeoutMs === null ? own : await permissionOf(worker, caller, null, run);
  if (!derivation.ok) return derivation;
  const { sandbox } = derivation;
  const refusal = spec.reuse === "scrubbed" ? whyNotScrubbed(worker, sandbox) : null;
  if (refusal !== null) return { ok: false, reason: refusal };
  return { ok: true, worker, caller, sandbox };
}

/** A fleet only narrows its worker. */
function whyTooLong({ worker, timeoutMs }: FleetSpec, { limits, policy }: Sandbox): string | null {
  const limit = limits.timeoutMs ?? policy.maxLimits.timeoutMs;
  if (timeoutMs === null || timeoutMs <= limit) return null;
  return `the timeout ${formatDuration(timeoutMs)} is longer than the limit of worker ${worker}, which is ${formatDuration(limit)}: use a shorter one, or raise \`timeout\` in the worker's \`limits\``;
}

/** As if the worker's file declared it. */
function withTimeout(worker: WorkerDefinition, timeoutMs: number): WorkerDefinition {
  return { ...worker, needs: { ...worker.needs, limits: { ...worker.needs.limits, timeoutMs } } };
}

/** Why the worker's items cannot share a cell; null if they can. */
function whyNotScrubbed(worker: WorkerDefinition, sandbox: Sandbox): string | null {
  if (sandbox.policy.reuse !== "scrubbed")
    return `the policy ${sandbox.policy.name} does not allow \`reuse: scrubbed\`; use \`fresh\`, or a policy that does, such as batch`;
  if (sandbox.secrets !== undefined)
    return `worker ${worker.name} has secrets inside, and a cell that serves many items holds none: use \`reuse: fresh\``;
  const { seccomp, readOnlyRoot, noNewPrivileges, rootUser, capabilities } = sandbox.policy.hardening;
  if (seccomp !== "corral" || !readOnlyRoot || !noNewPrivileges || rootUser || capabilities.length > 0)
    return `the policy ${sandbox.policy.name} weakens the isolation between items of a shared cell (seccomp, root user, capabilities or the read-only root): use \`reuse: fresh\``;
  if (worker.agent !== undefined) return "an agent has no command that a shared cell can run: use `reuse: fresh`";
  if (worker.attachments !== undefined)
    return "a worker that declares `attachments` needs its own cell for each item: use `reuse: fresh`";
  if (worker.calls.length > 0)
    return "a worker that calls other workers needs its own cell for each item: use `reuse: fresh`";
  if (process.geteuid?.() !== 0)
    return "`reuse: scrubbed` needs Corral to run as root, because scrubbing removes files that items must not reach: use `reuse: fresh`";
  return null;
}
