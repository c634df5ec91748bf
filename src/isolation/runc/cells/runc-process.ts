import type { Readable } from "node:stream";
import { within } from "../../../platform/within.ts";
import { GateStreams, pour } from "../../gate/gate-streams.ts";
import { GO } from "../../gate/report.ts";
import type { StartRequest } from "../../port/driver.ts";
import { endStarters } from "../remains/remove-cell.ts";
import type { LaunchPlace, PlaceRequest } from "./launcher.ts";

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
  release(input: Uint8Array, rest?: Readable): void;
  /** More of a lasting input. */
  write(text: string): void;
  /** Settles when the process has ended and all output was delivered. Never rejects. */
  readonly end: Promise<RuncEnd>;
  /** True from its end on, also while output is still delivered. */
  hasEnded(): boolean;
  /** Ends runc itself, and not its cell. */
  kill(): Promise<void>;
  /** Nothing is delivered after this call. */
  close(): void;
}

export interface LaunchRequest {
  readonly place: LaunchPlace;
  readonly run: string;
  readonly id: string;
  /** The directory of the cell, in which only runc works. */
  readonly dir: string;
  /** Whether the plan lets the worker write in it. */
  /** What runc reads. */
  readonly config: string;
  readonly mountPoints: PlaceRequest["mountPoints"];
  readonly input: "at-once" | "lasting";
  readonly onOutput: StartRequest["onOutput"];
  readonly signal: AbortSignal;
}

/** Rejects if the place cannot be used. */
export async function startRunc({
  place,
  run,
  id,
  dir,
  config,
  mountPoints,
  signal,
  ...request
}: LaunchRequest): Promise<RuncProcess> {
  const streams = new GateStreams(request.onOutput);
  const started = await place.start({ run, id, config, mountPoints, signal }).catch((error: unknown) => {
    place.letGo();
    throw error;
  });
  const { stdin, stdout, stderr } = started;
  for (const [name, stream] of [
    ["stdout", stdout],
    ["stderr", stderr],
  ] as const)
    stream.on("data", (chunk: Buffer) => streams.add(name, chunk));
  const closed = Promise.all([stdout, stderr].map((stream) => new Promise((done) => stream.once("close", done))));
  let hasEnded = false;
  const end = started.end.then(
    async (known): Promise<RuncEnd> => {
      hasEnded = true;
      const judgement = known === null ? LOST : judged(known.code, known.log);
      // The cell of a runtime that failed may still hold its streams, until it is ended too.
      if (judgement.kind === "failed") return judgement;
      return (await within(closed, CLOSE_MS)) === null ? UNCLOSED : judgement;
    },
    (error: Error): RuncEnd => ({ kind: "failed", reason: error.message }),
  );
  void end.then(() => streams.end());
  const isLasting = request.input === "lasting";
  return {
    streams,
    end,
    release(input, rest) {
      streams.release();
      const first = Buffer.concat([Buffer.from(GO), input]);
      if (rest !== undefined) pour(first, rest, stdin);
      else if (isLasting) stdin.write(first);
      else stdin.end(first);
    },
    hasEnded: () => hasEnded,
    write: (text) => void stdin.write(text),
    kill: () => endStarters(dir),
    close() {
      streams.close();
      stdin.destroy();
    },
  };
}

const LOST: RuncEnd = { kind: "failed", reason: "what waits for runc was ended from outside" };

/** How long output may be on its way when the runtime has ended, which waits for the cell. */
const CLOSE_MS = 60_000;
const UNCLOSED: RuncEnd = { kind: "failed", reason: "the streams of a cell that has ended do not end" };

function judged(code: number, log: string): RuncEnd {
  const signal = log.split("\n").find((line) => line !== "" && !line.startsWith("{"));
  if (signal !== undefined) return { kind: "failed", reason: `runc was ended from outside (${signal})` };
  const reason = errorsIn(log);
  return reason === null ? { kind: "exited", code } : { kind: "failed", reason: `runc failed: ${reason}` };
}

/** An error is one line. */
const MAX_SHOWN_CHARS = 1000;

/** runc's own error, by which its exit code differs from a worker's; null if it had none. */
export function errorsIn(log: string): string | null {
  const errors = log.split("\n").flatMap((line) => {
    const message = /"level":"(?:error|fatal|panic)","msg":"((?:[^"\\]|\\.)*)"/.exec(line)?.[1];
    return message === undefined ? [] : [message.replaceAll('\\"', '"')];
  });
  return errors.length === 0 ? null : errors.join("; ").slice(0, MAX_SHOWN_CHARS);
}
