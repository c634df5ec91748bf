import { readFile } from "node:fs/promises";
import { setTimeout as pause } from "node:timers/promises";
import { filledIn, textBeside } from "../../platform/text-beside.ts";
import { within } from "../../platform/within.ts";
import { FILL_SECRETS, secretLines } from "../gate/report.ts";
import { COMMANDS_PATH, GATE_PATH, SECRETS_PATH } from "../plan/plan.ts";
import type { Cell, ServingCell, SessionCell } from "../port/cell.ts";
import { EngineTrouble, type Start, type StartRequest } from "../port/driver.ts";
import type { CellProcess } from "./command-pipes.ts";
import { CommandServer, commandsDir } from "./command-server.ts";

/**
 * What a session's first process reads first. It is a shell that reads its script from its standard input, so each request
 * is a line of shell that Corral writes, with every word in quotes, and any number of bytes of it is read at once. Its answers
 * are lines on its standard output: `begun NAME PID KILLS START`, `started NAME JOB`, `refused NAME`, `ended NAME CODE KILLS`,
 * `signalled NAME yes|no`, `counted NAME KILLS`. `KILLS` counts the processes that the kernel has killed for memory.
 *
 * It has the worker's own rights, because no process in a cell can change its user. The worker cannot influence it: it is process
 * 1, which no signal from inside its namespace ends or stops; its binary can be executed and not read, so the kernel lets
 * no process trace it or open its descriptors; the seccomp profile lets no process change its limits, priority or processors;
 * and commands inherit none of its descriptors. It never waits for a command, so it notices the end of its input at once, and
 * the cell ends with its orchestrator.
 *
 * A shell cannot start a command in the background as it would start it in the foreground: in the background it ignores SIGINT
 * and SIGQUIT, and nothing can undo that. So it starts the command as the first part of a pipeline in the foreground. The pipe
 * behind the second part cannot be made, because no more descriptors are allowed at that moment: the shell gives the pipeline up,
 * and does not wait for what it has started. That is a job of its own then, with the lowest number that is free
 * (docs/facts.md, fact: shell-in-the-background).
 *
 * A fork may fail, if the cell has as many processes as its limit allows: then there is no such job.
 */
const END_COMMAND = textBeside(import.meta.url, "end-command.sh");
const SERVER_SCRIPT = filledIn(textBeside(import.meta.url, "first-process.sh"), {
  GATE_PATH,
  COMMANDS_PATH,
  END_COMMAND,
});

/** How long to wait for the end of a cell in which nothing can be started any more. */
export const CELL_END_MS = 5000;

/** What a driver has made of a request, with the rest of what it needs itself. */
export type StartedCell<Parts> = (Parts & { readonly ok: true; readonly cell: Cell }) | Extract<Start, { ok: false }>;

interface CommandDriver<Parts> {
  /** Starts and verifies the cell, and releases nothing. */
  start(request: StartRequest): Promise<StartedCell<Parts>>;
  /** Writes to the first process of the cell. */
  write(parts: Parts, text: string): void;
  /** Starts a command at a terminal, as the worker's user. */
  execAtTerminal(parts: Parts & { readonly cell: Cell }, server: CommandServer): SessionCell["exec"];
}

/** Starts a cell whose first process starts commands. It is released at once, and then waits for them. */
export async function startCommandCell<Parts>(
  request: StartRequest,
  driver: CommandDriver<Parts>,
): Promise<Start<SessionCell>> {
  let server: CommandServer | undefined;
  const onOutput: StartRequest["onOutput"] = (stream, chunk) => {
    if (stream === "stdout") server?.add(chunk);
  };
  const started = await driver.start({ ...request, onOutput });
  if (!started.ok) return started;
  const { cell } = started;
  const write = (text: string): void => driver.write(started, text);
  server = new CommandServer({ dir: commandsDir(request.plan), write, exit: cell.exit });
  cell.release(Buffer.from(SERVER_SCRIPT));
  return { ok: true, cell: commandCell(cell, server, driver.execAtTerminal(started, server)) };
}

function commandCell(cell: Cell, server: CommandServer, execAtTerminal: SessionCell["exec"]): SessionCell {
  return {
    ...cell,
    hasPipes: true,
    async [Symbol.asyncDispose]() {
      await server[Symbol.asyncDispose]();
      await cell[Symbol.asyncDispose]();
    },
    exec: (request) => (request.tty === undefined ? server.exec(request) : execAtTerminal(request)),
    async signalAll(signal) {
      const gone = await server.signalAll(signal);
      if (!gone && signal === "SIGKILL")
        await within(
          cell.kill("SIGKILL").catch(() => {}),
          CELL_END_MS,
        );
      return gone;
    },
  };
}

/**
 * Releases a cell in which commands run beside a keeper. They are another user than its gate, so a program of theirs makes the files
 * of its secrets, before any command.
 */
export async function releasedSession(
  cell: SessionCell,
  { plan, secrets = new Map() }: StartRequest,
): Promise<Start<SessionCell>> {
  cell.release(new Uint8Array());
  try {
    if (plan.secrets !== undefined) await fillSecrets(cell, plan.secrets, secrets);
    return { ok: true, cell };
  } catch (error) {
    await cell[Symbol.asyncDispose]();
    throw error;
  }
}

