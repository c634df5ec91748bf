import type { Duplex } from "node:stream";
import { setTimeout as pause } from "node:timers/promises";
import type { ServiceDefinition } from "../../declarations/worker/worker-yaml.ts";
import { canStartCommands } from "../../isolation/plan/plan-for.ts";
import type { ExecExit, SessionCell } from "../../isolation/port/cell.ts";
import { Disposables } from "../../platform/disposables.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { formatDuration } from "../../text/amounts.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import { type OpenedCell, openCell, serviceCell } from "../cell/open-cell.ts";
import { openStage } from "../changes/lent-attachments.ts";
import type { CellHost, Declared, Records } from "../model/environment.ts";
import type { RunIdentity } from "../model/events.ts";
import { identityOf, type Job } from "../model/job.ts";
import { maskedSession } from "../model/masked-output.ts";
import { type Ending, endingOf, type RunResult, refusedResult, unstartedResult } from "../model/result.ts";
import { execCommand } from "../session/exec-command.ts";
import { PortConnection } from "../session/session-ports.ts";
import { OutputDir } from "../session/write-room.ts";

/** How long one try of its `ready` command may take. */
const TRY_MS = 10_000;
const TRY_BYTES = 64 * 1024;
/** The first and the longest wait between two tries. */
const FIRST_WAIT_MS = 50;
const LAST_WAIT_MS = 1000;
/** What a service prints beyond its limit is read so slowly: a piece has at most 64 KiB. */
const SLOW_MS = 50;
const TAIL_BYTES = 2000;
const TAIL_LINES = 3;

/** A service that may run: its job, and what it has. */
export interface JudgedService {
  readonly definition: ServiceDefinition;
  readonly job: Job;
  readonly sandbox: Sandbox;
}

/** A service that is ready. Disposing removes its cell with everything in it. */
export interface RunningService extends AsyncDisposable {
  readonly definition: ServiceDefinition;
  /** How it ended by itself, in words; null: it runs. */
  readonly end: string | null;
  /** A connection to a port of it; null if nothing listens there. */
  connect(port: number, signal: AbortSignal): Promise<Duplex | null>;
}

export type ServiceStart =
  | { readonly ok: true; readonly service: RunningService }
  | { readonly ok: false; readonly violations: readonly Violation[] };

type Environment = Declared & CellHost & Records;

/**
 * Starts a service and waits until it is ready. It is recorded as a run of the tree. `onEnd` is called if it ends by itself later.
 * Rejects with `EngineTrouble` and with the reason of `signal`; nothing is left behind then.
 */
export async function startService(
  judged: JudgedService,
  env: Environment,
  { signal, onEnd }: { readonly signal: AbortSignal; readonly onEnd: (how: string) => void },
): Promise<ServiceStart> {
  const { definition, job } = judged;
  const record = new ServiceRecord({ ...identityOf(job), service: definition.name }, env);
  await using parts = new Disposables();
  // It is disposed of last: then nothing of the service is left.
  parts.use(record);
  const staging = await openStage(job, judged.sandbox, env);
  if (!staging.ok) return record.refused(staging.violations);
  const stage = parts.use(staging.stage);
  const output = parts.use(await OutputDir.make(env.ownerDir, job.run));
  const pipes = canStartCommands(stage.sandbox) ? { commandsDir: output.pipes } : {};
  const kind = serviceCell(stage, { outputDir: output.path, ...pipes });
  const { owner } = record;
  const opened = parts.use(await openCell({ job, sandbox: stage.sandbox, kind, owner, signal, accept: null }, env));
  if (!opened.ok) return record.refused(opened.violations);
  const { plan } = opened;
  const inside = opened.begin(owner, null);
  const cell = maskedSession(inside, env.masking, owner.root);
  record.maxBytes = plan.limits.outputBytes;
  const command = { argv: job.worker.command ?? [], cwd: plan.workingDir, env: {}, stdin: new Uint8Array() };
  const { exit } = await cell.exec({ ...command, onOutput: (stream, chunk) => record.printed(stream, chunk) });
  // What goes over its ports stays as it is: the worker may have each secret that the service has.
  const connect: RunningService["connect"] = (port, asked) => PortConnection.open(inside, port, asked);
  const reason = await notReady(definition, { opened, cell, connect, output, exit, now: env.now }, signal);
  if (reason !== null)
    return record.refused([
      { code: "SERVICE_NOT_READY", service: definition.name, reason, printed: record.lastLines() },
    ]);
  let end: string | null = null;
  let isOver = false;
  void exit.then((exited) => {
    if (isOver) return;
    end = endText(exited);
    record.endedAs(exited, end);
    // What it has left there is none of the service any more.
    opened.kill();
    onEnd(end);
  });
  record.isReady();
  const kept = parts.move();
  const service: RunningService = {
    definition,
    get end() {
      return end;
    },
    connect: async (port, asked) => (end === null ? await connect(port, asked) : null),
    async [Symbol.asyncDispose]() {
      isOver = true;
      await kept[Symbol.asyncDispose]();
    },
  };
  return { ok: true, service };
}

