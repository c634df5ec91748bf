import { basename } from "node:path";
import type { WorkerDefinition } from "../declarations/worker/worker.ts";
import { attachedFile } from "../run/attached-file.ts";
import type { RunEnvironment } from "../run/model/environment.ts";
import type { Attachment } from "../run/model/job.ts";
import { permissionOf, rootSandbox } from "../run/model/permission.ts";
import { describeAll, type RunResult } from "../run/model/result.ts";
import { run } from "../run/run.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { printableLine } from "../text/visible.ts";
import { continuedRun } from "./continued-run.ts";
import { RequestError, refusedError } from "./request-error.ts";

/**
 * A file for a worker to read, by its path: a file of the host, or else, if nothing is there, a virtual path of the
 * project. `name` is its name below `/attachments`; absent: the last part of the path.
 */
export type AttachedPath = string | { readonly path: string; readonly name?: string };

export interface WorkerRun {
  readonly worker: WorkerDefinition;
  /** The arguments of its command that the user gave, for the audit trail. Absent: none. */
  readonly words?: readonly string[];
  /** JSON for the worker's standard input, or for an agent to read; absent: none. */
  readonly input?: unknown;
  readonly attachments?: readonly AttachedPath[];
  /** For an agent: the id of a run of it that has ended, whose conversation is continued. */
  readonly continues?: string;
  /** Absolute: where relative paths of attachments begin. */
  readonly cwd: string;
  /** Instead of the project's policy; null: the project's. */
  readonly policy: string | null;
  /** Asks about every host that it tries to reach. Absent: false. */
  readonly learnsNetwork?: boolean;
  /** Applies what the worker changed even if it fails, where this needs no further consent. Absent: false, and it waits. */
  readonly appliesFailed?: boolean;
  /** Cancels the run: it ends as `cancelled`, and nothing is left of it. */
  readonly signal: AbortSignal;
}

/**
 * Runs a worker by itself. A failure, a refusal and a denial are results as well.
 *
 * @throws RequestError ATTACHMENT, UNKNOWN_TRANSCRIPT, CONTINUE before anything runs
 */
export async function runWorker(request: WorkerRun, env: RunEnvironment): Promise<RunResult> {
  const {
    worker,
    words = [],
    input,
    attachments = [],
    cwd,
    policy,
    learnsNetwork = false,
    appliesFailed = false,
    signal,
  } = request;
  const continues =
    request.continues === undefined
      ? {}
      : { continues: await continuedRun(request.continues, worker, env.transcripts) };
  const files =
    attachments.length === 0 ? [] : await resolveAttachments(attachments, await rootSandbox(env, policy, worker), cwd);
  return await run(
    {
      worker,
      words,
      input,
      attachments: files,
      signal,
      learnsNetwork,
      appliesFailed,
      ...continues,
      ...(policy === null ? {} : { policy }),
    },
    env,
  );
}

/**
 * `project`: what its virtual paths mean. Names, and whether a worker takes the files, are checked by the run.
 *
 * @throws RequestError ATTACHMENT
 */
export async function resolveAttachments(
  paths: readonly AttachedPath[],
  project: Sandbox,
  cwd: string,
): Promise<readonly Attachment[]> {
  const attachments: Attachment[] = [];
  for (const one of paths) {
    const { path, name = basename(path) } = typeof one === "string" ? { path: one } : one;
    const file = await attachedFile(path, project, cwd);
    if (!file.ok)
      throw new RequestError("ATTACHMENT", path, `cannot attach ${printableLine(path, 500)}: ${file.reason}`);
    attachments.push({ name, host: file.host });
  }
  return attachments;
}

/**
 * The sandbox of a worker that is run by itself; with null, what the project gives.
 *
 * @throws RequestError WORKER_REFUSED with every violation, if the worker may not have what its file asks for
 */
export async function workerSandbox(
  worker: WorkerDefinition | null,
  policy: string | null,
  env: RunEnvironment,
): Promise<Sandbox> {
  const project = await rootSandbox(env, policy, worker ?? undefined);
  if (worker === null) return project;
  const derivation = await permissionOf(worker, project, null, env);
  if (!derivation.ok) throw refusedError("WORKER_REFUSED", worker.name, describeAll(derivation.violations));
  return derivation.sandbox;
}
