import { type ChildProcess, spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import { SYSTEM_ENV } from "../../../files/host/system-program.ts";
import { GateStreams } from "../../gate/gate-streams.ts";
import { GO } from "../../gate/script.ts";
import type { StartRequest } from "../../port/driver.ts";
import type { ImageRoot } from "../model/images.ts";
import type { CellPaths } from "../model/layout.ts";

/** How the process of runc ended, which stays for as long as its cell. */
export type RuncEnd =
  /** `code`: of the cell's first process, 128 + n after signal n. */
  | { readonly kind: "exited"; readonly code: number }
  /** It failed itself, or was ended from outside: it is not known how the cell ends. */
  | { readonly kind: "failed"; readonly reason: string };

/** The process of runc that has started a cell, waits for its end, and copies its streams. */
export interface RuncProcess {
  readonly streams: GateStreams;
  /** Opens the gate. A lasting input stays open until {@link RuncProcess.close}, or until this process ends. */
  release(input: Uint8Array): void;
  /** More of a lasting input. */
  write(text: string): void;
  /** Settles when the process has ended and all output was delivered. Never rejects. */
  readonly end: Promise<RuncEnd>;
  /** True from its end on, also while output is still delivered. */
  hasEnded(): boolean;
  /** Ends runc itself, and not its cell. */
  kill(): void;
  /** Nothing is delivered after this call. */
  close(): void;
}

export interface RuncRequest {
  readonly id: string;
  readonly cell: CellPaths;
  readonly image: ImageRoot;
  /** Whether the plan lets the worker write in it. */
  readonly root: "read-only" | "writable";
  /** The static binary that starts every cell. */
  readonly gate: string;
  readonly runc: string;
  readonly state: string;
  readonly input: "at-once" | "lasting";
  readonly onOutput: StartRequest["onOutput"];
}

/**
 * Mounts the cell's root file system where nothing of this machine sees it, and becomes runc: the mounts end with the last process
 * of the cell, in whatever way. `$0` is the gate's binary, whose programs depend on nothing of this machine. In a read-only root
 * file system only mount points are made: in memory they are made faster, and need not be removed.
 */
const MOUNT_AND_RUN = `{ [ "$1" = writable ] || "$0" mount -t tmpfs -o size=1m,mode=0700 corral over; } &&
"$0" mkdir -m 755 over/upper over/work && "$0" mount -t overlay -o "$2" corral root && shift 2 && exec "$@"`;

/**
 * Relative to the cell's directory, whose path may have any characters. Nothing of it needs to survive a crash of the machine:
 * without `volatile`, the end of each cell would write out the whole disk.
 */
function overlayOptions(image: ImageRoot): string {
  return `volatile,lowerdir=${image.layers.join(":")},upperdir=over/upper,workdir=over/work`;
}

/** runc is a program of Go, which by default prepares for all processors of the machine. It does one thing after another. */
const RUNC_ENV = { ...SYSTEM_ENV, GOMAXPROCS: "1" };

export function startRunc(request: RuncRequest): RuncProcess {
  const { id, cell, image, gate, runc, state, root } = request;
  const run = [runc, "--root", state, "--log", cell.log, "--log-format", "json", "run", "--keep", "--bundle", ".", id];
  const shell = [gate, "sh", "-c", MOUNT_AND_RUN, gate, root, overlayOptions(image), ...run];
  const child = spawn(gate, ["unshare", "--mount", ...shell], {
    cwd: cell.dir,
    argv0: "busybox",
    stdio: "pipe",
    env: RUNC_ENV,
    // In a session of its own no key of a terminal signals it, which it would pass on to the worker.
    detached: true,
  });
  const streams = new GateStreams(request.onOutput);
  for (const name of ["stdout", "stderr"] as const) {
    child[name].on("data", (chunk: Buffer) => streams.add(name, chunk)).on("error", () => {});
  }
  // A worker that ends without reading its input breaks the pipe; its exit says how it ended.
  child.stdin.on("error", () => {});
  const end = endOf(child, cell);
  void end.then(() => streams.end());
  const isLasting = request.input === "lasting";
  return {
    streams,
    end,
    release(input) {
      streams.release();
      const first = Buffer.concat([Buffer.from(GO), input]);
      if (isLasting) child.stdin.write(first);
      else child.stdin.end(first);
    },
    hasEnded: () => child.exitCode !== null || child.signalCode !== null,
    write: (text) => void child.stdin.write(text),
    kill: () => void child.kill("SIGKILL"),
    close() {
      streams.close();
      child.stdin.destroy();
    },
  };
}

function endOf(child: ChildProcess, cell: CellPaths): Promise<RuncEnd> {
  const { promise, resolve } = Promise.withResolvers<RuncEnd>();
  child.once("error", (error) => resolve({ kind: "failed", reason: `runc could not be started: ${error.message}` }));
  child.once("close", (code, signal) => void judged(code, signal, cell).then(resolve));
  return promise;
}

async function judged(code: number | null, signal: NodeJS.Signals | null, cell: CellPaths): Promise<RuncEnd> {
  if (code === null) return { kind: "failed", reason: `runc was ended from outside (${signal ?? "no signal"})` };
  const reason = await errorIn(cell.log);
  return reason === null ? { kind: "exited", code } : { kind: "failed", reason: `runc failed: ${reason}` };
}

/** An error is one line. */
const MAX_SHOWN_CHARS = 1000;

/** runc's own error, by which its exit code differs from a worker's; null if it had none. */
export async function errorIn(log: string): Promise<string | null> {
  const text = await readFile(log, "utf8").catch(() => "");
  const errors = text.split("\n").flatMap((line) => {
    const message = /"level":"(?:error|fatal|panic)","msg":"((?:[^"\\]|\\.)*)"/.exec(line)?.[1];
    return message === undefined ? [] : [message.replaceAll('\\"', '"')];
  });
  return errors.length === 0 ? null : errors.join("; ").slice(0, MAX_SHOWN_CHARS);
}
