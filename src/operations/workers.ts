import { basename } from "node:path";
import type { ModelMessage } from "ai";
import { MAX_CONTINUED, transcriptFrom } from "../agent/loop.ts";
import type { Transcripts } from "../agent/transcript.ts";
import { loadProject, type Project, ProjectError } from "../declarations/project.ts";
import { isOnlyForSessions, type WorkerDefinition } from "../declarations/worker/worker.ts";
import { DeclarationError, describeProblem } from "../declarations/yaml/problem.ts";
import { attachedFile } from "../run/attached-file.ts";
import { type Explanation, explain } from "../run/explain/explain.ts";
import type { RunEnvironment } from "../run/model/environment.ts";
import type { Attachment, Continued } from "../run/model/job.ts";
import { permissionOf, rootSandbox } from "../run/model/permission.ts";
import { describeAll, type RunResult } from "../run/model/result.ts";
import { openPreview } from "../run/open/preview.ts";
import { type RunRequest, run } from "../run/run.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { currentOwner, isDead, parseOwner } from "../state/owner.ts";
import { printableLine } from "../text/visible.ts";
import { transcriptId } from "./audit.ts";
import type { MachinePlace } from "./machine.ts";
import { RequestError, refusedError, unknownError } from "./request-error.ts";

/**
 * The conversation of an agent's run that has ended, for another run of the same worker. It carries no rights: the new run's
 * sandbox is derived from the project's files as they are now. `asked`: the run's id, a prefix of it, or `latest`.
 *
 * @throws RequestError UNKNOWN_TRANSCRIPT, AMBIGUOUS_ID, CONTINUE
 */
async function continuedRun(asked: string, worker: WorkerDefinition, transcripts: Transcripts): Promise<Continued> {
  const shown = printableLine(asked, 80);
  const refused = (why: string): RequestError =>
    new RequestError("CONTINUE", asked, `cannot continue run ${shown}: ${why}`);
  if (worker.agent === undefined)
    throw refused(`worker ${worker.name} is no agent; only the run of an agent (\`model:\`) can be continued`);
  const unknown = () => {
    const message = `there is no transcript of a run ${shown}; \`corral transcripts ls\` lists them`;
    return new RequestError("UNKNOWN_TRANSCRIPT", asked, message);
  };
  const run = await transcriptId(asked, transcripts, unknown);
  const conversations: (readonly ModelMessage[])[] = [];
  for (let next: string | undefined = run; next !== undefined; ) {
    const text: string | null = await transcripts.read(next);
    if (text === null && next === run) throw unknown();
    if (text === null) throw refused(`the transcript of run ${next}, which it continues, does not exist any more`);
    const found = transcriptFrom(text);
    if (found === null) throw refused("its transcript is not complete: a line of it cannot be read; start a new run");
    const { head, end, messages } = found;
    if (head.worker !== worker.name)
      throw refused(`it is a run of worker ${printableLine(head.worker, 80)}, and not of ${worker.name}`);
    if (head.run !== head.root)
      throw refused(`it was called by another run; continue that (${printableLine(head.root, 20)})`);
    if (end === null) throw refused(isRunning(head.owner) ? STILL_RUNNING : INCOMPLETE);
    conversations.unshift(messages);
    if (conversations.length > MAX_CONTINUED) throw refused(`more than ${MAX_CONTINUED} runs continue each other`);
    next = head.continues;
  }
  return { run, messages: conversations.flat() };
}

const STILL_RUNNING = "it is still running; wait until it has ended, or cancel it";
const INCOMPLETE =
  "its transcript is not complete: its process was killed, or the transcript became too long; start a new run";

function isRunning(text: string | undefined): boolean {
  const owner = text === undefined ? null : parseOwner(text);
  return owner !== null && !isDead(owner, currentOwner());
}

