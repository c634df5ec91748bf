import { posix } from "node:path";
import type { AttachmentRules, WorkerDefinition } from "../../declarations/worker/worker.ts";
import type { Anchor } from "../../isolation/plan/mounts.ts";
import { ATTACHMENTS_PATH } from "../../isolation/plan/plan.ts";
import { type PinRefusal, type Pins, pinSources } from "../../isolation/sources/pin.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { counted, formatBytes } from "../../text/amounts.ts";
import type { CellHost } from "../model/environment.ts";
import type { Attachment, Job } from "../model/job.ts";

/** A run's attachments, held open; for a run that has no plan of its own. */
export type PinnedAttachments = AsyncDisposable &
  ({ readonly ok: true; readonly pins: Pins } | { readonly ok: false; readonly violations: readonly Violation[] });

export async function pinAttachments(
  job: Pick<Job, "worker" | "attachments">,
  sandbox: Sandbox,
  env: CellHost,
): Promise<PinnedAttachments> {
  const viewed = job.attachments.filter(({ view }) => view !== undefined).map(({ host }) => host);
  const hosts = job.attachments.map(({ host }) => host);
  const pinning = await pinSources(hosts, env.refusedSources, viewed);
  if (!pinning.ok) {
    const violations = pinning.refusals.flatMap((refusal) => sourceViolations(refusal, sandbox, [], job.attachments));
    return { ok: false, violations, [Symbol.asyncDispose]: async () => {} };
  }
  const { pins } = pinning;
  const violations = attachmentViolations(job, pins);
  const close = (): PromiseLike<void> => pins[Symbol.asyncDispose]();
  return violations.length > 0
    ? { ok: false, violations, [Symbol.asyncDispose]: close }
    : { ok: true, pins, [Symbol.asyncDispose]: close };
}

/** A refused source by the paths at which the worker would have seen it; an attachment by the one that its caller wrote. */
export function sourceViolations(
  { host, reason }: PinRefusal,
  { mounts }: Pick<Sandbox, "mounts">,
  anchors: readonly Pick<Anchor, "path" | "host">[],
  attachments: readonly Attachment[],
): Violation[] {
  const places = [...mounts, ...anchors].filter((place) => place.host === host).map(({ path }) => path as string);
  const files = attachments.filter((file) => file.host === host).map(knownAs);
  return [...places, ...files].map((path) => ({ code: "MOUNT_SOURCE_REFUSED", path, reason }));
}

/** Its path for the caller that handed it over. */
export function knownAs({ name, asked }: Attachment): string {
  return asked ?? posix.join(ATTACHMENTS_PATH, name);
}

/** What is wrong with files that are held open: what they are, and how many and how large the worker takes. */
export function attachmentViolations(
  { worker, attachments }: Pick<Job, "worker" | "attachments">,
  pins: Pins,
): Violation[] {
  const violations: Violation[] = [];
  for (const attachment of attachments) {
    const { host, identity } = attachment;
    const source = pins.sources.get(host);
    const path = knownAs(attachment);
    const refuse = (reason: string): number => violations.push({ code: "MOUNT_SOURCE_REFUSED", path, reason });
    if (source?.kind !== "file") refuse("an attachment is one regular file");
    else if (identity !== undefined && identity !== `${source.device}:${source.inode}`) {
      refuse("it is not the file any more that its caller was given");
    }
  }
  const bytes = attachments.reduce((sum, { host }) => sum + (pins.sources.get(host)?.bytes ?? 0), 0);
  return [...violations, ...ruleViolations(worker, attachments, bytes)];
}

function ruleViolations(
  { name: worker, attachments: rules }: Pick<WorkerDefinition, "name" | "attachments">,
  attachments: readonly Attachment[],
  bytes: number,
): Violation[] {
  const { maxCount, maxBytes, suffixes }: AttachmentRules = rules ?? {};
  const violations: Violation[] = [];
  const refuse = (reason: string): number => violations.push({ code: "ATTACHMENTS_NOT_TAKEN", worker, reason });
  if (maxCount !== undefined && attachments.length > maxCount)
    refuse(`it takes at most ${counted(maxCount, "attachment")}, and was given ${attachments.length}`);
  if (maxBytes !== undefined && bytes > maxBytes)
    refuse(`it takes at most ${formatBytes(maxBytes)} of attachments, and was given ${formatBytes(bytes)}`);
  for (const { name } of suffixes === undefined ? [] : attachments) {
    const fits = suffixes?.some((suffix) => name.toLowerCase().endsWith(suffix));
    if (fits !== true) refuse(`it takes only files ending in ${suffixes?.join(", ")}, and was given ${name}`);
  }
  return violations;
}
