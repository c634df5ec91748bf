import { posix } from "node:path";
import type { ApprovalRequest } from "../../approval/approver.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import type { Hidden } from "../../files/model/files.ts";
import { ATTACHMENTS_PATH } from "../../isolation/plan/plan.ts";
import { sha256 } from "../../platform/sha256.ts";
import { carve, checkRead, governingMount, parsePathIn, readablePaths } from "../../sandbox/access.ts";
import { type Consent as Agreement, consentOf, strictest } from "../../sandbox/approval.ts";
import { ConstraintError } from "../../sandbox/errors.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import { present } from "../../text/present.ts";
import type { RunConsent } from "../model/environment.ts";
import type { Attachment, Job, Narrow } from "../model/job.ts";

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
  { approver }: Pick<RunConsent, "approver">,
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

/** What a running worker asks for through its broker. Raw: nothing in it has been checked. */
export interface CallRequest {
  readonly worker: string;
  readonly input: unknown;
  readonly attachments: readonly { readonly path: string; readonly name?: string }[];
  readonly narrow: Narrow | null;
}

/** The run that calls: its job, the sandbox that it runs in, and its own attachments as its cell has them. */
export interface Caller {
  readonly job: Job;
  readonly sandbox: Sandbox;
  readonly hidden: Hidden;
}

/** What is not allowed about the call itself; `derive` judges permissions. */
export function callViolations(
  name: string,
  caller: Pick<Caller, "job">,
  workers: ReadonlyMap<string, WorkerDefinition>,
): Violation[] {
  const { job } = caller;
  const listed = job.worker.calls;
  const path = [...job.path, name];
  const violations: Violation[] = [];
  if (!listed.includes(name)) violations.push({ code: "CALL_NOT_LISTED", asked: name, valid: listed });
  else if (!workers.has(name))
    violations.push({ code: "WORKER_UNKNOWN", asked: name, valid: [...workers.keys()].sort() });
  if (job.path.includes(name)) violations.push({ code: "CALL_CYCLE", path });
  if (path.length > job.tree.maxDepth) violations.push({ code: "CALL_TOO_DEEP", path, max: job.tree.maxDepth });
  return violations;
}

/** Attachments must be readable in the caller's sandbox, or be attachments that the caller was itself given. */
export function resolveCallAttachments(raw: CallRequest["attachments"], { job, sandbox, hidden }: Caller) {
  const attachments: Attachment[] = [];
  const violations: Violation[] = [];
  const taken = new Set<string>();
  for (const { path, name = posix.basename(path) } of raw) {
    const refuse = (reason: string): void => {
      violations.push({ code: "ATTACHMENT_REFUSED", path, reason, valid: readableFor(job, sandbox) });
    };
    if (!isAttachmentName(name)) refuse(notAName(name));
    else if (taken.has(name)) refuse(nameTaken(name));
    else {
      taken.add(name);
      const found = locate(path, { job, sandbox, hidden });
      if (typeof found === "string") refuse(found);
      else attachments.push({ ...found, name, asked: path });
    }
  }
  return { attachments, violations };
}

/** What is wrong with the names of a root run's attachments: they become paths in its cell. */
export function nameViolations(attachments: readonly Attachment[]): Violation[] {
  return attachments.flatMap(({ name }, index): Violation[] => {
    const refuse = (reason: string): Violation[] => [{ code: "ATTACHMENT_REFUSED", path: name, reason, valid: [] }];
    if (!isAttachmentName(name)) return refuse(notAName(name));
    const earlier = attachments.slice(0, index).some((attachment) => attachment.name === name);
    return earlier ? refuse(nameTaken(name)) : [];
  });
}

const notAName = (name: string): string => `${JSON.stringify(name)} is not the name of a file`;
const nameTaken = (name: string): string => `there is another attachment of the name ${name}`;

/** One file name, without a separator; it becomes a path in the cell and a line in the gate's list. */
export function isAttachmentName(name: string): boolean {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused.
  return name !== "." && name !== ".." && Buffer.byteLength(name) <= 255 && /^[^/\u0000-\u001f\u007f]+$/.test(name);
}

function locate(path: string, { job, sandbox, hidden }: Caller): Omit<Attachment, "name" | "asked"> | string {
  const own = job.attachments.find(
    (attachment) => posix.join(ATTACHMENTS_PATH, attachment.name) === posix.normalize(path),
  );
  if (own !== undefined) {
    const { name: _, asked: __, ...file } = own;
    return file;
  }
  const parsed = parsePathIn(sandbox, path);
  if (!parsed.ok) return parsed.reason;
  const mount = governingMount(sandbox, parsed.path);
  if (mount === undefined) return "it is outside the sandbox of the caller";
  const size = hidden.sizeAt(parsed.path);
  const refusal = checkRead(sandbox, parsed.path, size === null ? {} : { size });
  if (refusal instanceof ConstraintError) return refusal.reason;
  const { host, view } = carve(mount, parsed.path);
  return { host, ...present({ view }) };
}

function readableFor(job: Job, sandbox: Sandbox): string[] {
  return [
    ...readablePaths(sandbox),
    ...job.attachments.map((attachment) => posix.join(ATTACHMENTS_PATH, attachment.name)),
  ];
}
