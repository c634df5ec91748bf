import type { Duplex } from "node:stream";
import { setTimeout as pause } from "node:timers/promises";
import type Docker from "dockerode";
import { EngineTrouble } from "../driver.ts";
import type { Exec, ExecExit, ExecRequest } from "../exec.ts";
import { GATE_PATH, type PlannedUser } from "../plan.ts";
import { Demultiplexer } from "./demux.ts";
import { engineMessage, engineTrouble } from "./engine-error.ts";

/** The Engine tells the exit code a moment after the streams' end; asked this often, at these intervals. */
const MAX_INSPECTIONS = 200;
const INSPECTION_INTERVAL_MS = 10;

/**
 * Looks the program up by hand, as the gate does: the Engine's own words for a program that is not there would stand in
 * the command's output, under an exit code of its own making. So is the directory, which may be gone. An image without
 * a shell borrows the gate's. What it needs for that stays out of the command's environment. `$0` is the gate's binary.
 */
const RUN_SCRIPT = `
cd -- "$1" || exit 126
shift
find() (
  IFS=:
  for dir in $PATH; do [ -f "$dir/$1" ] && [ -x "$dir/$1" ] && echo "$dir/$1" && exit; done
)
case $1 in
*/*) ;;
*)
  set -- "$(find "$1")" "$@"
  [ -n "$1" ] || [ "$2" != sh ] || { shift 2; exec "$0" sh "$@"; }
  [ -n "$1" ] || { echo "$2: command not found" >&2; exit 127; }
  corral_found=$1; shift 2; set -- "$corral_found" "$@"; unset corral_found
  ;;
esac
exec "$@"
`;

/** Starts a command in a running container, with the container's own hardening and the worker's rights. */
export async function execIn(container: Docker.Container, user: PlannedUser, request: ExecRequest): Promise<Exec> {
  try {
    return await startExec(container, user, request);
  } catch (error) {
    throw engineTrouble(error);
  }
}

async function startExec(container: Docker.Container, user: PlannedUser, request: ExecRequest): Promise<Exec> {
  const tty = request.tty !== undefined;
  const exec = await container.exec({
    Cmd: [GATE_PATH, "sh", "-c", RUN_SCRIPT, GATE_PATH, request.cwd, ...request.argv],
    WorkingDir: "/",
    Env: Object.entries(request.env).map(([name, value]) => `${name}=${value}`),
    User: `${user.uid}:${user.gid}`,
    AttachStdin: true,
    AttachStdout: true,
    AttachStderr: true,
    Tty: tty,
  });
  const stream = (await exec.start({ hijack: true, stdin: true, Tty: tty })) as Duplex;
  const ended = new Promise<void>((resolve) => {
    stream.once("end", resolve).once("close", resolve);
  });
  // A command that ends without reading its input breaks the pipe; how it ended is asked of the Engine.
  stream.on("error", () => {});
  deliver(stream, tty, request.onOutput);
  if (request.stdin !== undefined) stream.end(request.stdin);
  const resize = async ({ columns, rows }: { columns: number; rows: number }): Promise<void> => {
    // A terminal may be resized as its command ends, which is no failure.
    await exec.resize({ h: rows, w: columns }).catch(() => {});
  };
  if (request.tty !== undefined) await resize(request.tty);
  return {
    exit: ended.then(() => exitOf(container, exec)),
    write: (chunk) => void stream.write(chunk),
    closeInput: () => void stream.end(),
    resize,
  };
}

function deliver(stream: Duplex, tty: boolean, onOutput: ExecRequest["onOutput"]): void {
  if (tty) {
    stream.on("data", (chunk: Buffer) => onOutput("stdout", chunk));
    return;
  }
  const streams = new Demultiplexer(onOutput);
  stream.on("data", (chunk: Buffer) => {
    if (!streams.add(chunk)) stream.destroy(new EngineTrouble("the Engine sent something else than two streams"));
  });
}

async function exitOf(container: Docker.Container, exec: Docker.Exec): Promise<ExecExit> {
  try {
    for (let inspection = 0; inspection < MAX_INSPECTIONS; inspection += 1) {
      const { Running, ExitCode } = await exec.inspect();
      if (!Running && ExitCode !== null) {
        const { State } = await container.inspect();
        return { kind: "exited", code: ExitCode, cellAlive: State.Running };
      }
      await pause(INSPECTION_INTERVAL_MS);
    }
    return { kind: "lost", reason: "the engine did not tell how the command ended" };
  } catch (error) {
    return { kind: "lost", reason: engineMessage(error) };
  }
}
