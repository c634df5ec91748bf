import { createLogUpdate } from "log-update";
import { colorsFor, type Terminal } from "../terminal/terminal.ts";
import { drawTree, type TreeRun } from "./tree.ts";

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
