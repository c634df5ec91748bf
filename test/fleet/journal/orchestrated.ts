import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import type { Order } from "./orchestrator.ts";

/** A process at a journal, see `orchestrator.ts`. */
export interface Orchestrated {
  /** The lines so far that begin with this word, without it. */
  told(word: string): string[];
  /** When it has told so many of them. Rejects where it ends before. */
  toldSoMany(word: string, count: number): Promise<void>;
  kill(): void;
  /** Its exit status; null: it was killed. */
  readonly exit: Promise<number | null>;
}

export function orchestrate(order: Order, nodeOptions: readonly string[] = []): Orchestrated {
  const script = join(import.meta.dirname, "orchestrator.ts");
  const child = spawn(process.execPath, [...nodeOptions, script, JSON.stringify(order)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
    text += chunk;
  });
  const exit = once(child, "close").then(() => child.exitCode);
  const told: Orchestrated["told"] = (word) =>
    text
      .split("\n")
      .slice(0, -1)
      .filter((line) => line.split(" ")[0] === word)
      .map((line) => line.slice(word.length + 1));
  return {
    told,
    async toldSoMany(word, count) {
      while (told(word).length < count) {
        if (child.exitCode !== null) throw new Error(`it ended with ${child.exitCode} and told: ${text.slice(-500)}`);
        await Promise.race([once(child.stdout, "data"), exit]);
      }
    },
    kill: () => void child.kill("SIGKILL"),
    exit,
  };
}