interface StartedService {
  readonly opened: Pick<OpenedCell<SessionCell>, "plan" | "overDisk">;
  readonly cell: SessionCell;
  readonly connect: RunningService["connect"];
  readonly output: OutputDir;
  readonly exit: Promise<ExecExit>;
  readonly now: () => number;
}

/** Why it is not ready within its time; null: it is. */
async function notReady(
  { ready, ports, readyWithinMs }: ServiceDefinition,
  { opened, cell, connect, output, exit, now }: StartedService,
  signal: AbortSignal,
): Promise<string | null> {
  let ended: ExecExit | null = null;
  const over = exit.then((exited) => {
    ended = exited;
  });
  const { plan, overDisk } = opened;
  const faultNow = async (id: string): Promise<string | null> => {
    if (ready !== undefined) {
      const command = { argv: ready, cwd: plan.workingDir, env: {}, stdin: new Uint8Array() };
      const bounds = { timeoutMs: TRY_MS, maxOutputBytes: TRY_BYTES, id, onOutput: () => undefined };
      const tried = await execCommand(cell, { ...command, ...bounds }, output, { signal, overDisk });
      if (tried.status !== "succeeded") return `its \`ready\` command ${endingText(tried)}`;
    }
    for (const port of ports) {
      const connection = await connect(port, signal);
      if (connection === null) return `nothing listens on its port ${port}`;
      connection.on("error", () => {}).destroy();
    }
    return null;
  };
  const until = now() + readyWithinMs;
  for (let tries = 1, waitMs = FIRST_WAIT_MS; ; tries += 1, waitMs = Math.min(2 * waitMs, LAST_WAIT_MS)) {
    // A cell that has just ended may have failed the try: how it ended is what counts.
    const fault = await faultNow(`ready-${tries}`).catch(async (error: unknown) => {
      signal.throwIfAborted();
      await Promise.race([over, pause(LAST_WAIT_MS)]);
      if (ended !== null) return "it has ended";
      // A program of Corral's own could not begin there: it may have too many processes.
      if (error instanceof ToolRefusal) return "nothing can connect to it";
      throw error;
    });
    signal.throwIfAborted();
    if (ended !== null) return `it ${endText(ended)} before`;
    if (fault === null) return null;
    if (now() >= until) return `${fault}, and it had ${formatDuration(readyWithinMs)}`;
    await Promise.race([over, pause(waitMs)]);
  }
}

function endText(exit: ExecExit): string {
  if (exit.kind === "lost") return `was lost: ${exit.reason}`;
  return endingText(endingOf({ ...exit, usage: { cpuMs: null, memoryBytesPeak: null } }, null));
}

function endingText({ status, exitCode, signal }: Ending): string {
  if (status === "timed_out") return `took longer than ${formatDuration(TRY_MS)}`;
  if (status === "oom_killed") return "was killed for using more memory than its limit";
  return signal === null ? `ended with exit code ${exitCode ?? "unknown"}` : `was ended by ${signal}`;
}

/** The events of one service. */
class ServiceRecord implements Disposable {
  readonly owner: RunIdentity;
  /** What it prints beyond that is read slowly. */
  maxBytes = 0;
  readonly #env: Records;
  readonly #begunAt: number;
  #result: RunResult;
  #tail = Buffer.alloc(0);
  #bytes = 0;

  constructor(owner: RunIdentity, env: Records) {
    this.owner = owner;
    this.#env = env;
    this.#begunAt = env.now();
    this.#result = unstartedResult(owner, "cancelled", {
      code: "CANCELLED",
      message: "It was ended before it was ready.",
    });
    env.emit({ type: "requested", ...owner });
  }

  refused(violations: readonly Violation[]): ServiceStart {
    this.#result = refusedResult(this.owner, violations);
    return { ok: false, violations };
  }

  /** From now on it is ended with its worker, as is right. */
  isReady(): void {
    this.#result = { ...this.#result, status: "succeeded", error: null };
  }

  endedAs(exit: ExecExit, text: string): void {
    const usage = { cpuMs: null, memoryBytesPeak: null };
    const ending = endingOf(exit.kind === "lost" ? exit : { ...exit, usage }, null);
    const status = ending.status === "succeeded" ? "failed" : ending.status;
    const message = `The service ${this.owner.service} ${text} while its worker ran.`;
    this.#result = { ...this.#result, ...ending, status, error: { code: "SERVICE_ENDED", message } };
  }

  printed(stream: "stdout" | "stderr", chunk: Buffer): Promise<void> | undefined {
    this.#env.emit({ type: "output", ...this.owner, stream, chunk });
    this.#tail = Buffer.concat([this.#tail, chunk.subarray(-TAIL_BYTES)]).subarray(-TAIL_BYTES);
    this.#bytes += chunk.length;
    return this.#bytes > this.maxBytes ? pause(SLOW_MS) : undefined;
  }

  lastLines(): string[] {
    const lines = this.#tail.toString("utf8").split("\n");
    return lines
      .map((line) => line.trim())
      .filter((line) => line !== "")
      .slice(-TAIL_LINES);
  }

  [Symbol.dispose](): void {
    const durationMs = Math.round(this.#env.now() - this.#begunAt);
    this.#env.emit({ type: "ended", ...this.owner, result: { ...this.#result, durationMs } });
  }
}
