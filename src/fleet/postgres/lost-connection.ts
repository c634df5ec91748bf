import { setTimeout as sleep } from "node:timers/promises";

/** A server that restarts is back within this time; afterwards the caller gets the error. */
const MAX_WAIT_MS = 60_000;
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 2000;

/** Codes of PostgreSQL: the connection is lost, the server stops or starts, or two transactions wait for each other. */
const PASSING = /^(08...|57P0[1235]|40001|40P01|53300)$/;
const NETWORK = /^(ECONN|EPIPE$|ETIMEDOUT$|ENOENT$|EAI_|EHOSTUNREACH$|ENETUNREACH$)/;
const TEXTS = /^(Connection terminated|timeout expired|timeout exceeded|Client has encountered|Query read timeout)/;

/** Whether the same may succeed later. What was being committed is then unknown. */
export function isPassing(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const { code } = error as { code?: unknown };
  return (typeof code === "string" && (PASSING.test(code) || NETWORK.test(code))) || TEXTS.test(error.message);
}

/** Tries again while the connection is lost, with growing pauses, for a minute at most. `again`: it was tried before. */
export async function persistently<T>(attempt: (again: boolean) => Promise<T>, isClosed: () => boolean): Promise<T> {
  const startedAt = performance.now();
  for (let tries = 0; ; tries += 1) {
    try {
      return await attempt(tries > 0);
    } catch (error) {
      if (!isPassing(error) || isClosed() || performance.now() - startedAt > MAX_WAIT_MS) throw error;
      await sleep(Math.min(FIRST_PAUSE_MS * 2 ** Math.min(tries, 10), LONGEST_PAUSE_MS));
    }
  }
}
