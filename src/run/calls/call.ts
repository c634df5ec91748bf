import { posix } from "node:path";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import type { Hidden } from "../../files/model/files.ts";
import { ATTACHMENTS_PATH } from "../../isolation/plan/plan.ts";
import { carve, checkRead, governingMount, parsePathIn, readablePaths } from "../../sandbox/access.ts";
import { ConstraintError } from "../../sandbox/errors.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import type { Attachment, Job, Narrow } from "../model/job.ts";

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
export function resolveAttachments(raw: CallRequest["attachments"], { job, sandbox, hidden }: Caller) {
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
  return { host, ...(view === undefined ? {} : { view }) };
}

function readableFor(job: Job, sandbox: Sandbox): string[] {
  return [
    ...readablePaths(sandbox),
    ...job.attachments.map((attachment) => posix.join(ATTACHMENTS_PATH, attachment.name)),
  ];
}
