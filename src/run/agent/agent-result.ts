import type { AgentEnding } from "../../agent/loop.ts";
import type { Spending } from "../../agent/spending.ts";
import { formatBytes } from "../../sandbox/units.ts";
import type { Job } from "../model/job.ts";
import { type AgentReport, type RunError, type RunResult, unstartedResult } from "../model/result.ts";
import type { StoppedAgent } from "./agent-end.ts";

/** What an agent used of its budget. */
export function agentReport(model: string, spending: Spending): AgentReport {
  const { input, output, isEstimated, isUnpriced, costUsd } = spending.used;
  const tokens = { input, output, estimated: isEstimated };
  return { model, steps: spending.steps, tokens, costUsd: isUnpriced ? null : costUsd };
}

export interface AgentOutcome {
  readonly ending: AgentEnding;
  /** What of its last words is kept. */
  readonly said: { readonly text: string; readonly truncated: boolean };
  /** Null if it ended by itself. */
  readonly stopped: StoppedAgent | null;
}

/** The result of an agent that began. If it was ended from outside, that takes precedence over what it answered. */
export function agentResult(
  { run, worker }: Job,
  { ending, said, stopped }: AgentOutcome,
  outputBytes: number,
  rest: { readonly agent: AgentReport; readonly calls: readonly RunResult[] },
): RunResult {
  const { status, error } = stopped ?? overOutput(worker.name, said.truncated, outputBytes) ?? endedAlone(ending);
  const result = unstartedResult({ run, worker: worker.name }, status, error ?? NO_ERROR);
  const output = error === null ? ending.output : null;
  return { ...result, ...rest, output, stdout: said.text, truncated: said.truncated, error };
}

type Ended = Pick<RunResult, "status" | "error">;

function overOutput(worker: string, truncated: boolean, outputBytes: number): Ended | null {
  if (!truncated) return null;
  const message = `Agent ${worker} answered more than its limit of ${formatBytes(outputBytes)}.`;
  return { status: "output_limit", error: { code: "OUTPUT_LIMIT", message } };
}

function endedAlone({ failure }: AgentEnding): Ended {
  return failure === null ? { status: "succeeded", error: null } : { status: "failed", error: failure };
}

const NO_ERROR: RunError = { code: "", message: "" };
