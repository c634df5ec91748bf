import { createLogUpdate } from "log-update";
import { deniedLines } from "../../operations/wording/question-text.ts";
import type { RunResult } from "../../run/model/result.ts";
import {
  colorsFor,
  type RunScreen,
  say,
  type Terminal,
  type WatchedEvent,
  withoutControls,
} from "../terminal/terminal.ts";
import { ImageLines, type WorkerText, workerTextTo } from "../terminal/worker-text.ts";
import { AgentLines, changesetText, drawTree, endingText, type TreeRun, troubleText, Witness } from "./tree.ts";

const FRAME_MS = 100;
/** Or is empty but for a change of colours. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: the escape that begins a colour is what is looked for.
const ENDS_LINE = /(?:^|\n)(?:\u001b\[0m)*$/;

/** A drawing at the bottom of the terminal that follows a tree of runs, and steps aside for everything else. */
export class LiveTree {
  readonly #terminal: Terminal;
  readonly #tree: () => TreeRun | null;
  readonly #update: ReturnType<typeof createLogUpdate>;
  readonly #timer: NodeJS.Timeout;
  #paused = false;
  /** Nothing is drawn after an incomplete line of another writer. */
  #midLine = false;
  #left = false;
  /** What came while another writer had the terminal: bounded by the runs' own output limits. */
  #held: { readonly stream: NodeJS.WriteStream; readonly chunk: string | Uint8Array }[] = [];

  constructor(terminal: Terminal, tree: () => TreeRun | null) {
    this.#terminal = terminal;
    this.#tree = tree;
    this.#update = createLogUpdate(terminal.stderr);
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
export class LiveScreen implements RunScreen {
  readonly #terminal: Terminal;
  readonly #witness = new Witness();
  readonly #live: LiveTree;
  readonly #agents: AgentLines;
  readonly #images = new ImageLines();
  readonly #texts: Readonly<Record<"stdout" | "stderr", WorkerText>>;

  constructor(terminal: Terminal, options: { readonly raw?: boolean }) {
    this.#terminal = terminal;
    this.#texts = { stdout: workerTextTo(terminal.stdout, options), stderr: workerTextTo(terminal.stderr, options) };
    this.#agents = new AgentLines(colorsFor(terminal.stderr, terminal.env));
    this.#live = new LiveTree(terminal, () => this.#witness.tree());
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
