import { spawn } from "node:child_process";
import { type FileHandle, open } from "node:fs/promises";
import { resolve } from "node:path";
import { type Approver, unasked } from "../../approval/approver.ts";
import type { Project } from "../../declarations/project.ts";
import type { ItemResult } from "../../fleet/model/item.ts";
import { inChunks, jsonLine } from "../../fleet/report/results-export.ts";
import type { FleetEvent, FleetSummary } from "../../fleet/running/events.ts";
import type { FleetStart } from "../../operations/fleet-start.ts";
import type { FleetPlace } from "../../operations/fleets.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { counted } from "../../text/amounts.ts";
import { present } from "../../text/present.ts";
import { printableLine } from "../../text/visible.ts";
import { waitingBy } from "../consent/person.ts";
import { UsageError } from "../terminal/arguments.ts";
import { EXIT, type FleetScreen, keepHeapSmall, say, type Terminal } from "../terminal/terminal.ts";
import { ImageLines } from "../terminal/worker-text.ts";
import { EventSink } from "./event-sink.ts";
import { PlainFleetScreen } from "./live-screen.ts";
import type { WatchOptions } from "./map-options.ts";
import { FleetWitness } from "./witness.ts";

const TIMEOUT_MS = 60_000;
/** Between asking the command to end and killing it. */
const GRACE_MS = 2000;

/**
 * A command line as words: quotes and backslashes are read as a shell does, and nothing else. What only a shell could do is an
 * error, so that nothing is taken literally that was meant otherwise.
 */
export function commandWords(text: string): string[] {
  const words: string[] = [];
  for (const [token] of text.matchAll(WORD)) {
    if (/^[ \t]+$/.test(token)) continue;
    const bare = token.replaceAll(QUOTED, "");
    if (/[|&;<>()$`*?'"\\\n]|^~/.test(bare))
      throw new UsageError(
        `--notify: no shell reads this command, so ${printableLine(token, 80)} means nothing; use "sh -c '…'", or put it in quotes`,
      );
    words.push(token.replaceAll(QUOTED, unquoted));
  }
  if (words.length === 0) throw new UsageError("--notify needs a command");
  return words;
}

/** Single quotes, double quotes, an escaped character. */
const QUOTED = /'[^']*'|"(?:[^"\\]|\\.)*"|\\./gs;
const WORD = /(?:'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[^\s'"\\])+|['"\\]|[ \t]+|\s/gs;

function unquoted(quoted: string): string {
  if (quoted.startsWith("\\")) return quoted.slice(1);
  const inner = quoted.slice(1, -1);
  return quoted.startsWith('"') ? inner.replaceAll(/\\(["\\$`])/g, "$1") : inner;
}

/**
 * Runs a command of the user on the host with the fleet's summary as JSON on its standard input. What it prints is on standard
 * error. Returns a warning if it failed; the fleet has ended anyway.
 */
export async function notified(
  [program = "", ...args]: readonly string[],
  summary: FleetSummary,
  { cwd, env }: Pick<Terminal, "cwd" | "env">,
  signal: AbortSignal,
): Promise<string | null> {
  const { promise, resolve } = Promise.withResolvers<string | null>();
  const warning = (how: string): string => `corral: warning: --notify ${printableLine(program, 80)} ${how}`;
  // A group of its own, so that what the command started ends with it.
  const child = spawn(program, args, { cwd, env, stdio: ["pipe", 2, 2], detached: true });
  const kill = (how: NodeJS.Signals): void => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, how);
    } catch {
      // It has ended meanwhile.
    }
  };
  let ended: string | null = null;
  let killing: NodeJS.Timeout | undefined;
  const stop = (why: string): void => {
    ended ??= why;
    kill("SIGTERM");
    killing ??= setTimeout(() => kill("SIGKILL"), GRACE_MS);
  };
  const onStop = (): void => stop("was ended by Ctrl-C");
  const timer = setTimeout(() => stop(`did not end within ${TIMEOUT_MS / 1000}s and was ended`), TIMEOUT_MS);
  signal.addEventListener("abort", onStop, { once: true });
  child.once("error", (error) => resolve(warning(`could not be started: ${printableLine(error.message, 200)}`)));
  child.once("exit", (code, killed) => {
    if (ended !== null) resolve(warning(ended));
    else
      resolve(
        code === 0 ? null : warning(killed === null ? `ended with exit status ${code}` : `was ended by ${killed}`),
      );
  });
  // It need not read the summary.
  child.stdin?.on("error", () => {});
  child.stdin?.end(`${JSON.stringify(summary)}\n`);
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
    clearTimeout(killing);
    signal.removeEventListener("abort", onStop);
  }
}

