import { lstat } from "node:fs/promises";
import type { WorkerDefinition } from "../declarations/worker/worker.ts";
import type { RunEnvironment } from "../run/model/environment.ts";
import { type Attachment, type Job, type Narrow, rootJob } from "../run/model/job.ts";
import { checkRead, hostPathOf, parsePathIn } from "../sandbox/access.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { ItemRequest } from "./model/item.ts";

/** The parts of a job that all items of a fleet share. */
export interface FleetJob {
  readonly worker: WorkerDefinition;
  /** The project's sandbox, under the fleet's policy: the caller of every item. */
  readonly caller: Sandbox;
  readonly env: RunEnvironment;
}

/** One item as a job: the fleet's worker, narrowed to the paths that this item may access. */
export async function itemJob(
  { worker, caller, env }: FleetJob,
  item: ItemRequest,
  { run, signal, turn }: Pick<Job, "run" | "signal"> & { turn: () => Promise<void> },
): Promise<Job> {
  const attachments = await Promise.all(item.attachments.map((attachment) => resolved(attachment, caller)));
  const asked = { run, worker, callerSandbox: caller, signal, attachments, input: item.input };
  return { ...rootJob(asked, env.project.delegation), narrow: narrowOf(item), turn };
}

function narrowOf({ allowRead, allowWrite }: ItemRequest): Narrow | null {
  if (allowRead === undefined && allowWrite === undefined) return null;
  return { ...(allowRead && { allowRead }), ...(allowWrite && { allowWrite }) };
}

/**
 * A file on the host, or else in the project. The run opens it without following links, and refuses the item if it is not a
 * regular file.
 */
async function resolved({ path, name }: ItemRequest["attachments"][number], caller: Sandbox): Promise<Attachment> {
  const onHost = await lstat(path).catch(() => null);
  if (onHost !== null) return { name, host: path, asked: path };
  const parsed = parsePathIn(caller, path);
  const readable = parsed.ok && checkRead(caller, parsed.path) === null;
  return { name, host: (readable ? hostPathOf(caller, parsed.path) : null) ?? path, asked: path };
}
