import type { Approver } from "../../approval/approver.ts";
import { QueuedApprover } from "../../approval/queued-approver.ts";
import type { Project } from "../../declarations/project.ts";
import type { Stop } from "../terminal/stop.ts";
import type { Terminal } from "../terminal/terminal.ts";

interface Surroundings {
  readonly terminal: Terminal;
  /** What draws on standard error, and keeps still while a question is open. */
  readonly screen: { pause(): void; resume(): void };
  readonly stop: Stop;
}

/** Somebody can be asked only where they can both read the question and type the answer. */
export function personAt(project: Project, { terminal, screen, stop }: Surroundings): Approver | null {
  if (!terminal.stderr.isTTY || !terminal.stdin.isTTY) return null;
  return new QueuedApprover({
    ask: async (question, signal) => await (await import("./prompt.ts")).promptAt(terminal, screen)(question, signal),
    timeoutMs: project.approval.timeoutMs,
    onInterrupt: () => stop.cancel(),
  });
}