const PROGRESS_MS = 1000;

/** `--events`: what happens in a fleet, as JSON lines for other programs (docs/formats/results.md has their shapes). */
class EventLines implements AsyncDisposable {
  readonly #sink: EventSink;
  readonly #witness = new FleetWitness();
  readonly #timer: NodeJS.Timeout;
  #fleet: string | null = null;

  constructor(sink: EventSink) {
    this.#sink = sink;
    this.#timer = setInterval(() => this.#progress(), PROGRESS_MS);
    this.#timer.unref();
  }

  see(event: FleetEvent): void {
    this.#witness.see(event);
    if (event.type === "loaded") {
      this.#fleet = event.fleet;
      this.#tell("fleet_started", { items: event.items, done: event.done });
    } else if (event.type === "started") {
      const { index, key, attempt, machine } = event;
      this.#tell("item_started", { index, key, attempt, ...present({ machine }) });
    } else if (event.type === "settled") {
      const { output: _, fields: __, ...result } = event.result;
      this.#tell("item_ended", { ...result, retryInMs: event.retryInMs });
    } else if (event.type === "draining") this.#tell("draining", { why: event.why });
    else if (event.type === "waiting") this.#tell("waiting", { for: event.for, why: event.why });
    else if (event.type === "continued") this.#tell("continued", {});
    else if (event.type === "reading") this.#tell("reading", { key: event.key });
    else if (event.type === "machines") this.#tell("machines", { machines: event.machines });
    else if (event.type === "trouble") this.#tell("trouble", { message: event.detail.slice(0, MAX_TROUBLE_CHARS) });
  }

  end(summary: FleetSummary): void {
    clearInterval(this.#timer);
    this.#progress();
    this.#tell("fleet_ended", { ...summary });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    await this.#sink.end();
  }

  #progress(): void {
    if (this.#fleet === null) return;
    const { items, done, succeeded, cached, failed, pending, running, elsewhere, waiting, recentRate, leftMs } =
      this.#witness.view(0);
    const counts = { items, done, succeeded, cached, failed, pending, running, elsewhere, waiting };
    const pace = {
      itemsPerSecond: Math.round(recentRate * 100) / 100,
      leftMs: leftMs === null ? null : Math.round(leftMs),
    };
    this.#tell("progress", { ...counts, ...pace });
  }

  #tell(type: string, more: object): void {
    this.#sink.write(jsonLine({ type, at: new Date().toISOString(), fleet: this.#fleet, ...more }));
  }
}

const MAX_TROUBLE_CHARS = 2000;

/** No person answers for each of thousands of items, and the terminal shows the progress of the fleet. */
const ASKS_NOBODY: Approver = {
  decide: async () =>
    unasked("the approval mode is interactive, and a fleet asks no person; a rule of the project can approve it"),
};

/** What a command does with its fleet that is more than to run it. */
export interface FleetFollower {
  /** With `json`, what is printed of a result, with its line break; empty: nothing. */
  readonly lineOf?: (result: ItemResult) => string;
  /** What people are shown of a result; absent: as it is. */
  readonly shownAs?: (result: ItemResult) => ItemResult;
  /** In place of the summary on the screen. */
  readonly onEnded?: (summary: FleetSummary) => void;
}

