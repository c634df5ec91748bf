import type { Approver } from "../../approval/approver.ts";
import { type AuditedRun, type AuditRecord, networkUsed } from "../../audit/records.ts";
import type { AuditTrail } from "../../audit/trail.ts";
import { grantedMounts, type Plan } from "../../isolation/plan/plan.ts";
import { planHash } from "../../isolation/port/labels.ts";
import type { Masking } from "../../secrets/read-secret.ts";
import type { Emit, RunEvent } from "../model/events.ts";
import type { RunResult } from "../model/result.ts";

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
