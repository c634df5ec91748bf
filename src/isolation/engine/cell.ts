import { readFile, readlink } from "node:fs/promises";
import { constants } from "node:os";
import type { Duplex } from "node:stream";
import { setTimeout as pause } from "node:timers/promises";
import Docker from "dockerode";
import { z } from "zod";
import { boundedText } from "../../json/parse-json.ts";
import { written } from "../../platform/byte-streams.ts";
import { Agent } from "../../platform/http.ts";
import { present } from "../../text/present.ts";
import { commandArguments, FirstLine, processInCell } from "../commands/command-cell.ts";
import type { CellProcess } from "../commands/command-pipes.ts";
import { UsageSampler } from "../kernel/control-group.ts";
import { endedFromOutside, type FirstProcess } from "../kernel/first-process.ts";
import type { Enforcement, PlannedUser } from "../plan/plan.ts";
import type { Cell, CellExit, CellUsage, Exec, ExecRequest, TerminalSize } from "../port/cell.ts";
import { EngineTrouble } from "../port/driver.ts";
import {
  ANYTHING,
  answerOf,
  asked,
  ContainerState,
  engineMessage,
  engineTrouble,
  inTime,
  isConflict,
  isGone,
  told,
} from "./answers/asked.ts";
import { type AttachedStreams, Demultiplexer, type OnChunk } from "./attachment.ts";
import { firstProcessOf, measureOf, unnamedBytes } from "./container-config.ts";

/** How long the streams of an ended container may take to drain. */
const DRAIN_MS = 5000;
/** How often a broken wait is repeated while the Engine still answers. */
const MAX_WAITS = 5;

/** How often the Engine is asked about a worker whose streams have ended, until its wait is answered. */
const PATROL_MS = 1000;

/** What the Engine answers to a wait; with `Error` if it could not find out how the container ended. */
const WaitAnswer = z.object({ StatusCode: z.int(), Error: z.object({ Message: z.string() }).nullish() });

interface DockerCellParts {
  readonly docker: Docker;
  readonly container: Docker.Container;
  readonly attachment: AttachedStreams;
  /** The wait that began before the start. */
  readonly wait: Promise<unknown>;
  readonly enforcement: Enforcement;
  /** What the gate reads before the worker's input. */
  readonly ahead: Buffer;
  readonly listen: Cell["listen"];
  readonly remove: () => Promise<void>;
}

/** A verified container whose worker waits behind the gate. */
export function dockerCell({
  docker,
  container,
  attachment,
  wait,
  enforcement,
  ahead,
  listen,
  remove,
}: DockerCellParts): Cell {
  const sampler = new UsageSampler(() => measureOf(container));
  let killed = false;
  const first = firstProcessOf(container.id);
  const known = { first, usage: () => sampler.last(), killed: () => killed };
  const exit = ended(docker, container, attachment, wait, known).finally(() => sampler.stop());
  return {
    id: container.id,
    enforcement,
    exit,
    release(input, rest) {
      sampler.begin();
      attachment.release(ahead.length === 0 ? input : Buffer.concat([ahead, input]), rest);
    },
    listen,
    unnamedBytes: () => unnamedBytes(container),
    kill(signal) {
      killed = true;
      const engine = (): Promise<void> => kill(container, signal);
      return signal === "SIGKILL" ? endedFromOutside(first, engine) : engine();
    },
    async [Symbol.asyncDispose]() {
      sampler.stop();
      attachment.close();
      await endedFromOutside(first, remove);
    },
  };
}

