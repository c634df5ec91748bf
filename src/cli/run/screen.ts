import type { createLogUpdate } from "log-update";
import { deniedLines } from "../../operations/wording/question-text.ts";
import type { RunResult } from "../../run/model/result.ts";
import { printableLine } from "../../text/visible.ts";
import {
  colorsFor,
  printJson,
  type RunScreen,
  say,
  type Terminal,
  type WatchedEvent,
  withoutControls,
} from "../terminal/terminal.ts";
import { ImageLines, type WorkerText, workerTextTo } from "../terminal/worker-text.ts";
import { AgentLines, changesetText, drawTree, endingText, type TreeRun, troubleText, Witness } from "./tree.ts";

export interface ScreenOptions {
  readonly json?: boolean;
  readonly tree?: boolean;
  /** What agents say and do is printed as it comes, also if standard error is not a terminal. */
  readonly stream?: boolean;
  /** What the worker prints goes to a terminal as it is. */
  readonly raw?: boolean;
}

export async function screenFor(terminal: Terminal, options: ScreenOptions): Promise<RunScreen> {
  if (options.json) return jsonScreen(terminal);
  if (!terminal.stderr.isTTY) return new PlainScreen(terminal, options);
  return new LiveScreen(terminal, options, (await import("log-update")).createLogUpdate(terminal.stderr));
}

/** Only the result; the worker's output is in it. */
function jsonScreen(terminal: Terminal): RunScreen {
  const tell = (line: string): void => say(terminal, line);
  const images = new ImageLines();
  return {
    see(event) {
      for (const line of images.see(event)) tell(line);
      if (event.type === "trouble") tell(troubleText(event));
    },
    tell,
    end(result) {
      for (const line of deniedLines(result)) tell(line);
      printJson(terminal, result);
    },
    [Symbol.dispose]: () => {},
  };
}

/** Where standard error is no terminal: quiet, but for calls that did not succeed and for how it all ended. */
class PlainScreen implements RunScreen {
  readonly #terminal: Terminal;
  readonly #witness: Witness | null;
  readonly #agents: AgentLines | null;
  readonly #images = new ImageLines();
  readonly #texts: Readonly<Record<"stdout" | "stderr", WorkerText>>;

  constructor(terminal: Terminal, options: ScreenOptions) {
    const { tree, stream } = options;
    this.#terminal = terminal;
    this.#texts = { stdout: workerTextTo(terminal.stdout, options), stderr: workerTextTo(terminal.stderr, options) };
    this.#witness = tree ? new Witness() : null;
    this.#agents = stream ? new AgentLines(colorsFor(terminal.stderr, terminal.env)) : null;
  }

