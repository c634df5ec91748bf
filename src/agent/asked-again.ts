import { setTimeout as delay } from "node:timers/promises";
import { ask, type Listener, type Question } from "./ask.ts";
import type { AgentEvent } from "./events.ts";
import { type AgentFailure, ModelFailure } from "./failure.ts";
import type { Answer } from "./messages/conversation.ts";

/** How often, and how long between: providers that are overloaded recover within a minute or not for long. */
export interface Patience {
  readonly attempts: number;
  readonly firstWaitMs: number;
  readonly maxWaitMs: number;
  /** After this much silence in the middle of an answer nothing more is expected of it. */
  readonly maxSilenceMs: number;
}

/** Providers send something every few seconds, most of them also while a model thinks. */
export const PATIENCE: Patience = { attempts: 5, firstWaitMs: 1000, maxWaitMs: 60_000, maxSilenceMs: 180_000 };

export type Asked =
  | { readonly ok: true; readonly answer: Answer }
  | { readonly ok: false; readonly failure: AgentFailure };

export interface AskingAgain extends Pick<Listener, "lost"> {
  readonly emit: (event: AgentEvent) => void;
  /** What an answer that broke off used counts too: the limit that it used up, or null. */
  readonly spent: () => AgentFailure | null;
}

/** Asks until there is an answer, until asking is of no use, or for nothing left. Rejects with the reason of `signal`, and for bugs. */
export async function askAgain(
  question: Question,
  patience: Patience,
  { emit, lost, spent }: AskingAgain,
  signal: AbortSignal,
): Promise<Asked> {
  const listener: Listener = { text: (piece) => emit({ kind: "text", piece }), lost };
  for (let attempt = 1; ; attempt += 1) {
    try {
      return { ok: true, answer: await ask(question, listener, patience.maxSilenceMs, signal) };
    } catch (failure) {
      signal.throwIfAborted();
      if (!(failure instanceof ModelFailure)) throw failure;
      const waitMs = waitBefore(attempt, failure, patience);
      if (waitMs === null) return { ok: false, failure };
      const limit = spent();
      if (limit !== null) return { ok: false, failure: limit };
      emit({ kind: "retry", reason: failure.message, waitMs });
      await delay(waitMs, undefined, { signal }).catch(() => signal.throwIfAborted());
    }
  }
}

/** Null: not again. What the provider asks for counts, where it is no longer than anybody waits. */
function waitBefore(attempt: number, { retryAfterMs }: ModelFailure, patience: Patience): number | null {
  if (retryAfterMs === null || attempt >= patience.attempts || retryAfterMs > patience.maxWaitMs) return null;
  const backoff = Math.min(patience.firstWaitMs * 2 ** (attempt - 1), patience.maxWaitMs);
  // Many agents that were refused at once do not come back at once.
  return Math.round(Math.max(retryAfterMs, backoff * (0.75 + Math.random() / 2)));
}