async function ended(
  docker: Docker,
  container: Docker.Container,
  attachment: AttachedStreams,
  wait: Promise<unknown>,
  { first, usage, killed }: { first: FirstProcess | null; usage: () => CellUsage; killed: () => boolean },
): Promise<CellExit> {
  const over = new AbortController();
  try {
    const code = await Promise.race([
      exitCode(container, wait),
      patrolledExit(container, attachment, over.signal),
      cutOff(attachment, first),
    ]);
    if (code === CUT_OFF) return { kind: "lost", reason: OUTPUT_BROKE };
    const output = await drained(attachment);
    const [State, sent] = await Promise.all([stateOf(container), killed() ? null : signalSent(docker, container)]);
    if (State.Running || State.ExitCode !== code)
      return { kind: "lost", reason: `the Engine reports the exit codes ${code} and ${State.ExitCode} for one end` };
    if (ENDED_BY_SHUTDOWN.has(code) && !killed() && !(await isListening(container)))
      return { kind: "lost", reason: "the Engine was stopped and ended the worker" };
    if (output === "broken") return { kind: "lost", reason: OUTPUT_BROKE };
    if (!attachment.hasBegun() && !killed()) return { kind: "lost", reason: "the cell ended before its worker began" };
    const bySignal = attachment.endedBySignal(code);
    const further = present({ bySignal, sent: sent ?? undefined });
    return { kind: "exited", code, outOfMemory: State.OOMKilled, usage: usage(), ...further };
  } catch (error) {
    return { kind: "lost", reason: engineMessage(error) };
  } finally {
    over.abort();
    attachment.close();
  }
}

const OUTPUT_BROKE = "the connection that carried the worker's output broke";
const CUT_OFF = "cut off";

/** The first process keeps the output open for as long as it lives: output that ends before was cut off. */
async function cutOff(attachment: AttachedStreams, first: FirstProcess | null): Promise<typeof CUT_OFF> {
  await attachment.ended;
  return first?.isAlive() ? CUT_OFF : await new Promise<never>(() => {});
}

async function stateOf(container: Docker.Container): Promise<z.infer<typeof ContainerState>["State"]> {
  return (await asked(() => container.inspect(), ContainerState)).State;
}

/** Signals that are sent to end a program: any other may have another meaning for it. */
const ENDING_SIGNALS: readonly NodeJS.Signals[] = ["SIGTERM", "SIGKILL", "SIGINT", "SIGQUIT"];
/** The Engine remembers 256 events, each with all labels of its container. */
const MAX_EVENTS_BYTES = 4 * 1024 ** 2;

/**
 * The last signal of these that a client of the Engine sent to a container that Corral did not kill; null if there was none, or it is not
 * known. A worker that ends well after it was told to end has not succeeded.
 */
async function signalSent(docker: Docker, container: Docker.Container): Promise<NodeJS.Signals | null> {
  try {
    const filters = { container: [container.id], event: ["kill"] };
    const events: unknown = await inTime(docker.getEvents({ since: 0, until: Date.now() / 1000, filters }));
    const text = await inTime(boundedText(events as AsyncIterable<Buffer>, { maxBytes: MAX_EVENTS_BYTES }));
    const sent = (text ?? "").split("\n").flatMap((line) => {
      const number = line === "" ? 0 : Number(answerOf(JSON.parse(line), KillEvent).Actor.Attributes.signal);
      return ENDING_SIGNALS.filter((name) => constants.signals[name] === number);
    });
    return sent.at(-1) ?? null;
  } catch {
    return null;
  }
}

const KillEvent = z.object({ Actor: z.object({ Attributes: z.object({ signal: z.string() }) }) });

/** 128 + SIGTERM, and 128 + SIGKILL: what an Engine that is stopped does to its containers. */
const ENDED_BY_SHUTDOWN: ReadonlySet<number> = new Set([143, 137]);

/**
 * An Engine that is being stopped still answers on its open connections while it ends its containers, but accepts no
 * new one. Then it is not known how the worker would have ended.
 */
async function isListening({ modem }: Docker.Container): Promise<boolean> {
  const { socketPath, host, port, protocol } = modem as Docker.DockerOptions;
  if (protocol === "https") return true;
  const options = { socketPath, host, port, protocol, agent: new Agent({ keepAlive: false }) };
  const docker = new Docker(options as Docker.DockerOptions);
  return await asked(() => docker.ping(), ANYTHING).then(
    () => true,
    () => false,
  );
}

/**
 * The client does not notice if the Engine dies before it answers a wait. The streams end then, so from their end on
 * the Engine is asked for the container's state. A worker may also have closed its streams and still run.
 */
async function patrolledExit(
  container: Docker.Container,
  attachment: AttachedStreams,
  over: AbortSignal,
): Promise<number> {
  await attachment.ended;
  for (;;) {
    await pause(PATROL_MS, undefined, { signal: over, ref: false });
    const State = await stateOf(container);
    if (!State.Running && State.Status === "exited") return State.ExitCode;
  }
}

