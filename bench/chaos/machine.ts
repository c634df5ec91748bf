import { setTimeout as sleep } from "node:timers/promises";
import type { Target } from "./faults.ts";
import type { Link } from "./links.ts";
import type { Processes } from "./processes.ts";

const LOOK_MS = 100;
const MAX_LOOKS = 600;

/** `corral work`, one process after another. */
export class Machine implements Target {
  readonly processes: Processes;
  readonly link: Link;
  readonly #words: readonly string[];
  /** Lines of the processes before. */
  #toldBefore = 0;

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
    this.#toldBefore = this.processes.told().length;
    this.processes.start(["work", "--name", this.name, "--json", ...this.#words]);
  }

  /** Until it has said something: a process that loads its code is ended at once by any signal. Not for ever. */
  async hasBegun(): Promise<void> {
    for (let look = 0; look < MAX_LOOKS && this.processes.told().length === this.#toldBefore; look += 1)
      await sleep(LOOK_MS);
  }
}
