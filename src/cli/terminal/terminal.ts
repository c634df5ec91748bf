import { constants } from "node:os";
import { setFlagsFromString } from "node:v8";
import pc from "picocolors";
import type { ServiceClient } from "../../client/client.ts";
import type { FleetEvent, FleetSummary } from "../../fleet/running/events.ts";
import type { Plan } from "../../isolation/plan/plan.ts";
import type { Colors } from "../../operations/wording/question-text.ts";
import type { RunEvent, RunIdentity } from "../../run/model/events.ts";
import type { RunResult } from "../../run/model/result.ts";
import { escapedJson, printable, printableLine } from "../../text/visible.ts";

type Env = Readonly<Record<string, string | undefined>>;

/** The service that a command uses in place of this machine. */
export interface AtService {
  readonly client: ServiceClient;
  readonly url: string;
  readonly token: string | null;
  /** Of the service's projects; absent: the only one, or for lists all. */
  readonly project?: string;
}

/** All that the command line has of the process around it. */
export interface Terminal {
  /** Where the command is done, if not on this machine. */
  readonly service?: AtService | undefined;
  /** With this, a runner of GitHub Actions reads commands again. Absent: there is none. */
  readonly commandsToken?: string;
  readonly env: Env;
  readonly cwd: string;
  readonly stdin: NodeJS.ReadStream;
  readonly stdout: NodeJS.WriteStream;
  readonly stderr: NodeJS.WriteStream;
  /** Calls back for every SIGINT and SIGTERM, and for the first SIGHUP, from now on; answers with how to stop that. */
  onStop(stop: (signal: NodeJS.Signals) => void): () => void;
  /** Ends the process now, even if work still runs. */
  exit(status: number): never;
}

export interface ProcessTerminal extends Terminal {
  /** Why output was lost, such as a full disk; null if all arrived, or if its reader closed it. */
  readonly fault: Error | null;
}

export function terminalOf(process: NodeJS.Process): ProcessTerminal {
  const { env, stdout, stderr } = process;
  const stops = new Set<(signal: NodeJS.Signals) => void>();
  let fault: Error | null = null;
  let hungUp = false;
  /** If the reader closes the output (`corral map … | head`), the work runs to its end. An error of writing ends it. */
  const onError = (error: NodeJS.ErrnoException): void => {
    // A terminal that was closed is no lost output: the signal for it has already stopped the work.
    if (error.code === "EPIPE" || fault !== null || hungUp) return;
    fault = error;
    stderr.write(`corral: output cannot be written: ${printableLine(error.message)}\n`);
    for (const stop of [...stops]) stop("SIGTERM");
  };
  for (const stream of [stdout, stderr]) stream.on("error", onError);
  return {
    get fault() {
      return fault;
    },
    env,
    cwd: process.cwd(),
    // Opened only where it is read.
    get stdin() {
      return process.stdin;
    },
    stdout,
    stderr,
    onStop(stop) {
      const signals = ["SIGINT", "SIGTERM"] as const;
      for (const signal of signals) process.on(signal, stop);
      // The kernel and the shell may each send one for the same closed terminal, and a second stop ends without cleaning up.
      let isTold = false;
      const onHangup = (): void => {
        hungUp = true;
        if (!isTold) stop("SIGHUP");
        isTold = true;
      };
      process.on("SIGHUP", onHangup);
      stops.add(stop);
      return () => {
        for (const signal of signals) process.off(signal, stop);
        process.off("SIGHUP", onHangup);
        stops.delete(stop);
      };
    },
    exit: (status) => process.exit(status),
  };
}

/** Colours for one stream: on a terminal that can, unless NO_COLOR is set (no-color.org). */
export function colorsFor(stream: NodeJS.WriteStream, env: Env): Colors {
  return pc.createColors(stream.isTTY === true && !env.NO_COLOR && env.TERM !== "dumb");
}

