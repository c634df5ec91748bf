import { StringDecoder } from "node:string_decoder";
import type { StreamName } from "../../history/kept-stream.ts";
import { runOutput } from "../../operations/run-output.ts";
import { printable } from "../../operations/wording/printable.ts";
import { type ProjectOptions, placeOf, UsageError } from "../terminal/arguments.ts";
import { EXIT } from "../terminal/exit-status.ts";
import { stoppable } from "../terminal/stop.ts";
import { say, type Terminal } from "../terminal/terminal.ts";

interface LogsOptions extends Pick<ProjectOptions, "project"> {
  readonly stdout?: boolean;
  readonly stderr?: boolean;
  readonly follow?: boolean;
  readonly lines?: string;
}

/**
 * `corral runs logs`: both streams, each to its own; one of them, if it is asked for, to standard output. Bytes as they are; on
 * a terminal, control characters become their codes.
 */
export async function logsVerb(asked: string, options: LogsOptions, terminal: Terminal): Promise<number> {
  const { follow = false } = options;
  const only = options.stdout === options.stderr ? null : options.stdout ? "stdout" : "stderr";
  const streams: readonly StreamName[] = only === null ? ["stdout", "stderr"] : [only];
  using stop = stoppable(terminal, () => {});
  const pieces = await runOutput(await placeOf(options, terminal), asked, {
    streams,
    follow,
    signal: stop.signal,
    ...(options.lines === undefined ? {} : { lines: linesOf(options.lines) }),
  });
  const writers = new Map(
    streams.map((stream) => {
      const to = only === null && stream === "stderr" ? terminal.stderr : terminal.stdout;
      return [stream, writerTo(to)] as const;
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
function writerTo(to: NodeJS.WriteStream): (bytes: Buffer | null) => Promise<void> {
  const decoder = new StringDecoder("utf8");
  return async (bytes) => {
    const piece = to.isTTY ? harmless(bytes === null ? decoder.end() : decoder.write(bytes)) : bytes;
    if (piece === null || piece.length === 0 || to.write(piece) || !to.writable) return;
    await new Promise<void>((resolve) => {
      const caughtUp = (): void => {
        to.off("drain", caughtUp).off("close", caughtUp);
        resolve();
      };
      to.on("drain", caughtUp).on("close", caughtUp);
    });
  };
}

/** A tab moves the cursor only forward. */
function harmless(text: string): string {
  return text.split("\t").map(printable).join("\t");
}

function linesOf(text: string): number {
  if (/^\d{1,9}$/.test(text)) return Number(text);
  throw new UsageError(`--lines takes a number, not ${JSON.stringify(text.slice(0, 80))}`);
}
