import { posix } from "node:path";
import PQueue from "p-queue";
import { TooManyChanges } from "../../changes/scan/scan.ts";
import type { Stage } from "../../changes/stage.ts";
import { boundedWrites, type GuardedFiles, guarded } from "../../files/guarded.ts";
import { openHostFiles } from "../../files/host/host-files.ts";
import type { Files, Hidden } from "../../files/model/files.ts";
import type { DiskBaseline } from "../../isolation/disk/disk-watch.ts";
import { ATTACHMENTS_PATH, OUTPUT_PATH } from "../../isolation/plan/plan.ts";
import { canonicalMounts } from "../../sandbox/access.ts";
import type { Mount } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import { present } from "../../text/present.ts";
import type {
  AccessToolAnswer,
  AccessToolRequest,
  AgreementRequest,
  CallToolAnswer,
  CallToolRequest,
  CommitAnswer,
  CoveredEffect,
  ExecToolAnswer,
  ExecToolRequest,
  Hands,
} from "../../tools/hands.ts";
import { runTool } from "../../tools/run-tool.ts";
import { ToolRefusal, type ToolResult } from "../../tools/tool.ts";
import type { CallRequest } from "../calls/call.ts";
import type { RunNetwork } from "../cell/run-network.ts";
import { destinationOf, settleChanges } from "../changes/settle.ts";
import { changesOf } from "../changes/settled-run.ts";
import { requestAccess, surroundingsOf, type Use, usedGranting } from "../grants/access-request.ts";
import type { CellHost, Declared, Destinations, Records, RunConsent } from "../model/environment.ts";
import type { GrantChange, Grantee } from "../model/grantee.ts";
import type { Attachment, Job } from "../model/job.ts";
import { type RunResult, reported } from "../model/result.ts";
import { knownFacts } from "../model/worker-images.ts";
import { type AskConsent, agreedCommand, askFor, refuseUnfit } from "./checked-command.ts";
import type { Commands, OnOutput } from "./exec-command.ts";
import { usefulTools } from "./offered-tools.ts";
import { SessionGit } from "./session-git.ts";
import type { SnapshotOrigin } from "./session-snapshots.ts";
import type { CommandStart, StartedCommand } from "./started-commands.ts";
import { type OutputDir, WriteRoom } from "./write-room.ts";

/**
 * The files of one sandbox for tools, held open: what it grants, the run's attachments, and the long output of commands
 * if there is any.
 */
class SandboxFiles implements Disposable {
  readonly #output: OutputDir;
  readonly #hostFiles: Files;
  readonly #granted: GuardedFiles;
  readonly #withOutput: GuardedFiles;