/** A line for people; never on stdout, which belongs to what was asked for. */
export function say({ stderr }: Pick<Terminal, "stderr">, text: string): void {
  stderr.write(`${withoutControls(text)}\n`);
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: the escape that begins a colour is what is looked for.
const COLOR = /(\u001b\[(?:1|2|22|3[1-69]|39)m)/;

/** Colours are ours; any other control or formatting character was chosen by a file, a worker or the Engine. */
export function withoutControls(text: string): string {
  return text
    .split(COLOR)
    .map((part, index) => (index % 2 === 1 ? part : printable(part)))
    .join("");
}

/** What was asked for, as JSON: pretty on a terminal, else one line. */
export function printJson({ stdout }: Pick<Terminal, "stdout">, value: unknown): void {
  if (stdout.isTTY) stdout.write(`${escapedJson(JSON.stringify(value, null, 2))}\n`);
  else stdout.write(`${JSON.stringify(value)}\n`);
}

/** One line of JSON, such as an event. */
export function printJsonLine({ stdout }: Pick<Terminal, "stdout">, value: unknown): void {
  const line = JSON.stringify(value);
  stdout.write(`${stdout.isTTY ? escapedJson(line) : line}\n`);
}

/** What was asked for: as JSON, or as text. */
export function printResult(terminal: Terminal, json: boolean | undefined, value: unknown, text: () => string): void {
  if (json) printJson(terminal, value);
  else terminal.stdout.write(`${withoutControls(text())}\n`);
}

interface Table<T> {
  readonly head: readonly string[];
  readonly rowOf: (item: T) => readonly string[];
  /** Said of an empty list. */
  readonly none: string;
}

/** A list: as JSON, or as a table under headings. */
export function printList<T>(
  terminal: Terminal,
  json: boolean | undefined,
  list: readonly T[],
  { head, rowOf, none }: Table<T>,
): void {
  if (list.length === 0 && !json) say(terminal, none);
  else printResult(terminal, json, list, () => columns(fittedRows([head, ...list.map(rowOf)], terminal.stdout)));
}

/** A list that may be cut: in JSON beside `more`, or as a table and, in words such as `newest`, which part of the list it is. */
export function printCutList<T>(
  terminal: Terminal,
  json: boolean | undefined,
  { list, more, order, name }: CutList<T>,
  table: Table<T>,
): void {
  if (json) {
    printJson(terminal, { [name]: list, more });
    return;
  }
  printList(terminal, false, list, table);
  if (more) say(terminal, `corral: there are more; listed are the ${order} ${list.length}`);
}

interface CutList<T> {
  readonly list: readonly T[];
  /** There are others. */
  readonly more: boolean;
  readonly order: string;
  /** Its field in JSON. */
  readonly name: string;
}

const LEAST_WIDTH = 8;

/** At a terminal that is too narrow, the widest columns but the first, which has what other commands are given, are cut. */
function fittedRows(rows: readonly (readonly string[])[], { isTTY, columns: room = 0 }: Terminal["stdout"]) {
  if (!isTTY || room === 0) return rows;
  const [first = 0, ...widths] = (rows[0] ?? []).map((_, at) =>
    Math.max(...rows.map((row) => columnsOf(row[at] ?? ""))),
  );
  const over = () => widths.reduce((sum, width) => sum + width + 2, first) - room;
  for (let widest = Math.max(...widths); over() > 0 && widest > LEAST_WIDTH; widest = Math.max(...widths))
    widths[widths.indexOf(widest)] = widest - 1;
  return rows.map(([id = "", ...cells]) => [id, ...cells.map((cell, at) => fittedText(cell, widths[at] ?? 0))]);
}

/** Rows in columns as wide as they need to be. */
export function columns(rows: readonly (readonly string[])[]): string {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [index, cell] of row.entries()) widths[index] = Math.max(widths[index] ?? 0, cell.length);
  }
  const lines = rows.map((row) => row.map((cell, index) => cell.padEnd(widths[index] ?? 0)).join("  "));
  return lines.map((line) => line.trimEnd()).join("\n");
}

/** The colour of one line of a unified diff. */
export function paintOf(line: string, colors: Colors): (text: string) => string {
  if (line.startsWith("+++ ") || line.startsWith("--- ")) return colors.bold;
  if (line.startsWith("+")) return colors.green;
  if (line.startsWith("-")) return colors.red;
  if (line.startsWith("conflict: ") || line.startsWith("refused: ")) return colors.yellow;
  return line.startsWith("@@") ? colors.cyan : (text) => text;
}

/** A part of a line: what is to be read, and its colour. It is fit for a terminal already (see `printableLine`). */
export interface Piece {
  readonly text: string;
  readonly paint?: (text: string) => string;
}

/** One line of at most `columns` columns: what does not fit is cut, with a mark. */
export function fittedLine(pieces: readonly Piece[], columns: number): string {
  let line = "";
  let left = columns;
  for (const { text, paint = (plain: string) => plain } of pieces) {
    const fitted = fittedText(text, left);
    left -= columnsOf(fitted);
    if (fitted !== "") line += paint(fitted);
    if (fitted !== text) break;
  }
  return line;
}

/** At most `columns` columns of a text. */
export function fittedText(text: string, columns: number): string {
  if (columnsOf(text) <= columns) return text;
  let fitted = "";
  let left = columns - 1;
  for (const character of text) {
    left -= columnsOfCharacter(character);
    if (left < 0) break;
    fitted += character;
  }
  return columns < 1 ? "" : `${fitted}…`;
}

/** Cut or filled up to just so many columns. */
export function paddedText(text: string, columns: number): string {
  const fitted = fittedText(text, columns);
  return fitted + " ".repeat(Math.max(0, columns - columnsOf(fitted)));
}

export function columnsOf(text: string): number {
  let columns = 0;
  for (const character of text) columns += columnsOfCharacter(character);
  return columns;
}

