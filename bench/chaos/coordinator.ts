import { join } from "node:path";
import type { Target } from "./faults.ts";
import type { Link } from "./links.ts";
import { jsonLines, type Processes } from "./processes.ts";

/** The process that owns the fleet, and those that take it over after it was killed. */
export class Coordinator implements Target {
  readonly name = "the coordinator";
  readonly link: Link;
  readonly processes: Processes;
  readonly #events: string;
  /** Exit codes of processes that ended by themselves before the fleet had. */
  readonly endings: (number | null)[] = [];

  constructor(processes: Processes, link: Link, base: string) {
    this.processes = processes;
    this.link = link;
    this.#events = join(base, "events.jsonl");
  }

  begin(args: readonly string[]): void {
    this.processes.start([...args, ...this.#common]);
  }

  kill(signal: NodeJS.Signals): void {
    this.processes.kill(signal);
  }

  startAgain(): void {
    const { fleet } = this;
    if (fleet !== null) this.processes.start(["fleet", "resume", fleet, ...this.#common]);
  }

  get fleet(): string | null {
    const started = jsonLines(this.#events).find(({ type }) => type === "fleet_started");
    return (started?.fleet as string | undefined) ?? null;
  }

  /** What happened, in all of its processes. */
  get events(): Record<string, unknown>[] {
    return jsonLines(this.#events);
  }

  get #common(): string[] {
    return ["--json", "--events", this.#events];
  }
}