  constructor(
    sandbox: Sandbox,
    attachments: readonly Attachment[],
    output: OutputDir,
    room: WriteRoom,
    hidden: Hidden,
  ) {
    const attached = attachments.map(attachmentMount);
    const granted = { ...sandbox, mounts: [...sandbox.mounts, ...attached] };
    const shown = withOutput(granted, output.path);
    this.#output = output;
    this.#hostFiles = openHostFiles(shown.mounts);
    const files = boundedWrites(this.#hostFiles, room.maxBytes);
    this.#granted = room.holding(guarded(files, attached.length === 0 ? sandbox : granted, hidden));
    this.#withOutput = room.holding(guarded(files, shown, hidden));
  }

  get guarded(): GuardedFiles {
    return this.#output.isUsed ? this.#withOutput : this.#granted;
  }

  [Symbol.dispose](): void {
    this.#hostFiles[Symbol.dispose]();
  }
}

/** A single file, as in a cell; it must still be the one that the caller was given. */
function attachmentMount({ name, host, identity }: Attachment): Mount & { readonly identity?: string } {
  return {
    name,
    path: posix.join(ATTACHMENTS_PATH, name) as VirtualPath,
    host,
    mode: "ro",
    approval: { write: "blocked", delete: "blocked" },
    ...present({ identity }),
  };
}

/** The sandbox with one more directory, which only Corral writes: the whole output of commands. */
function withOutput(sandbox: Sandbox, host: string): Sandbox {
  const mount: Mount = {
    name: ".corral",
    path: posix.normalize(OUTPUT_PATH) as VirtualPath,
    host,
    mode: "ro",
    approval: { write: "blocked", delete: "blocked" },
  };
  return { ...sandbox, mounts: canonicalMounts([...sandbox.mounts, mount]) };
}

/** Each is recorded in the audit trail with its changes. */
const MAX_COMMITS = 500;

/**
 * The commits of one session, one after another: each is compared with the state after the previous one. Each applies
 * the changes so far for which there is consent.
 */
function commitsOf(job: Job, stage: Stage, env: Declared & RunConsent & Destinations & Pick<Records, "masking">) {
  const queue = new PQueue({ concurrency: 1 });
  // The session's end counts as the first.
  let count = 1;
  return async (signal: AbortSignal): Promise<CommitAnswer> =>
    await queue.add(async () => {
      signal.throwIfAborted();
      if (count > MAX_COMMITS) throw new ToolRefusal("COMMIT_LIMIT", TOO_MANY);
      count += 1;
      return await commitSoFar(job, stage, count, env, signal);
    });
}

const TOO_MANY = `A run commits at most ${MAX_COMMITS} times; the rest is applied at its end.`;

/** Applies the changes of a run so far, for which there is consent; the run continues. The rest stays in its view. */
async function commitSoFar(
  job: Job,
  stage: Stage,
  commit: number,
  env: Declared & RunConsent & Destinations & Pick<Records, "masking">,
  signal: AbortSignal,
): Promise<CommitAnswer> {
  const collected = await stage
    .collectSoFar(changesOf(job, env, commit), { signal, search: env.masking.search(job.root) })
    .catch((error: unknown) => {
      if (error instanceof TooManyChanges)
        throw new ToolRefusal("CHANGES_NOT_TAKEN", `Nothing was applied: ${error.message}.`);
      throw error;
    });
  if (collected === null) return { changes: [], decision: null };
  await using _ = collected;
  const into = destinationOf(job, stage, env);
  // What was not approved stays in the view; it is asked about again at the end of the run.
  const staying = { ...into, keep: async () => {} };
  const { outcomes, decision } = await settleChanges(collected, job, staying, env, signal);
  const applied = outcomes.filter(({ outcome }) => outcome === "applied").map(({ change }) => change.index);
  stage.applied(collected.changeset, new Set(applied));
  return { changes: reported(outcomes), decision };
}

/**
 * What was shown and approved in one use of a tool: exactly this needs no second consent when it is applied. Programs in a
 * cell may write there before, at the same moment and afterwards, so it is compared by the digest of the content.
 */
class AgreedInTool {
  readonly #covered: CoveredEffect[] = [];

  add({ covered }: AgreementRequest): void {
    this.#covered.push(...covered);
  }

