import { setTimeout as sleep } from "node:timers/promises";
import { present } from "../../text/present.ts";
import { QueueError, type WhileAway } from "../model/queue.ts";

const ADDRESS = "`queue:` or CORRAL_QUEUE";

/**
 * What a PostgreSQL server or the connection to it says, as an error for people: which server it is, and what to do. Others are returned
 * as they are. A password is in no error of the driver. `place`: the server without its user.
 */
export function explainedError(error: unknown, place: string): unknown {
  const { code = "" } = error as { code?: string };
  const reason = error instanceof Error ? error.message || code : String(error);
  const said = (text: string): QueueError => new QueueError(text, { cause: error });
  if (isHeldUp(error)) {
    const text =
      `PostgreSQL at ${place}: another transaction has held what Corral needs for a minute. Find it in pg_stat_activity, and end it with ` +
      "pg_terminate_backend. Corral ends those of machines itself, if `corral work --grants ROLE` of this version made their role.";
    return new QueueError(text, { cause: error, isPassing: true });
  }
  if (isCrowded(error)) {
    const text =
      `PostgreSQL at ${place} has no room for more locks or notices: ${reason}. Find who takes it in pg_locks and pg_stat_activity, and end ` +
      "it with pg_terminate_backend. Corral ends sessions of machines itself, if `corral work --grants ROLE` of this version made their role.";
    return new QueueError(text, { cause: error, isPassing: true });
  }
  if (isPassing(error)) {
    const text = `PostgreSQL at ${place} does not answer: ${reason}. Start it, or correct the address in ${ADDRESS}.`;
    return new QueueError(text, { cause: error, isPassing: true });
  }
  if (/^(28|3D)/.test(code))
    return said(`PostgreSQL at ${place} refuses the connection: ${reason}. ${refusedAdvice(code, reason)}`);
  if (code === DENIED)
    return said(
      `PostgreSQL at ${place} does not allow this: ${reason}. Use the address of the owner of Corral's tables. For machines, ` +
        "`corral work --grants ROLE` prints what the owner has to grant.",
    );
  // A server that is older than Corral supports refuses what a connection begins with.
  if (/unrecognized configuration parameter/.test(reason) && code === "42704") return said(tooOld(place));
  const advice = tlsAdvice(`${reason} ${code}`);
  return advice === null ? error : said(`The TLS connection to PostgreSQL at ${place} failed: ${reason}. ${advice}`);
}

export function tooOld(place: string): string {
  return `PostgreSQL at ${place} is older than version 15, in which a role may change who its members are. Use a newer server.`;
}

/** insufficient_privilege */
const DENIED = "42501";

/** Also if the error was explained already. */
export function isDenied(error: unknown): boolean {
  const { code, cause } = error as { code?: unknown; cause?: { code?: unknown } };
  return code === DENIED || cause?.code === DENIED;
}

function refusedAdvice(code: string, reason: string): string {
  if (/no encryption/.test(reason)) return `It wants TLS: add \`sslmode=verify-full\` to the address in ${ADDRESS}.`;
  if (/pg_hba\.conf/.test(reason)) return "Its pg_hba.conf has no line for this user, database and address: add one.";
  if (code === "28P01")
    return `Check user and password in ${ADDRESS}. A password that has expired is refused in the same words.`;
  return `Check user, password and database in ${ADDRESS}.`;
}

function tlsAdvice(said: string): string | null {
  if (/does not support SSL/i.test(said))
    return "Switch TLS on in the server (`ssl = on`), or write `sslmode=disable` into the address if no other machine can listen in.";
  if (/altname|ALTNAME_INVALID/i.test(said)) return "Use the name of the server that its certificate has.";
  if (/expired|not yet valid/i.test(said)) return "Renew the server's certificate, or correct the clock.";
  if (/SSL|TLS|certificate|self-signed|CERT_/i.test(said))
    return "Name the authority that signed the server's certificate with `sslrootcert=FILE` in the address.";
  return null;
}

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
  away: null,
  maxWaitMs: 60_000,
  sayAfterMs: 10_000,
  lockMs: 10_000,
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
    await sleep(ms, undefined, present({ signal })).catch(() => {});
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