/** How long one of Corral's own scripts may take in a cell. */
export const SCRIPT_MS = 5000;

/**
 * Signals every process of its own user except itself, at once: for `-1` the kernel does so, and no fork can escape. The
 * keeper and the init belong to another user and stay. After a KILL it counts the other process directories of its user
 * that are left. `kill` is a builtin: a program would end the shell that waits for it. `$0` is the gate's binary.
 */
export const SIGNAL_ALL_SCRIPT = textBeside(import.meta.url, "signal-all.sh");

/** The same for what one command has started, whose signal, process and start are the arguments. */
const SIGNAL_ONE_SCRIPT = `corral_gate=$0\n${END_COMMAND}corral_end_all "$1" "$2" "$3" "$4" ''\n[ "$corral_left" = no ]\n`;

/** The argument list of what signals a command that was started from outside of the cell. `others`: sessions of commands that were not. */
export function signalArguments(
  signal: NodeJS.Signals,
  { pid, start }: CellProcess,
  others: readonly number[],
): string[] {
  const words = [signal.replace(/^SIG/, ""), String(pid), String(start), others.join(" ")];
  return [GATE_PATH, "sh", "-c", SIGNAL_ONE_SCRIPT, GATE_PATH, ...words];
}

/** A process of this host as its cell knows it; null if it has ended or cannot be seen. */
export async function processInCell(hostPid: number): Promise<CellProcess | null> {
  const [status, stat] = await Promise.all(
    ["status", "stat"].map((name) => readFile(`/proc/${hostPid}/${name}`, "latin1").catch(() => "")),
  );
  const pid = /^NSpid:\t\d+\t(?:\d+\t)*(\d+)$/m.exec(status ?? "")?.[1];
  const start = stat?.slice(stat.lastIndexOf(")") + 2).split(" ")[19];
  return pid === undefined || start === undefined ? null : { pid: Number(pid), start: Number(start) };
}

/** How long a command that was started from outside may take until its process is known. */
const KNOWN_MS = 2000;
const LOOK_MS = 20;

/**
 * The process of a command that was started from outside of its cell, which is known a moment later, and stays so: what it has started may
 * outlive it. Null if it ended before, or cannot be seen.
 */
export function knownProcess({
  process,
  exit,
}: Pick<OutsideExec, "process" | "exit">): () => Promise<CellProcess | null> {
  let known: CellProcess | null = null;
  let isOver = false;
  const over = (): void => {
    isOver = true;
  };
  exit.then(over, over);
  return async () => {
    for (const end = Date.now() + KNOWN_MS; known === null; await pause(LOOK_MS)) {
      known = await process().catch(() => null);
      if (isOver || Date.now() > end) break;
    }
    return known;
  };
}

interface OutsideExec {
  process(): Promise<CellProcess | null>;
  readonly exit: Promise<unknown>;
}

/** Rejects with `EngineTrouble` if they are not all there. */
async function fillSecrets(
  cell: SessionCell,
  names: readonly string[],
  values: ReadonlyMap<string, string>,
): Promise<void> {
  const argv = [GATE_PATH, "sh", "-c", FILL_SECRETS, GATE_PATH, names.join(" ")];
  const exec = await cell.exec({ argv, cwd: "/", env: {}, stdin: secretLines(names, values), onOutput: () => {} });
  const exit = await within(exec.exit, SCRIPT_MS);
  if (exit?.kind !== "exited" || exit.code !== 0)
    throw new EngineTrouble(`the secrets could not be written: the image may have files at ${SECRETS_PATH}`);
}

/**
 * Prints how many processes of the cell the kernel has killed for memory so far, in either version of control groups;
 * nothing if the cell does not know.
 */
export const OOM_KILLS_SCRIPT = `
for file in /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events; do
  [ -r "$file" ] || continue
  while read -r name value; do [ "$name" = oom_kill ] && echo "$value"; done < "$file"
done
exit 0
`;

/** Null if the text is not a count. */
export function parseOomKills(text: string): number | null {
  const count = Number.parseInt(text, 10);
  return Number.isSafeInteger(count) ? count : null;
}

/** Begins the line that says that a command has started. Another first line is the Engine's reason why it did not. */
const BEGUN = "corral-begun ";

/**
 * Looks up the program itself, as the gate does: for a missing program the Engine would print its own message into the
 * command's output, with an exit code of its own. The same holds for the directory. An image without a shell uses the
 * gate's. None of the script's variables reach the command's environment. `$0` is the gate's binary.
 *
 * Except at a terminal, whose echo would come between, it first prints a line: that it has started, and how many
 * processes were killed for memory before that.
 */
const RUN_SCRIPT = filledIn(textBeside(import.meta.url, "run-command.sh"), { BEGUN, OOM_KILLS_SCRIPT });

/** The argument list of a command, which the script above starts. `told`: it begins with that line. */
export function commandArguments({ cwd, argv }: { cwd: string; argv: readonly string[] }, told: boolean): string[] {
  return [GATE_PATH, "sh", "-c", RUN_SCRIPT, GATE_PATH, told ? "told" : "quiet", cwd, ...argv];
}