  async tell(stage: Stage): Promise<void> {
    for (const effect of this.#covered) {
      if (effect.operation === "delete") stage.agreedToDelete(effect.path);
      else await stage.agreedToDiff(effect.path, effect);
    }
  }
}

export interface SessionParts {
  readonly job: Job;
  readonly grantee: Grantee;
  readonly stage: Stage;
  readonly network: RunNetwork;
  readonly env: Declared & CellHost & RunConsent & Records & Destinations;
  /** Calls another worker for the job. */
  readonly call: (request: CallRequest, signal: AbortSignal) => Promise<RunResult>;
  /** Absent: no snapshots of it can be taken. */
  readonly snapshots?: SnapshotOrigin;
  /** True if no command of the job's own worker runs beside it: each tool is then recorded by itself. */
  readonly standalone: boolean;
}

export interface SessionHandsRequest extends SessionParts {
  readonly output: OutputDir;
  /** What tools and the session's cells write counts together. */
  readonly baseline: DiskBaseline;
  readonly cell: Commands;
  /** Aborted when the session ends. */
  readonly over: AbortSignal;
}

type Only = readonly string[] | null;

export interface ToolCall {
  readonly name: string;
  readonly rawInput: unknown;
  /** The hosts that the command that uses it is limited to; null: no such command uses it. */
  readonly only: Only;
  readonly onOutput?: OnOutput | undefined;
}

/** A call by a command that is limited to some hosts: the called worker has no others. */
export function lessBy(only: Only, request: CallRequest): CallRequest {
  return only === null ? request : { ...request, narrow: { ...request.narrow, network: only } };
}

/** What a session's tools act with: its files, and everything that needs consent. Follows what the run is granted. */
export class SessionHands implements Hands, Disposable {
  readonly git: SessionGit;
  /** Applies the changes so far for which there is consent. The session continues. */
  readonly commit: Hands["commit"];
  readonly #request: SessionHandsRequest;
  readonly #ask: AskConsent;
  /** How much tools and commands together may write. */
  readonly #room: WriteRoom;
  readonly #stopListening: () => void;
  readonly #running = new Set<Promise<unknown>>();
  #files: SandboxFiles;

  constructor(request: SessionHandsRequest) {
    const { job, grantee, stage, env, baseline } = request;
    this.#request = request;
    this.#ask = askFor(job, env);
    this.commit = commitsOf(job, stage, env);
    this.#room = new WriteRoom(stage, baseline, env);
    this.#files = this.#filesOf(stage.sandbox);
    this.#stopListening = grantee.onChange((change) => this.#adopted(change));
    this.git = new SessionGit({
      job,
      env,
      sandbox: () => stage.sandbox,
      files: () => this.files,
      agreedTo: (shown) => stage.agreedToDiff(shown.path, shown),
      ask: this.#ask,
    });
  }

  get files(): GuardedFiles {
    return this.#files.guarded;
  }

  get offered(): Hands["offered"] {
    const { job, stage } = this.#request;
    return usefulTools(job.worker, stage.sandbox);
  }

  /** Uses a tool. If it is refused because a path is outside the sandbox, it runs again when the directory is granted. */
  async use(call: ToolCall, signal: AbortSignal): Promise<ToolResult> {
    const result = this.#used(call, signal);
    this.#running.add(result);
    try {
      return await result;
    } finally {
      this.#running.delete(result);
    }
  }

  /** Acts while no file of the sandbox is open here. No tool may be in use. */
  async withoutFiles<T>(act: () => Promise<T>): Promise<T> {
    this.#files[Symbol.dispose]();
    try {
      return await act();
    } finally {
      this.#files = this.#filesOf(this.#request.stage.sandbox);
    }
  }

