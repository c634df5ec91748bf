import type { ApprovalRequest } from "../../approval/approver.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { sha256 } from "../../platform/sha256.ts";
import { type Consent as Agreement, consentOf, strictest } from "../../sandbox/approval.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import type { Consent } from "../model/environment.ts";
import type { Attachment } from "../model/job.ts";
import type { Caller, CallRequest } from "./call.ts";

/** The most of an input that a person reads. */
const MAX_SHOWN_CHARS = 4_000;

interface CallConsent {
  readonly consent: Agreement;
  /** The mounts that ask for it, or block it. */
  readonly paths: readonly VirtualPath[];
}

/**
 * The consent that a worker needs for a call. Any mount that it sees counts, whether the call hands on its files or not: what
 * was read there can be in the input. A worker's own `approval.call` counts without any mount.
 */
export function callConsent({ needs }: Pick<WorkerDefinition, "needs">, { mounts }: Sandbox): CallConsent {
  const said = mounts.map(({ path, approval }) => ({ path, consent: consentOf(approval, "call") }));
  const consent = strictest(consentOf(needs.approval, "call"), ...said.map((one) => one.consent));
  return { consent, paths: said.filter((one) => one.consent === consent).map(({ path }) => path) };
}

/** Why the call may not be made. If it needs consent, the user is asked first. */
export async function agreedToCall(
  request: CallRequest,
  attachments: readonly Attachment[],
  { job, sandbox }: Caller,
  { approver }: Pick<Consent, "approver">,
  signal: AbortSignal,
): Promise<Violation[]> {
  const needed = callConsent(job.worker, sandbox);
  if (needed.consent === "pre_approved") return [];
  if (needed.consent === "blocked") return [notApproved(request.worker, needed, null)];
  const { run, root, worker, path } = job;
  const asked: ApprovalRequest = {
    run,
    root,
    worker: worker.name,
    through: path,
    operations: ["call"],
    callee: request.worker,
    paths: attachments.map(({ name, asked: from }) => from ?? name),
    ...(request.input === undefined ? {} : { input: shown(request.input) }),
  };
  try {
    const { outcome, reason } = await approver.decide(asked, signal);
    if (outcome === "approved") return [];
    const why = outcome === "timed_out" ? "no answer came in time" : `it was denied: ${reason}`;
    return [notApproved(request.worker, needed, why)];
  } catch (error) {
    if (!signal.aborted) throw error;
    return [notApproved(request.worker, needed, "the run ended before there was an answer")];
  }
}

export function notApproved(asked: string, { paths }: CallConsent, reason: string | null): Violation {
  return { code: "CALL_NOT_APPROVED", asked, paths, reason };
}

function shown(input: unknown): string {
  const text = JSON.stringify(input);
  if (text.length <= MAX_SHOWN_CHARS) return text;
  // Questions that look the same get one answer: another input must not look like this one.
  return `${text.slice(0, MAX_SHOWN_CHARS).toWellFormed()}… and ${text.length - MAX_SHOWN_CHARS} characters more, SHA-256 ${sha256(text)}`;
}