/** A wait can break while the Engine still runs: it is repeated. If the Engine does not answer, the exit is not known. */
async function exitCode(container: Docker.Container, wait: Promise<unknown>): Promise<number> {
  let pending = wait;
  for (let attempt = 1; ; attempt += 1) {
    try {
      const { StatusCode, Error: trouble } = answerOf(await pending, WaitAnswer);
      if (trouble) throw new EngineTrouble(trouble.Message);
      return StatusCode;
    } catch (error) {
      if (attempt === MAX_WAITS) throw error;
      const State = await stateOf(container);
      if (!State.Running && State.Status === "exited") return State.ExitCode;
      pending = container.wait();
    }
  }
}

async function drained(attachment: AttachedStreams): Promise<"complete" | "broken"> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<"broken">((resolve) => {
    timer = setTimeout(() => resolve("broken"), DRAIN_MS);
  });
  try {
    return await Promise.race([attachment.ended, late]);
  } finally {
    clearTimeout(timer);
  }
}

async function kill(container: Docker.Container, signal: "SIGTERM" | "SIGKILL"): Promise<void> {
  try {
    await asked(() => container.kill({ signal }), ANYTHING);
  } catch (error) {
    // It is not running any more.
    if (!isGone(error) && !isConflict(error)) throw engineTrouble(error);
  }
}

/** The Engine knows the exit code shortly after the streams end. It is asked this often, at intervals that grow from the first to the last. */
const MAX_INSPECTIONS = 100;
const FIRST_INTERVAL_MS = 5;
const LAST_INTERVAL_MS = 100;

/** How a command in a running container ended, as the Engine reports it. */
export type RawExit =
  | {
      readonly kind: "exited";
      readonly code: number;
      readonly cellAlive: boolean;
      /** Processes that were killed for memory before it began; null if not known. */
      readonly oomKillsBefore: number | null;
    }
  | { readonly kind: "lost"; readonly reason: string };

export type EngineExec = Omit<Exec, "exit" | "signal"> & {
  readonly exit: Promise<RawExit>;
  /** Null if it has ended, or if this process cannot see it. */
  readonly process: () => Promise<CellProcess | null>;
};

/** Starts a command in a running container, with the container's own hardening and the worker's rights. */
export async function execIn(
  container: Docker.Container,
  user: PlannedUser,
  request: ExecRequest,
): Promise<EngineExec> {
  return await told(startExec(container, user, request));
}

async function startExec(container: Docker.Container, user: PlannedUser, request: ExecRequest): Promise<EngineExec> {
  const tty = request.tty !== undefined;
  // One that is made and not started does nothing, so a failed call may be repeated.
  const makeExec = (): Promise<Docker.Exec> =>
    container.exec({
      Cmd: commandArguments(request, !tty),
      WorkingDir: "/",
      Env: Object.entries(request.env).map(([name, value]) => `${name}=${value}`),
      User: `${user.uid}:${user.gid}`,
      AttachStdin: true,
      AttachStdout: true,
      AttachStderr: true,
      Tty: tty,
    });
  const exec = await asked(makeExec, MadeExec);
  const stream = await inTime(exec.start({ hijack: true, stdin: true, Tty: tty }) as Promise<Duplex>);
  // A command that ends without reading its input breaks the pipe; the Engine reports how it ended.
  stream.on("error", () => {});
  const beginning = tty ? null : new FirstLine();
  const isWhole = deliver(stream, beginning, heldBack(stream, request.onOutput));
  const ended = new Promise<boolean>((resolve) => {
    stream.once("end", () => resolve(isWhole())).once("close", () => resolve(false));
  });
  if (request.stdin !== undefined) stream.end(request.stdin);
  const resize = async ({ columns, rows }: TerminalSize): Promise<void> => {
    // A terminal may be resized just as its command ends, which is no failure.
    await exec.resize({ h: rows, w: columns }).catch(() => {});
  };
  if (request.tty !== undefined) await resize(request.tty);
  return {
    exit: ended.then((whole) => exitOf(container, exec, beginning, whole)),
    write: (chunk) => written(stream, chunk),
    closeInput: () => void stream.end(),
    resize,
    process: async () => {
      const { Pid: pid } = await told(inTime(exec.inspect()));
      // Where this process does not share the Engine's numbers of processes, that is another one.
      const groups = await readFile(`/proc/${pid}/cgroup`, "latin1").catch(() => "");
      return groups.includes(container.id) ? await processInCell(pid) : null;
    },
  };
}