/** Never less than a terminal takes: what may be wide counts as wide, and a mark that takes no column of its own as one. */
function columnsOfCharacter(character: string): number {
  const code = character.codePointAt(0) ?? 0;
  if (code < 0x1100) return 1;
  return code >= 0x2000 && code < 0x2e80 && !/\p{Emoji_Presentation}/u.test(character) ? 1 : 2;
}

/** What a person sees of a run or a fleet: while it runs, and at its end. */
interface Screen<Event, End> extends Disposable {
  see(event: Event): void;
  /** A line for the person that is not an event. */
  tell(line: string): void;
  end(result: End): void;
}

/** A prompt uses the terminal between these two. Absent if nothing is drawn there. */
export interface Pausable {
  pause?(): void;
  resume?(): void;
}

/** What a screen sees of a run. A service tells less of its start and of its end than the process that runs it has. */
export type WatchedEvent =
  | Exclude<RunEvent, { readonly type: "started" | "ended" }>
  | (RunIdentity & { readonly type: "started"; readonly plan: Plan | null })
  | (RunIdentity & { readonly type: "ended"; readonly result: WatchedEnd });
type WatchedEnd = Pick<RunResult, "status" | "exitCode" | "signal" | "durationMs" | "error">;

export type RunScreen = Screen<WatchedEvent, RunResult> & Pausable;
export type FleetScreen = Screen<FleetEvent, FleetSummary>;

export interface Stop extends Disposable {
  readonly signal: AbortSignal;
  cancel(): void;
  /** True once it was cancelled because nobody reads standard output any more. */
  isUnread(): boolean;
}

/**
 * The first SIGINT, SIGTERM or SIGHUP cancels and cleans up; the second exits at once. `whileRead`: it is also cancelled when the reader of standard
 * output has gone, which a write finds out.
 */
export function stoppable(
  terminal: Terminal,
  tell: (line: string) => void,
  { whileRead = false }: { readonly whileRead?: boolean } = {},
): Stop {
  const controller = new AbortController();
  let isUnread = false;
  const cancel = (): void => controller.abort(new Error("it was cancelled"));
  const off = terminal.onStop(() => {
    if (controller.signal.aborted) terminal.exit(EXIT.cancelled);
    cancel();
    tell("corral: Stopping and cleaning up. Press Ctrl-C again to exit now");
  });
  const onError = (error: NodeJS.ErrnoException): void => {
    if (error.code !== "EPIPE" || isUnread || controller.signal.aborted) return;
    isUnread = true;
    cancel();
    tell("corral: Nobody reads the output any more. Stopping and cleaning up");
  };
  if (whileRead) terminal.stdout.on("error", onError);
  return {
    signal: controller.signal,
    cancel,
    isUnread: () => isUnread,
    [Symbol.dispose]: () => {
      off();
      terminal.stdout.off("error", onError);
    },
  };
}

/** The exit statuses of Corral itself; any other is the worker's own. */
export const EXIT = {
  /** Of a fleet: not every item succeeded. */
  someFailed: 1,
  wrongUsage: 2,
  /** Of a fleet: no item failed, but changes of some wait for consent. A script must not take them for done. */
  pending: 3,
  timedOut: 124,
  engineTrouble: 125,
  refused: 126,
  cancelled: 130,
  outOfMemory: 137,
  /** Nobody reads the output any more: as a shell tells SIGPIPE. */
  unread: 141,
  /** A limit on output or disk was passed: as a shell tells SIGXFSZ, which is what a too large file is ended by. */
  tooMuch: 128 + constants.signals.SIGXFSZ,
} as const;

/** The exit status of `corral run`: the worker's own where it ended by itself, else one that says why it did not. */
export function exitStatusOf({ status, exitCode, signal }: Pick<RunResult, "status" | "exitCode" | "signal">): number {
  // A worker that exits with 0 fails if its output is not the JSON that it declares.
  if (status === "failed") return exitCode || 1;
  if (status === "signaled") return 128 + (constants.signals[signal as NodeJS.Signals] ?? 0);
  return STATUSES[status];
}

const STATUSES: Readonly<Record<Exclude<RunResult["status"], "failed" | "signaled">, number>> = {
  succeeded: 0,
  timed_out: EXIT.timedOut,
  oom_killed: EXIT.outOfMemory,
  output_limit: EXIT.tooMuch,
  disk_limit: EXIT.tooMuch,
  cancelled: EXIT.cancelled,
  refused: EXIT.refused,
  denied: EXIT.refused,
  lost: EXIT.engineTrouble,
};

/**
 * Has what is young in this process's heap collected before it grows, for a process that mostly waits for the Engine, or passes on bytes: where
 * the machine has room, tens of megabytes of it would else lie there, and what hangs on them outside of the heap is looked for by going through
 * all of it. A Node that does not know the setting leaves it as it is.
 */
export function keepHeapSmall(): void {
  setFlagsFromString("--semi-space-growth-factor=1");
}
