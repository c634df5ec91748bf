import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { PROGRAM } from "../../test/cli/program.ts";

export interface ProcessPlace {
  readonly name: string;
  /** Of this harness. */
  readonly base: string;
  /** The words before the command: in which network it runs. */
  readonly before: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

/** The command line, one process after another in one place: its copy of the project, its state directory, its network. */
export class Processes {
  readonly name: string;
  readonly stateDir: string;
  readonly projectDir: string;
  readonly #place: ProcessPlace;
  #child: ChildProcess | null = null;
  #ended: Promise<number | null> = Promise.resolve(null);

  constructor(place: ProcessPlace) {
    this.#place = place;
    this.name = place.name;
    this.stateDir = join(place.base, `state-${place.name}`);
    this.projectDir = join(place.base, place.name);
  }

  get isRunning(): boolean {
    return this.#child !== null && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Its exit code; null if a signal ended it. */
  get ended(): Promise<number | null> {
    return this.#ended;
  }

  get before(): readonly string[] {
    return this.#place.before;
  }

  get environment(): Record<string, string | undefined> {
    return { ...process.env, CORRAL_STATE_DIR: this.stateDir, ...this.#place.env };
  }

  /** What it prints is appended to `NAME.out` and `NAME.err`. */
  start(args: readonly string[]): void {
    this.#child = this.#spawned(args, this.#log("out"));
    this.#ended = once(this.#child, "exit").then(([code]) => code as number | null);
  }

  /** Another command in the same place; what it prints on standard output, as JSON. */
  async aside(args: readonly string[], path: string): Promise<Record<string, unknown>[]> {
    await once(this.#spawned(args, path), "exit");
    return jsonLines(path);
  }

  kill(signal: NodeJS.Signals): void {
    if (this.isRunning) this.#child?.kill(signal);
  }

  /** Everything that it printed on standard output, as JSON. A line that was cut by `kill -9` is left out. */
  told(): Record<string, unknown>[] {
    return jsonLines(this.#log("out"));
  }

  errors(): string {
    return existsSync(this.#log("err")) ? readFileSync(this.#log("err"), "utf8") : "";
  }

  #spawned(args: readonly string[], outPath: string): ChildProcess {
    const [program = "", ...words] = [...this.#place.before, process.execPath, PROGRAM, ...args, "-C", this.projectDir];
    const [out, err] = [openSync(outPath, "a"), openSync(this.#log("err"), "a")];
    const child = spawn(program, words, { env: this.environment, stdio: ["ignore", out, err], cwd: this.#place.base });
    closeSync(out);
    closeSync(err);
    return child;
  }

  #log(kind: "out" | "err"): string {
    return join(this.#place.base, `${this.name}.${kind}`);
  }
}

export function jsonLines(path: string): Record<string, unknown>[] {
  if (!existsSync(path)) return [];
  return readFileSync(path, "utf8")
    .split("\n")
    .flatMap((line) => {
      try {
        return line === "" ? [] : [JSON.parse(line) as Record<string, unknown>];
      } catch {
        return [];
      }
    });
}
