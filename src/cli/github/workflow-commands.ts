import { randomBytes } from "node:crypto";
import type { Terminal } from "../terminal/terminal.ts";

/**
 * The runner of GitHub Actions reads commands from everything that a step prints, such as `::error::` and `::add-mask::`. A worker
 * chooses what it prints. So the runner is asked to read none for the rest of the step, before anything else is printed. It is never
 * asked to read them again: it reads standard error before standard output, and would read commands that a worker printed last.
 */
export function stopWorkflowCommands({ env, stderr }: Pick<Terminal, "env" | "stderr">): void {
  if (env.GITHUB_ACTIONS !== "true") return;
  stderr.write(`::stop-commands::${randomBytes(16).toString("hex")}\n`);
}
