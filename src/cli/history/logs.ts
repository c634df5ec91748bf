import type { StreamName } from "../../history/kept-stream.ts";
import { runOutput } from "../../operations/run-output.ts";
import { type ProjectOptions, projectPlaceOf, UsageError } from "../terminal/arguments.ts";
import { EXIT } from "../terminal/exit-status.ts";
import { say, stoppable, type Terminal } from "../terminal/terminal.ts";
import { workerTextTo } from "../terminal/worker-text.ts";

interface LogsOptions extends Pick<ProjectOptions, "project"> {
  readonly stdout?: boolean;
  readonly stderr?: boolean;
  readonly follow?: boolean;
  readonly lines?: string;
  readonly raw?: boolean;
}

/**
 * `corral runs logs`: both streams, each to its own; one of them, if it is asked for, to standard output. Bytes as they are; on
 * a terminal without control sequences.
 */
export async function runLogsVerb(asked: string, options: LogsOptions, terminal: Terminal): Promise<number> {
  const { follow = false } = options;
  const only = options.stdout === options.stderr ? null : options.stdout ? "stdout" : "stderr";
  const streams: readonly StreamName[] = only === null ? ["stdout", "stderr"] : [only];
  using stop = stoppable(terminal, () => {});
  const pieces = await runOutput(await projectPlaceOf(options, terminal), asked, {
    streams,
    follow,
    signal: stop.signal,
    ...(options.lines === undefined ? {} : { lines: linesOf(options.lines) }),
  });
  const writers = new Map(
    streams.map((stream) => {
      const to = only === null && stream === "stderr" ? terminal.stderr : terminal.stdout;
      return [stream, writerTo(to, options)] as const;
    }),
  );
  for await (const { stream, bytes, missingBytes } of pieces) {
    if (missingBytes > 0) say(terminal, `\ncorral: ${missingBytes} bytes of ${stream} are not kept`);
    await writers.get(stream)?.(bytes);
    if (stop.signal.aborted) return EXIT.cancelled;
  }
  for (const end of writers.values()) await end(null);
  return stop.signal.aborted ? EXIT.cancelled : 0;
}

/** Null ends the text: a character that is cut off becomes U+FFFD. */
function writerTo(to: NodeJS.WriteStream, options: LogsOptions): (bytes: Buffer | null) => Promise<void> {
  const text = workerTextTo(to, { ...options, isRecord: true });
  return async (bytes) => {
    const piece = bytes === null ? text.end() : text.piece(bytes);
    if (piece.length === 0 || to.write(piece) || !to.writable) return;
    await new Promise<void>((resolve) => {
      const caughtUp = (): void => {
        to.off("drain", caughtUp).off("close", caughtUp);
        resolve();
      };
      to.on("drain", caughtUp).on("close", caughtUp);
    });
  };
}

function linesOf(text: string): number {
  if (/^\d{1,9}$/.test(text)) return Number(text);
  throw new UsageError(`--lines takes a number, not ${JSON.stringify(text.slice(0, 80))}`);
}
