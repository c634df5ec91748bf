import { setTimeout as sleep } from "node:timers/promises";
import type { WhileAway } from "../model/while-away.ts";

const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 2000;
/** How long a statement may still take when the wait has ended, before the next look. */
const LAST_TRY_MS = 1000;

/** Codes of PostgreSQL: the connection is lost, the server stops or starts, two transactions wait for each other, or one waits too long. */
const PASSING = /^(08...|57P0[1235]|40001|40P01|53300|55P03)$/;
const NETWORK = /^(ECONN|EPIPE$|ETIMEDOUT$|ENOENT$|EAI_|EHOSTUNREACH$|ENETUNREACH$)/;
const TEXTS = /^(Connection terminated|timeout expired|timeout exceeded|Client has encountered|Query read timeout)/;

/** The server answers: a lock that is held, or a transaction in the way of another. */
const REFUSED = /^(40001|40P01|55P03)$/;

/** Whether the same may succeed later. What was being committed is then unknown. */
export function isPassing(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const { code } = error as { code?: unknown };
  return (
    isCrowded(error) ||
    (typeof code === "string" && (PASSING.test(code) || NETWORK.test(code))) ||
    TEXTS.test(error.message)
  );
}

/** Another transaction holds what the statement needs. */
export function isHeldUp(error: unknown): boolean {
  return (error as { code?: unknown }).code === "55P03";
}

/** The room for locks or for notices, which all sessions of a server share, is taken. */
export function isCrowded(error: unknown): boolean {
  const { code, routine } = error as { code?: unknown; routine?: unknown };
  return code === "53200" || (code === "54000" && routine === "PreCommit_Notify");
}

export interface Persistence {
  /** Null: each statement waits for {@link Persistence.maxWaitMs}. */
  readonly away: WhileAway | null;
  /** A server that restarts is back within this time; afterwards the caller gets the error. */
  readonly maxWaitMs: number;
  /** A longer outage is reported to {@link WhileAway.onAway}, and from then on the wait can be ended. */
  readonly sayAfterMs: number;
  /** How long a statement waits for what another transaction holds, before that is ended if a machine does. */
  readonly lockMs: number;
  /** Of one answer, which is in memory as a whole: a hostile server could send one without end. What Corral asks for has some megabytes. */
  readonly maxAnswerBytes: number;
}

export const PERSISTENCE: Persistence = {
  ...{ away: null, maxWaitMs: 60_000, sayAfterMs: 10_000, lockMs: 10_000 },
  maxAnswerBytes: 256 * 1024 ** 2,
};

/** Tries statements again while the connection is lost, with growing pauses. */
export class Retries {
  readonly #how: Persistence;
  readonly #whyOf: (error: unknown) => string;
  /** When the first of those failed that failed since the last success. */
  #failedSince: number | null = null;
  /** Of an outage that was reported. */
  #reported: unknown = null;

  constructor(how: Persistence, whyOf: (error: unknown) => string) {
    this.#how = how;
    this.#whyOf = whyOf;
  }

  /** `again`: it was tried before. */
  async run<T>(attempt: (again: boolean) => Promise<T>, isClosed: () => boolean): Promise<T> {
    const startedAt = performance.now();
    for (let tries = 0; ; tries += 1) {
      try {
        const value = await this.#untilOver(attempt(tries > 0));
        this.#succeeded();
        return value;
      } catch (error) {
        if (!isPassing(error) || isClosed() || this.#isEnough(error, startedAt)) throw error;
        await this.#pause(Math.min(FIRST_PAUSE_MS * 2 ** Math.min(tries, 10), LONGEST_PAUSE_MS));
      }
    }
  }

  #isEnough(error: unknown, startedAt: number): boolean {
    const { away, maxWaitMs, sayAfterMs } = this.#how;
    const now = performance.now();
    // What the server itself refuses, such as a lock that is held for too long, is no outage.
    if (away === null || isCrowded(error) || REFUSED.test(String((error as { code?: unknown }).code)))
      return now - startedAt > maxWaitMs;
    this.#failedSince ??= now;
    if (this.#reported === null && now - this.#failedSince >= sayAfterMs) {
      this.#reported = error;
      if (!away.over.aborted) away.onAway(this.#whyOf(error));
    }
    return this.#reported !== null && away.over.aborted;
  }

  #succeeded(): void {
    this.#failedSince = null;
    if (this.#reported === null) return;
    this.#reported = null;
    this.#how.away?.onBack();
  }

  /** An outage that was not reported may be a restart, which is waited for. */
  async #pause(ms: number): Promise<void> {
    const { away } = this.#how;
    const signal = this.#reported === null ? undefined : away?.over;
    await sleep(ms, undefined, signal === undefined ? {} : { signal }).catch(() => {});
  }

  /** A network that carries nothing may also report nothing: when the wait is over, an attempt does not wait for it either. */
  async #untilOver<T>(attempt: Promise<T>): Promise<T> {
    const { away } = this.#how;
    if (away === null) return await attempt;
    const gaveUp = Promise.withResolvers<never>();
    let looking: NodeJS.Timeout | undefined;
    const onOver = (): void => {
      looking = setInterval(() => {
        if (this.#reported !== null) gaveUp.reject(this.#reported);
      }, LAST_TRY_MS);
    };
    if (away.over.aborted) onOver();
    else away.over.addEventListener("abort", onOver, { once: true });
    try {
      return await Promise.race([attempt, gaveUp.promise]);
    } finally {
      away.over.removeEventListener("abort", onOver);
      clearInterval(looking);
    }
  }
}
