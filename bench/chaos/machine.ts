import type { Target } from "./faults.ts";
import type { Link } from "./links.ts";
import type { Processes } from "./processes.ts";

/** `corral work`, one process after another. */
export class Machine implements Target {
  readonly processes: Processes;
  readonly link: Link;
  readonly #words: readonly string[];

  constructor(processes: Processes, link: Link, words: readonly string[]) {
    this.processes = processes;
    this.link = link;
    this.#words = words;
  }

  get name(): string {
    return this.processes.name;
  }

  kill(signal: NodeJS.Signals): void {
    this.processes.kill(signal);
  }

  startAgain(): void {
    this.processes.start(["work", "--name", this.name, "--json", ...this.#words]);
  }
}
