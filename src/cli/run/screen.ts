import { deniedLines } from "../../operations/wording/question-text.ts";
import type { RunResult } from "../../run/model/result.ts";
import { printableLine } from "../../text/visible.ts";
import { colorsFor, printJson, type RunScreen, say, type Terminal, type WatchedEvent } from "../terminal/terminal.ts";
import { ImageLines, type WorkerText, workerTextTo } from "../terminal/worker-text.ts";
import { AgentLines, changesetText, drawTree, endingText, troubleText, Witness } from "./tree.ts";

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
  const { LiveScreen } = await import("./live-screen.ts");
  return new LiveScreen(terminal, options);
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