/** Pauses the stream while the caller still processes what was read: the command waits, and memory does not grow. */
function heldBack(stream: Duplex, onOutput: ExecRequest["onOutput"]): OnChunk {
  let taking = 0;
  return (name, chunk) => {
    const taken = chunk.length === 0 ? undefined : onOutput(name, chunk);
    if (taken === undefined) return;
    taking += 1;
    stream.pause();
    void taken.then(() => {
      taking -= 1;
      if (taking === 0) stream.resume();
    });
  };
}

const MadeExec = z.custom<Docker.Exec>((exec) => /^[0-9a-f]{64}$/.test((exec as Docker.Exec).id ?? ""));

/** A terminal's single stream has no first line of Corral's. Returns whether the stream has ended between two pieces of output. */
function deliver(stream: Duplex, beginning: FirstLine | null, onChunk: OnChunk): () => boolean {
  if (beginning === null) {
    stream.on("data", (chunk: Buffer) => onChunk("stdout", chunk));
    return () => true;
  }
  const streams = new Demultiplexer((name, chunk) => onChunk(name, name === "stdout" ? beginning.add(chunk) : chunk));
  stream.on("data", (chunk: Buffer) => {
    if (!streams.add(chunk))
      stream.destroy(new EngineTrouble("the Engine sent data that is not the command's output streams"));
  });
  return () => streams.isWhole;
}

async function exitOf(
  container: Docker.Container,
  exec: Docker.Exec,
  beginning: FirstLine | null,
  whole: boolean,
): Promise<RawExit> {
  try {
    if (!whole) throw new EngineTrouble(COMMAND_OUTPUT_BROKE);
    const code = await exitCodeOf(container, exec);
    if (code === null) return { kind: "lost", reason: "the engine did not report how the command ended" };
    const { State } = await asked(() => container.inspect(), ContainerState);
    const line = beginning?.line ?? null;
    if (beginning !== null && State.Running && !beginning.hasBegun)
      return { kind: "lost", reason: `the engine could not start the command: ${line ?? "no reason given"}` };
    return { kind: "exited", code, cellAlive: State.Running, oomKillsBefore: beginning?.oomKillsBefore ?? null };
  } catch (error) {
    return { kind: "lost", reason: engineMessage(error) };
  }
}

const ExecState = z.object({ Running: z.boolean(), ExitCode: z.int().nullable(), Pid: z.int() });

const COMMAND_OUTPUT_BROKE = "the connection that carried the command's output broke";

/**
 * True if a command has a pipe as its output: then its output has not ended. Processes that this user may not look into
 * count as having none.
 */
async function hasPipe(pid: number): Promise<boolean> {
  const links = await Promise.all([1, 2].map((fd) => readlink(`/proc/${pid}/fd/${fd}`).catch(() => "")));
  return links.some((link) => link.startsWith("pipe:"));
}

/** Null if the Engine knows no exit code, or still reports a command as running after its container has ended. */
async function exitCodeOf(container: Docker.Container, exec: Docker.Exec): Promise<number | null> {
  let intervalMs = FIRST_INTERVAL_MS;
  for (let untold = 0; untold < MAX_INSPECTIONS; ) {
    const { Running, ExitCode, Pid } = await asked(() => exec.inspect(), ExecState);
    if (!Running && ExitCode !== null) return ExitCode;
    if (Running && Pid > 0 && (await hasPipe(Pid))) throw new EngineTrouble(COMMAND_OUTPUT_BROKE);
    // A command may close its output and still run: its time limit ends it.
    if (!Running) untold += 1;
    else if (!(await asked(() => container.inspect(), ContainerState)).State.Running) return null;
    await pause(intervalMs);
    intervalMs = Math.min(intervalMs * 1.5, LAST_INTERVAL_MS);
  }
  return null;
}