/** What the watcher of a fleet is given, and the lines that it prints. */
export interface FleetWatch {
  /** Of what happens, in the order in which it does. */
  readonly see: (event: FleetEvent) => void;
  /** A line for people. */
  readonly tell: (line: string) => void;
  /** The user interrupted once: no further item starts. */
  readonly drain: AbortSignal;
  /** Twice: those that run are ended. */
  readonly stop: AbortSignal;
}

/** A fleet that is run, here or elsewhere. */
export interface WatchedFleet extends AsyncDisposable {
  /** Runs it to its end. */
  readonly run: () => Promise<FleetSummary>;
  readonly junit: (fleet: string) => Promise<AsyncIterable<string | Uint8Array>>;
  /** Null: on another machine. */
  readonly place: FleetPlace | null;
}

/** Runs a fleet of a project of this machine. See {@link watchedFleet}. */
export async function ranFleet(
  project: Project,
  options: WatchOptions,
  terminal: Terminal,
  start: FleetStart,
  follower: FleetFollower = {},
): Promise<number> {
  return await watchedFleet(
    options,
    terminal,
    (watch) => openedHere(project, options, terminal, start, watch),
    follower,
  );
}

/** What makes containers is loaded only here: a fleet of a service needs none of it. */
async function openedHere(
  project: Project,
  options: WatchOptions,
  terminal: Terminal,
  start: FleetStart,
  { see, tell, drain, stop }: FleetWatch,
): Promise<WatchedFleet> {
  const { openCorralFor } = await import("../../run/open/corral.ts");
  const { runFleet } = await import("../../operations/run-fleet.ts");
  const images = new ImageLines();
  const corral = await openCorralFor(project, {
    stateDir: stateDirFrom(terminal.env),
    engineEnv: terminal.env,
    emit(event) {
      for (const line of images.see(event)) tell(line);
      if (event.type === "trouble") tell(`corral: ${event.detail}`);
    },
    approver: ASKS_NOBODY,
    ...waitingBy(options, tell),
  });
  const place = { stateDir: corral.stateDir, projectDir: project.dir, engineEnv: terminal.env };
  return {
    place,
    async run() {
      const results = runFleet(corral, start, {
        onEvent: see,
        // A fresh cell costs the Engine so much that this is not felt; a scrubbed one is quick enough to feel it.
        onOpened: ({ reuse }) => void (reuse === "fresh" && keepHeapSmall()),
        drain,
        stop,
      });
      return await ended(results);
    },
    junit: async (fleet) => inChunks(await (await import("../../operations/fleets.ts")).fleetJunit(place, fleet)),
    [Symbol.asyncDispose]: () => corral[Symbol.asyncDispose](),
  };
}

/**
 * Shows a fleet to its end, or until the user interrupts it: once, and running items end by themselves; twice, and they are
 * ended. In both cases it can be resumed.
 */
