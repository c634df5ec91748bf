import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { RunResult } from "../../src/index.ts";
import { killAlone } from "./kill-alone.ts";

/** What `orchestrator-child.ts` says, line by line. */
interface Line {
  readonly began?: string;
  readonly ended?: RunResult;
  readonly trouble?: string;
}

export interface Orchestrator extends AsyncDisposable {
  readonly lines: readonly Line[];
  readonly stderr: () => string;
  /** Settles when so many of its lines hold this. */
  said(what: keyof Line, times: number): Promise<void>;
  /** By {@link killAlone}; settles when it is gone. */
  kill(): Promise<void>;
  /** `kill -9` of the process and not of its watch. */
  killOnly(): void;
  readonly exit: Promise<number | null>;
}

export interface OrchestratorOptions {
  readonly projectDir: string;
  readonly stateDir: string;
  readonly worker: string;
  readonly runs: number;
  readonly env?: Readonly<Record<string, string>>;
}

/** Starts a process that runs a worker so many times at once. `prefix`: a command that starts it. */
export function startOrchestrator(options: OrchestratorOptions, prefix: readonly string[] = []): Orchestrator {
  const script = join(import.meta.dirname, "orchestrator-child.ts");
  const [program = "", ...args] = [...prefix, process.execPath, script, JSON.stringify(options)];
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
  const lines: Line[] = [];
  const waiting = new Set<() => void>();
  createInterface(child.stdout).on("line", (line) => {
    lines.push(JSON.parse(line) as Line);
    for (const look of waiting) look();
  });
  let stderr = "";
  child.stderr.on("data", (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  const exit = once(child, "close").then(() => child.exitCode);
  return {
    lines,
    stderr: () => stderr,
    exit,
    async said(what, times) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const look = (): void => {
        if (lines.filter((line) => line[what] !== undefined).length >= times) resolve();
      };
      waiting.add(look);
      look();
      const ended = exit.then((code) => {
        if (lines.filter((line) => line[what] !== undefined).length < times)
          throw new Error(
            `the orchestrator ended (${code}) before it said ${what} ${times} times: ${stderr} ${JSON.stringify(lines)}`,
          );
      });
      await Promise.race([promise, ended]).finally(() => waiting.delete(look));
    },
    async kill() {
      killAlone(child);
      await exit;
    },
    killOnly: () => void child.kill("SIGKILL"),
    async [Symbol.asyncDispose]() {
      if (isRunning(child)) child.kill("SIGKILL");
      await exit;
    },
  };
}

function isRunning(child: ChildProcess): boolean {
  return child.exitCode === null && child.signalCode === null;
}