/**
 * A file for a worker to read, by its path: a file of the host, or else, if nothing is there, a virtual path of the
 * project. `name` is its name below `/attachments`; absent: the last part of the path.
 */
export type AttachedPath = string | { readonly path: string; readonly name?: string };

export interface WorkerRun extends Omit<RunRequest, "attachments" | "continues" | "policy"> {
  readonly attachments?: readonly AttachedPath[];
  /** For an agent: the id of a run of it that has ended, whose conversation is continued. */
  readonly continues?: string;
  /** Absolute: where relative paths of attachments begin. */
  readonly cwd: string;
  /** Instead of the project's policy; null: the project's. */
  readonly policy: string | null;
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
    stdin,
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
      ...(stdin === undefined ? {} : { stdin }),
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

/** The worker of this name. @throws RequestError UNKNOWN_WORKER, which names the nearest or all that there are */
export function workerNamed(name: string, { workers }: Pick<Project, "workers">): WorkerDefinition {
  const worker = workers.get(name);
  if (worker === undefined)
    throw unknownError("UNKNOWN_WORKER", "worker", name, [...workers.keys()].sort(), "the project has none");
  return worker;
}

/** The worker with further arguments of its command. @throws RequestError ARGUMENTS if it takes none */
export function withArguments(worker: WorkerDefinition, words: readonly string[]): WorkerDefinition {
  const { name, command, takesArguments = false } = worker;
  if (words.length === 0) return worker;
  const asked = words.join(" ");
  if (isOnlyForSessions(worker))
    throw new RequestError(
      "ARGUMENTS",
      asked,
      `${name} has no command, to which they could be appended: it is only for sessions`,
    );
  if (command === null)
    throw new RequestError("ARGUMENTS", asked, `${name} is an agent and takes no arguments; give it \`--input\``);
  if (!takesArguments)
    throw new RequestError(
      "ARGUMENTS",
      asked,
      `${name} takes no arguments; \`arguments: true\` in its file lets a user append some to its command`,
    );
  return { ...worker, command: [...command, ...words] };
}

/**
 * What a worker and all that it may call would get, and what took away the rest. Runs nothing; without an Engine it has
 * no plans.
 *
 * @throws UnknownPolicyError
 */
export async function explainWorker(
  worker: WorkerDefinition,
  { project, policy, ...machine }: MachinePlace & { readonly project: Project; readonly policy: string | null },
): Promise<Explanation> {
  return await explain(worker, policy, await openPreview(project, machine));
}

/** A worker of a project, as a list shows it. */
export interface ListedWorker {
  readonly name: string;
  readonly description: string;
  /** The file, as it was found. */
  readonly file: string;
  readonly image: string;
  /** Of an agent; null: it runs a command. */
  readonly model: string | null;
  /** The policy of a run by itself; null: that of the project, whose files are wrong. */
  readonly policy: string | null;
  readonly calls: readonly string[];
}

/**
 * All workers of a project's folder, by name. If its files have mistakes: those with whose own files nothing is wrong, and every
 * mistake, as `corral check` says it. Runs nothing.
 */
export async function listWorkers(
  dir: string,
  env: Readonly<Record<string, string | undefined>>,
): Promise<{ readonly workers: readonly ListedWorker[]; readonly problems: readonly string[] }> {
  try {
    const { workers, policyName } = await loadProject(dir, env);
    return { workers: listed(workers, policyName), problems: [] };
  } catch (error) {
    if (!(error instanceof DeclarationError)) throw error;
    const sound = error instanceof ProjectError ? listed(error.sound, null) : [];
    return { workers: sound, problems: error.problems.map(describeProblem) };
  }
}

function listed(workers: ReadonlyMap<string, WorkerDefinition>, projectPolicy: string | null): ListedWorker[] {
  return [...workers.values()].map(({ name, description, file, image, model, calls, policyName }) => {
    return { name, description, file, image, model, policy: policyName ?? projectPolicy, calls };
  });
}
