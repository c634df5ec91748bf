import type { RunResult } from "../run/model/result.ts";
import type { ItemResult } from "./model/item.ts";
import type { ClaimedItem } from "./model/queue.ts";

/** What became of an attempt. `troubles`: what was told to people of it meanwhile. */
export function itemResult(
  { request, attempt, run }: ClaimedItem,
  result: RunResult,
  startedAt: Date | null,
  troubles: readonly string[],
): ItemResult {
  return {
    index: request.index,
    key: request.key,
    status: result.status,
    run,
    attempt,
    exitCode: result.exitCode,
    output: result.output,
    error: explained(result, troubles),
    startedAt: startedAt?.toISOString() ?? null,
    endedAt: new Date().toISOString(),
    durationMs: startedAt === null ? 0 : Date.now() - startedAt.getTime(),
    memoryBytesPeak: result.usage.memoryBytesPeak,
  };
}

/** That it was lost or failed says nothing of why; what was told to people meanwhile does, or what the worker said last. */
function explained({ status, error, stderr }: RunResult, troubles: readonly string[]): RunResult["error"] {
  if (error === null) return null;
  const why = status === "lost" ? troubles.join("; ") : SPEAKS.has(status) ? lastWords(stderr) : "";
  return why === "" ? error : { ...error, message: `${error.message} (${why})` };
}

/** Of these the worker itself may know more. */
const SPEAKS: ReadonlySet<string> = new Set(["failed", "signaled", "timed_out", "oom_killed", "disk_limit"]);
const MAX_LAST_LINES = 3;
const MAX_LAST_CHARACTERS = 500;

/** The end of what a worker printed for people, in one line. */
function lastWords(stderr: string): string {
  const lines = stderr
    .slice(-4 * MAX_LAST_CHARACTERS)
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
  const words = lines.slice(-MAX_LAST_LINES).join(" / ").slice(-MAX_LAST_CHARACTERS).toWellFormed();
  return words === "" ? "" : `it said: ${words}`;
}

/** Of an item for which nothing ran. */
export function unrunResult({ request }: ClaimedItem, status: string): ItemResult {
  return {
    index: request.index,
    key: request.key,
    status,
    run: null,
    attempt: 0,
    exitCode: null,
    output: null,
    error: null,
    startedAt: null,
    endedAt: new Date().toISOString(),
    durationMs: 0,
    memoryBytesPeak: null,
  };
}
