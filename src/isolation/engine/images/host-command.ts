import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { hasCode } from "../../../platform/errno.ts";

export interface CommandOptions {
  readonly onLine?: (line: string) => void;
  readonly signal?: AbortSignal | undefined;
  /** Added to the few variables that a command gets. Nothing is inherited. */
  readonly env?: Readonly<Record<string, string>>;
}

export interface CommandEnd {
  readonly succeeded: boolean;
  /** How it ended, and the last lines that it printed. */
  readonly account: string;
}

export const SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const TAIL_LINES = 15;
/** Longer than debootstrap takes over a slow line. */
const TIMEOUT_MS = 20 * 60_000;

/** Runs one of the host's programs to its end. A missing program is a failure like any other. */
export function runHostCommand(command: readonly string[], options: CommandOptions = {}): Promise<CommandEnd> {
  const [program = "", ...args] = command;
  const child = spawn(program, args, {
    stdio: ["ignore", "pipe", "pipe"],
    env: { PATH: SYSTEM_PATH, HOME: "/", LC_ALL: "C.UTF-8", DEBIAN_FRONTEND: "noninteractive", ...options.env },
    killSignal: "SIGKILL",
    ...(options.signal && { signal: options.signal }),
  });
  // Not the `timeout` option of `spawn`: if there is no such program, its timer would keep this process alive.
  const timer = setTimeout(() => child.kill("SIGKILL"), TIMEOUT_MS);
  const tail: string[] = [];
  for (const input of [child.stdout, child.stderr]) {
    createInterface({ input }).on("line", (line) => {
      tail.push(line);
      if (tail.length > TAIL_LINES) tail.shift();
      options.onLine?.(line);
    });
  }
  return new Promise((resolve, reject) => {
    const end = (how: string) =>
      resolve({ succeeded: how === "status 0", account: [`${program}: ${how}`, ...tail].join("\n") });
    child.once("error", (error: unknown) => {
      clearTimeout(timer);
      if (hasCode(error, "ENOENT")) end("no such program");
      else reject(error);
    });
    child.once("close", (code, signal) => {
      clearTimeout(timer);
      end(code === null ? `killed by ${signal}` : `status ${code}`);
    });
  });
}

/**
 * The same command in its own mount and process namespaces, so that everything it mounts and starts ends with it, even
 * if it is killed. Needs root.
 */
export function contained(command: readonly string[]): string[] {
  return ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", ...command];
}
