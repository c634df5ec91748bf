import { readlink } from "node:fs/promises";
import type { Duplex } from "node:stream";
import { setTimeout as pause } from "node:timers/promises";
import type Docker from "dockerode";
import { z } from "zod";
import { commandArguments, FirstLine } from "../commands/command-cell.ts";
import type { PlannedUser } from "../plan/plan.ts";
import type { Exec, ExecRequest, TerminalSize } from "../port/cell.ts";
import { EngineTrouble } from "../port/driver.ts";
import { asked, ContainerState, engineMessage, inTime, told } from "./answers/asked.ts";
import { Demultiplexer, type OnChunk } from "./attachment.ts";

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

type RawExec = Omit<Exec, "exit"> & { readonly exit: Promise<RawExit> };

/** Starts a command in a running container, with the container's own hardening and the worker's rights. */
export async function execIn(container: Docker.Container, user: PlannedUser, request: ExecRequest): Promise<RawExec> {
  return await told(startExec(container, user, request));
}

async function startExec(container: Docker.Container, user: PlannedUser, request: ExecRequest): Promise<RawExec> {
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
    write: (chunk) => void stream.write(chunk),
    closeInput: () => void stream.end(),
    resize,
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
    if (!whole) throw new EngineTrouble(OUTPUT_BROKE);
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

const OUTPUT_BROKE = "the connection that carried the command's output broke";

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
    if (Running && Pid > 0 && (await hasPipe(Pid))) throw new EngineTrouble(OUTPUT_BROKE);
    // A command may close its output and still run: its time limit ends it.
    if (!Running) untold += 1;
    else if (!(await asked(() => container.inspect(), ContainerState)).State.Running) return null;
    await pause(intervalMs);
    intervalMs = Math.min(intervalMs * 1.5, LAST_INTERVAL_MS);
  }
  return null;
}