  see(event: WatchedEvent): void {
    this.#witness?.see(event);
    for (const line of [...(this.#agents?.see(event) ?? []), ...this.#images.see(event)]) this.tell(line);
    if (event.type === "output" && event.parent === null)
      this.#terminal[event.stream].write(this.#texts[event.stream].piece(event.chunk));
    else if (event.type === "trouble") this.tell(troubleText(event));
    else if (event.type === "ended" && event.parent !== null && event.result.error !== null) {
      const { status, error } = event.result;
      const head = `corral: call of ${printableLine(event.worker, 80)} ${status.replaceAll("_", " ")}`;
      this.tell(`${head}: ${printableLine(error.message, 1000)}`);
    }
  }

  tell(line: string): void {
    say(this.#terminal, line);
  }

  end(result: RunResult): void {
    for (const stream of ["stdout", "stderr"] as const) this.#terminal[stream].write(this.#texts[stream].end());
    for (const line of deniedLines(result)) this.tell(line);
    const told = this.#endingOf(result);
    if (told !== "") this.tell(told);
    const changes = changesetText(result, told);
    if (changes !== null) this.tell(changes);
  }

  #endingOf(result: RunResult): string {
    const tree = this.#witness?.tree();
    const { stderr, env } = this.#terminal;
    if (tree) return drawTree(tree, { colors: colorsFor(stderr, env) });
    return result.error === null ? "" : endingText(result);
  }

  [Symbol.dispose](): void {}
}

const FRAME_MS = 100;
/** Or is empty but for a change of colours. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: the escape that begins a colour is what is looked for.
const ENDS_LINE = /(?:^|\n)(?:\u001b\[0m)*$/;

/** What draws on standard error: loaded only for a terminal. */
type Drawing = ReturnType<typeof createLogUpdate>;

/** A drawing at the bottom of the terminal that follows a tree of runs, and steps aside for everything else. */
export class LiveTree {
  readonly #terminal: Terminal;
  readonly #tree: () => TreeRun | null;
  readonly #update: Drawing;
  readonly #timer: NodeJS.Timeout;
  #paused = false;
  /** Nothing is drawn after an incomplete line of another writer. */
  #midLine = false;
  #left = false;
  /** What came while another writer had the terminal: bounded by the runs' own output limits. */
  #held: { readonly stream: NodeJS.WriteStream; readonly chunk: string | Uint8Array }[] = [];

  constructor(terminal: Terminal, tree: () => TreeRun | null, update: Drawing) {
    this.#terminal = terminal;
    this.#tree = tree;
    this.#update = update;
    this.#timer = setInterval(() => this.#draw(), FRAME_MS);
    this.#timer.unref();
  }

  /** Writes what is not the tree's, with the drawing out of its way. */
  write(stream: NodeJS.WriteStream, chunk: string | Uint8Array): void {
    if (chunk.length === 0) return;
    if (!stream.isTTY) {
      stream.write(chunk);
      return;
    }
    // A worker that prints over an open question would put its own words in the place of what is asked.
    if (this.#paused) {
      this.#held.push({ stream, chunk });
      return;
    }
    this.#update.clear();
    stream.write(chunk);
    this.#midLine = typeof chunk === "string" ? !ENDS_LINE.test(chunk) : chunk.at(-1) !== 0x0a;
  }

  /** Another writer has the terminal until {@link resume}. */
  pause(): void {
    this.#paused = true;
    this.#update.clear();
  }

  resume(): void {
    this.#paused = false;
    for (const { stream, chunk } of this.#held.splice(0)) this.write(stream, chunk);
  }

  /** Leaves the finished tree standing, and answers with it; empty where there is none. */
  end(): string {
    this.leave();
    const { stderr, env } = this.#terminal;
    const tree = this.#tree();
    if (tree === null) return "";
    const drawing = drawTree(tree, { colors: colorsFor(stderr, env) });
    stderr.write(`${drawing}\n`);
    return drawing;
  }

  /** Removes the drawing and gives the terminal back. Does nothing where it was left already. */
  leave(): void {
    if (this.#left) return;
    this.resume();
    this.#left = true;
    clearInterval(this.#timer);
    this.#update.clear();
    // Shows the cursor again, which was hidden at the first frame.
    this.#update.done();
    if (this.#midLine) this.#terminal.stderr.write("\n");
  }

  #draw(): void {
    const tree = this.#tree();
    if (this.#paused || this.#midLine || tree === null) return;
    const { stderr, env } = this.#terminal;
    // Lines that are deep in the tree may wrap all the same, so the drawing keeps well below the terminal's height.
    const maxLines = Math.max(3, Math.floor((stderr.rows || 24) / 2));
    const maxMessage = Math.max(20, (stderr.columns || 80) - 24);
    this.#update(drawTree(tree, { colors: colorsFor(stderr, env), maxLines, maxMessage }));
  }
}

/** On a terminal: the tree of calls as it grows, below whatever the worker prints. */
class LiveScreen implements RunScreen {
  readonly #terminal: Terminal;
  readonly #witness = new Witness();
  readonly #live: LiveTree;
  readonly #agents: AgentLines;
  readonly #images = new ImageLines();
  readonly #texts: Readonly<Record<"stdout" | "stderr", WorkerText>>;

  constructor(terminal: Terminal, options: { readonly raw?: boolean }, drawing: Drawing) {
    this.#terminal = terminal;
    this.#texts = { stdout: workerTextTo(terminal.stdout, options), stderr: workerTextTo(terminal.stderr, options) };
    this.#agents = new AgentLines(colorsFor(terminal.stderr, terminal.env));
    this.#live = new LiveTree(terminal, () => this.#witness.tree(), drawing);
  }

  see(event: WatchedEvent): void {
    this.#witness.see(event);
    for (const line of [...this.#agents.see(event), ...this.#images.see(event)]) this.tell(line);
    if (event.type === "output" && event.parent === null)
      this.#live.write(this.#terminal[event.stream], this.#texts[event.stream].piece(event.chunk));
    else if (event.type === "trouble") this.tell(troubleText(event));
  }

  tell(line: string): void {
    this.#live.write(this.#terminal.stderr, `${withoutControls(line)}\n`);
  }

  pause(): void {
    this.#live.pause();
  }

  resume(): void {
    this.#live.resume();
  }

  end(result: RunResult): void {
    for (const stream of ["stdout", "stderr"] as const)
      this.#live.write(this.#terminal[stream], this.#texts[stream].end());
    let told = this.#live.end();
    // A run that was refused before it was asked for has no tree.
    if (told === "" && result.error !== null) {
      told = endingText(result);
      say(this.#terminal, told);
    }
    for (const line of deniedLines(result)) say(this.#terminal, line);
    const changes = changesetText(result, told);
    if (changes !== null) say(this.#terminal, changes);
  }

  [Symbol.dispose](): void {
    this.#live.leave();
  }
}