  /** Settles when no tool is in use. */
  async idle(): Promise<void> {
    await Promise.allSettled(this.#running);
  }

  async agree({ operation, path, diff, hostExecuted }: AgreementRequest, signal: AbortSignal): Promise<void> {
    const apart = hostExecuted.length === 0 ? {} : { hostExecuted };
    const what = { operations: [operation], paths: [path], ...(diff === "" ? {} : { diff }), ...apart };
    await this.#ask(what, `${operation} ${path}`, signal);
  }

  /** `onOutput` receives each piece of output as it comes; the answer holds it as well, cut if it is long. */
  async exec(
    asked: ExecToolRequest,
    signal: AbortSignal,
    onOutput: OnOutput = () => undefined,
  ): Promise<ExecToolAnswer> {
    const { job, env, cell, over } = this.#request;
    const volumes = async () => (await knownFacts(job.worker, env).catch(() => null))?.volumes ?? [];
    const { sandbox } = this.#request.stage;
    const refuse = (request: ExecToolRequest) => refuseUnfit(request, sandbox, volumes);
    const under = { rules: job.worker.shellRules, sandbox };
    const request = await agreedCommand(asked, under, this.#ask, refuse, signal);
    const stopped = AbortSignal.any([signal, job.signal, over]);
    await env.grants.look();
    return await cell.exec(request, stopped, onOutput);
  }

  /** Starts a command, and does not wait for it. `isOwn`: a person types at it, as in a shell of the machine's user: no rule can judge that. */
  async start(asked: CommandStart, isOwn: boolean, signal: AbortSignal): Promise<StartedCommand> {
    const { job, env, cell, over, stage } = this.#request;
    const volumes = async () => (await knownFacts(job.worker, env).catch(() => null))?.volumes ?? [];
    const refuse = (request: ExecToolRequest) => refuseUnfit(request, stage.sandbox, volumes);
    const under = { rules: job.worker.shellRules, sandbox: stage.sandbox };
    const request = isOwn ? asked : await agreedCommand(asked, under, this.#ask, refuse, signal);
    await env.grants.look();
    const stopped = AbortSignal.any([signal, job.signal, over]);
    // Hosts that a rule grants one command are for one that runs alone: this has those of its session.
    return await cell.start({ ...asked, command: request.command }, stopped);
  }

  async call(request: CallToolRequest, signal: AbortSignal, only: Only = null): Promise<CallToolAnswer> {
    const asked = { ...request, input: request.input, narrow: null };
    const result = await this.#request.call(lessBy(only, asked), signal);
    const { status, output, error } = result;
    return { status, output, error, result: { ...result } };
  }

  async access(request: AccessToolRequest, signal: AbortSignal, only: Only = null): Promise<AccessToolAnswer> {
    const { job, grantee, env } = this.#request;
    return await requestAccess(request, grantee, surroundingsOf(job, env), signal, only);
  }

  [Symbol.dispose](): void {
    this.#stopListening();
    this.#files[Symbol.dispose]();
  }

  async #used({ name, rawInput, only, onOutput }: ToolCall, signal: AbortSignal): Promise<ToolResult> {
    const { job, grantee, stage, env, cell } = this.#request;
    const agreed = new AgreedInTool();
    const use: Use = async (under) => {
      using files = under === null ? null : this.#filesOf(under);
      const hands = this.#noting(agreed, () => (files ?? this.#files).guarded, only, onOutput);
      return await runTool(name, rawInput, hands, signal);
    };
    const cellIsOld = (): boolean => cell.isStale;
    const around = surroundingsOf(job, env);
    const result = await usedGranting({ name, rawInput, use, cellIsOld }, grantee, around, signal);
    // Consent given here is not asked for again when the change is applied.
    if (result.ok) await agreed.tell(stage);
    return result;
  }

  /** The same hands for one use of a tool. They record what was approved in it. */
  #noting(agreed: AgreedInTool, files: () => GuardedFiles, only: Only, onOutput?: OnOutput): Hands {
    const { offered } = this;
    return {
      get files() {
        return files();
      },
      offered,
      agree: async (request, signal) => {
        await this.agree(request, signal);
        agreed.add(request);
      },
      exec: (request, signal) => this.exec(request, signal, onOutput),
      call: (request, signal) => this.call(request, signal, only),
      access: (request, signal) => this.access(request, signal, only),
      commit: this.commit,
      git: this.git,
    };
  }

  /** A tool in use keeps the files that it started with. */
  #adopted(change: GrantChange): void {
    const { stage, cell } = this.#request;
    const before = this.#files;
    this.#files = this.#filesOf(stage.sandbox);
    void this.idle().then(() => before[Symbol.dispose]());
    if (change === "granted") cell.replaceBeforeNext();
    else cell.endNow();
  }

  #filesOf(sandbox: Sandbox): SandboxFiles {
    const { job, output, stage } = this.#request;
    return new SandboxFiles(sandbox, job.attachments, output, this.#room, stage.hidden);
  }
}