export async function watchedFleet(
  options: WatchOptions,
  terminal: Terminal,
  open: (watch: FleetWatch) => Promise<WatchedFleet>,
  { onEnded, lineOf = jsonLine, shownAs }: FleetFollower = {},
): Promise<number> {
  const { json, events: target, notify, junit } = options;
  if (json && target === "-") throw new UsageError("--json and --events - cannot both write to standard output");
  const command = notify === undefined ? null : commandWords(notify);
  await using report = junit === undefined ? null : await openJunitFile(junit, terminal);
  using screen = await fleetScreenFor(terminal, options, { lineOf, ...present({ shownAs }) });
  const lost = (why: string): void => screen.tell(`corral: warning: --events ${target}: ${why}`);
  await using events = target === undefined ? null : new EventLines(EventSink.open(target, terminal, lost));
  const [drain, stop] = [new AbortController(), new AbortController()];
  const running = new Set<number>();
  let asked = 0;
  const notifying = new AbortController();
  let hasEnded = false;
  const off = terminal.onStop(() => {
    if (hasEnded) return notifying.abort();
    asked += 1;
    if (asked === 1) {
      drain.abort();
      screen.tell(`corral: ${waitingText(running.size)}`);
    } else if (asked === 2) {
      stop.abort(new Error("it was stopped"));
      screen.tell("corral: Stopping and cleaning up. Press Ctrl-C again to exit now");
    } else terminal.exit(EXIT.cancelled);
  });
  const see = (event: FleetEvent): void => {
    if (event.type === "started") running.add(event.index);
    else if (event.type === "settled") running.delete(event.result.index);
    screen.see(event);
    events?.see(event);
  };
  try {
    await using fleet = await open({
      see,
      tell: (line) => screen.tell(line),
      drain: drain.signal,
      stop: stop.signal,
    });
    const summary = await fleet.run();
    hasEnded = true;
    if (onEnded === undefined) screen.end(summary);
    else onEnded(summary);
    if (report !== null) for await (const piece of await fleet.junit(summary.fleet)) await report.appendFile(piece);
    if (terminal.env.GITHUB_STEP_SUMMARY && fleet.place !== null) {
      await (await import("../github/step-summary.ts")).addFleetToStepSummary(summary, fleet.place, terminal);
    }
    events?.end(summary);
    const warning = command === null ? null : await notified(command, summary, terminal, notifying.signal);
    if (warning !== null) say(terminal, warning);
    return statusOf(summary, asked > 0);
  } finally {
    off();
  }
}

/** A failure is more than a change that waits: a script that can only retry looks for failures first. */
function statusOf({ state, items, byStatus }: FleetSummary, isInterrupted: boolean): number {
  if (state !== "done" && state !== "pending") return isInterrupted ? EXIT.cancelled : EXIT.someFailed;
  const { succeeded = 0, cached = 0, applied = 0, pending = 0 } = byStatus;
  if (succeeded + cached + applied + pending < items) return EXIT.someFailed;
  return pending > 0 ? EXIT.pending : 0;
}

function waitingText(running: number): string {
  if (running === 0) return "Stopping. Press Ctrl-C again to stop now";
  return `Waiting for ${counted(running, "running item")}. Press Ctrl-C again to stop now`;
}

/** The screen sees each result as an event; here they are only taken, so that the fleet continues. */
async function ended(results: AsyncGenerator<unknown, FleetSummary>): Promise<FleetSummary> {
  for (;;) {
    const step = await results.next();
    if (step.done) return step.value;
  }
}

/**
 * The file of `--junit`, empty until the fleet has ended: a place that cannot be written is an error before anything runs, and what an earlier
 * fleet left there is never taken for the report of this one.
 *
 * @throws UsageError
 */
async function openJunitFile(path: string, { cwd }: Pick<Terminal, "cwd">): Promise<FileHandle> {
  return await open(resolve(cwd, path), "w").catch((error: Error) => {
    throw new UsageError(`--junit ${path}: ${error.message}`, { cause: error });
  });
}

/** On a terminal a live drawing, elsewhere plain lines: both on standard error. With `json`, results on standard output. */
export async function fleetScreenFor(
  terminal: Terminal,
  { json, events }: { readonly json?: boolean; readonly events?: string },
  { lineOf = jsonLine, shownAs = (result) => result }: Pick<FleetFollower, "lineOf" | "shownAs"> = {},
): Promise<FleetScreen> {
  const isForPeople = !json && events !== "-";
  // Lines that scroll through the same terminal would tear a drawing apart.
  const isPlain = !terminal.stderr.isTTY || (!isForPeople && terminal.stdout.isTTY);
  const people = isPlain
    ? new PlainFleetScreen(terminal)
    : new (await import("./live-screen.ts")).LiveFleetScreen(terminal);
  return {
    see(event) {
      if (event.type !== "settled") return people.see(event);
      if (json && event.retryInMs === null) terminal.stdout.write(lineOf(event.result));
      people.see({ ...event, result: shownAs(event.result) });
    },
    tell: (line) => people.tell(line),
    end: (summary) => people.end(summary),
    [Symbol.dispose]: () => people[Symbol.dispose](),
  };
}
