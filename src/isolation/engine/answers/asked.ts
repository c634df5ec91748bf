import { setTimeout as pause } from "node:timers/promises";
import { z } from "zod";
import { hasCode } from "../../../platform/errno.ts";
import { EngineTrouble } from "../../port/driver.ts";

/** The pauses between the attempts of a call that may be repeated, in milliseconds. */
const PAUSES_MS = [20, 100, 400] as const;
/** The same for a removal: what is not removed now stays until the next start of Corral. */
const REMOVAL_PAUSES_MS = [20, 100, 400, 1000, 2000, 4000] as const;
/** An Engine that takes longer for a call that should return at once has failed. A busy one takes some seconds. */
const ANSWER_TIMEOUT_MS = 120_000;
/** An answer that cannot be read is shown up to here. */
const MAX_SHOWN_CHARS = 120;

/** Shape of an answer whose content does not matter. */
export const ANYTHING = z.unknown();

/**
 * The answer to a call that changes nothing if it is made again. Whatever fails is repeated: a connection that breaks
 * says nothing about the call, and one wrong answer little about the Engine. An answer that does not have `shape` is a
 * failure too. The error is that of the last attempt.
 */
export async function asked<Answer>(call: () => Promise<unknown>, shape: z.ZodType<Answer>): Promise<Answer> {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return answerOf(await inTime(call()), shape);
    } catch (error) {
      const pauseMs = PAUSES_MS[attempt];
      if (pauseMs === undefined || isSilent(error)) throw error;
      await pause(pauseMs);
    }
  }
}

/**
 * Removes something, or ends it: `call` is repeated until the Engine has done it, or has twice said that it is gone, since
 * one such answer may be wrong. True if this call did it.
 */
export async function untilGone(call: () => Promise<unknown>): Promise<boolean> {
  let gone = 0;
  for (let attempt = 0; ; attempt += 1) {
    try {
      await inTime(call());
      return true;
    } catch (error) {
      if (isGone(error)) gone += 1;
      if (gone === 2) return false;
      const pauseMs = REMOVAL_PAUSES_MS[attempt];
      if (pauseMs === undefined || isSilent(error)) throw error;
      await pause(pauseMs);
    }
  }
}

/** Zod would compile each shape: most are read a few times in a process, which takes less. */
const ONCE = { jitless: true } as const;

/** @throws EngineTrouble for another shape: whatever followed from such an answer would be invented. */
export function answerOf<Answer>(answer: unknown, shape: z.ZodType<Answer>): Answer {
  const read = shape.safeParse(answer, ONCE);
  if (read.success) return read.data;
  const text = Buffer.isBuffer(answer) ? answer.toString("utf8") : (JSON.stringify(answer) ?? "");
  throw new EngineTrouble(
    `the Engine sent an answer that cannot be read: ${JSON.stringify(text.slice(0, MAX_SHOWN_CHARS))}`,
  );
}

/** No Engine listens, or it was silent for long: asking again at once would change nothing. */
function isSilent(error: unknown): boolean {
  const isLate = error instanceof NoAnswer || (error as Error).name === "AbortError";
  return isLate || hasCode(error, "ENOENT", "ENOTDIR", "EACCES", "EPERM", "ECONNREFUSED");
}

class NoAnswer extends EngineTrouble {}

/** Rejects if the Engine does not answer. */
export async function inTime<Answer>(answer: Promise<Answer>): Promise<Answer> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const text = `the Engine did not answer within ${ANSWER_TIMEOUT_MS / 1000} s`;
  const timer = setTimeout(() => reject(new NoAnswer(text)), ANSWER_TIMEOUT_MS);
  // The process may end meanwhile.
  timer.unref();
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** What an inspection reports of a container's state. */
export const ContainerState = z.object({
  State: z.object({
    Status: z.string(),
    Running: z.boolean(),
    ExitCode: z.int(),
    OOMKilled: z.boolean(),
  }),
});

export const isConflict = (error: unknown): boolean => statusCodeOf(error) === 409;

/** The HTTP status of an error of the Engine's API; null if the Engine did not answer. */
export function statusCodeOf(error: unknown): number | null {
  const status = (error as { statusCode?: unknown }).statusCode;
  return typeof status === "number" ? status : null;
}

export function isGone(error: unknown): boolean {
  return statusCodeOf(error) === 404;
}

/** The Engine's own message, without the client's prefix. */
export function engineMessage(error: unknown): string {
  const { json, message } = error as { json?: { message?: unknown }; message?: string };
  return typeof json?.message === "string" ? json.message : (message ?? String(error));
}

/** An error of the Engine, or of the connection to it, as the error that every driver throws. */
export function engineTrouble(error: unknown): EngineTrouble {
  return error instanceof EngineTrouble ? error : new EngineTrouble(engineMessage(error), { cause: error });
}

/** Every failure of the Engine becomes an `EngineTrouble`. */
export async function told<Answer>(answer: Promise<Answer>): Promise<Answer> {
  return await answer.catch((error: unknown) => {
    throw engineTrouble(error);
  });
}