/** A first line is short: `BEGUN` and a count, or an error of the Engine. */
const MAX_FIRST_LINE_BYTES = 1024;

/** Removes the first line from a stream and passes the rest on. */
export class FirstLine {
  #begun = Buffer.alloc(0);
  /** Null if the stream has no complete line yet. */
  line: string | null = null;

  /** True if the line says that the command has started. */
  get hasBegun(): boolean {
    return this.line?.startsWith(BEGUN) === true;
  }

  /** How many processes were killed for memory before that; null if it is not known. */
  get oomKillsBefore(): number | null {
    return this.hasBegun ? parseOomKills((this.line ?? "").slice(BEGUN.length)) : null;
  }

  /** What follows the line in this piece of the stream. */
  add(chunk: Buffer): Buffer {
    if (this.line !== null) return chunk;
    this.#begun = Buffer.concat([this.#begun, chunk.subarray(0, MAX_FIRST_LINE_BYTES)]);
    const end = this.#begun.indexOf("\n");
    if (end < 0) return Buffer.alloc(0);
    this.line = this.#begun.toString("latin1", 0, end);
    const taken = end + 1 - (this.#begun.length - Math.min(chunk.length, MAX_FIRST_LINE_BYTES));
    return chunk.subarray(taken);
  }
}

/** An answer is one short line; the cell's first process writes nothing longer. */
const MAX_ANSWER_BYTES = 4096;

/** The answers of a serving cell's first process, which alone can write to the attached output. */
class ServingReplies {
  #text = "";
  #waiting: PromiseWithResolvers<string> | null = null;
  #failure: Error | null = null;

  add(stream: "stdout" | "stderr", chunk: Buffer): void {
    // The shell's own warnings, which say nothing about an item.
    if (stream === "stderr") return;
    this.#text += chunk.toString("latin1");
    if (this.#text.length > MAX_ANSWER_BYTES)
      this.#fail(new EngineTrouble("a serving cell sent an answer that is too long"));
    this.#settle();
  }

  /** The next line. Rejects if there was an answer without a question. */
  next(): Promise<string> {
    if (this.#failure !== null) return Promise.reject(this.#failure);
    if (this.#text !== "") return Promise.reject(new EngineTrouble("a serving cell answered without being asked"));
    this.#waiting = Promise.withResolvers<string>();
    return this.#waiting.promise;
  }

  #settle(): void {
    const end = this.#text.indexOf("\n");
    if (end < 0 || this.#waiting === null) return;
    const line = this.#text.slice(0, end);
    this.#text = this.#text.slice(end + 1);
    this.#waiting.resolve(line);
    this.#waiting = null;
  }

  #fail(error: Error): void {
    this.#failure = error;
    this.#waiting?.reject(error);
    this.#waiting = null;
  }
}

/** Starts a cell that serves items, as `start` starts and verifies one. It is released at once, and waits for the first item. */
export async function startServingCell<Parts>(
  request: Omit<StartRequest, "onOutput">,
  start: (request: StartRequest) => Promise<StartedCell<Parts>>,
  write: (parts: Parts, text: string) => void,
): Promise<Start<ServingCell>> {
  const answers = new ServingReplies();
  const started = await start({ ...request, onOutput: answers.add.bind(answers) });
  if (!started.ok) return started;
  const cell = asServingCell(started.cell, (text) => write(started, text), answers);
  cell.release(new Uint8Array());
  return { ok: true, cell };
}

/** A cell whose output goes to `answers`, and whose input `write` adds to. */
function asServingCell(cell: Cell, write: (text: string) => void, answers: ServingReplies): ServingCell {
  let killed = 0;
  return {
    ...cell,
    [Symbol.asyncDispose]: () => cell[Symbol.asyncDispose](),
    async serve(id) {
      const answer = answers.next();
      write(`run ${id}\n`);
      const line = await Promise.race([answer, cell.exit.then(() => null)]);
      if (line === null) return { kind: "gone" };
      const served = parseAnswer(line, id);
      const { code, what } = served;
      const outOfMemory = served.killed > killed;
      killed = served.killed;
      if (what === null) return { kind: "ended", code, outOfMemory };
      // Until the cell has ended, a process may still use the files of the item.
      const exit = await cell.exit;
      return exit.kind === "exited" ? { kind: "dirty", code, outOfMemory, what } : { kind: "gone" };
    },
  };
}

interface ItemAnswer {
  readonly code: number;
  readonly killed: number;
  /** What could not be cleaned; null if the cell is clean. */
  readonly what: string | null;
}

function parseAnswer(line: string, id: string): ItemAnswer {
  const [, of, code, killed, what] =
    /^(?:ended|dirty(?=.* [a-z]+$)) (\S+) (\d{1,3}) (\d+)(?: ([a-z]+))?$/.exec(line) ?? [];
  if (of !== id) throw new EngineTrouble("a serving cell answered for another item than the one it was given");
  return { code: Number(code), killed: Number(killed), what: what ?? null };
}
