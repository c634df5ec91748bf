import { deniedLines } from "../../operations/wording/denied-traffic.ts";
import type { RunEvent } from "../../run/model/events.ts";
import type { RunResult } from "../../run/model/result.ts";
import { ImageLines } from "../terminal/image-lines.ts";
import type { RunScreen } from "../terminal/screen.ts";
import { colorsFor, say, type Terminal, withoutControls } from "../terminal/terminal.ts";
import { type WorkerText, workerTextTo } from "../terminal/worker-text.ts";
import { AgentLines } from "./agent-lines.ts";
import { LiveTree } from "./live-tree.ts";
import { changesText, endingText, troubleText } from "./run-text.ts";
import { Witness } from "./witness.ts";

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

  see(event: RunEvent): void {
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
    const changes = changesText(result, told);
    if (changes !== null) say(this.#terminal, changes);
  }

  [Symbol.dispose](): void {
    this.#live.leave();
  }
}
