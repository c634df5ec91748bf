import { setTimeout as delay } from "node:timers/promises";
import { ask, type Listener, type Question } from "./ask.ts";
import type { AgentEvent } from "./events.ts";
import { type AgentFailure, ModelFailure } from "./failure.ts";
import type { Answer, Tokens } from "./messages/conversation.ts";

/** Retries and their delays. An overloaded provider recovers within a minute or stays overloaded. */
export interface Patience {
  readonly attempts: number;
  readonly firstWaitMs: number;
  readonly maxWaitMs: number;
  /** The longest silence within an answer before it counts as broken off. */
  readonly maxSilenceMs: number;
}

/** Providers send something every few seconds, most of them also while a model reasons. */
export const PATIENCE: Patience = { attempts: 5, firstWaitMs: 1000, maxWaitMs: 60_000, maxSilenceMs: 180_000 };

export type Asked =
  | { readonly ok: true; readonly answer: Answer }
  | { readonly ok: false; readonly failure: AgentFailure };

/** Called when the model is asked once more. What it returns is called with the end of that request: tokens, and a code if it failed. */
export type OnAsking = () => (tokens: Tokens, code: string | null) => void;

interface AskingAgain extends Pick<Listener, "lost"> {
  readonly emit: (event: AgentEvent) => void;
  readonly asking?: OnAsking | undefined;
  /** The limit that is used up, or null. Answers that broke off count too. */
  readonly spent: () => AgentFailure | null;
}

/** Asks until there is an answer, a final error, or no attempt left. Rejects with the reason of `signal`, and for bugs. */
export async function askAgain(
  question: Question,
  patience: Patience,
  { emit, lost, spent, asking }: AskingAgain,
  signal: AbortSignal,
): Promise<Asked> {
  const listener: Listener = { text: (piece) => emit({ kind: "text", piece }), lost };
  for (let attempt = 1; ; attempt += 1) {
    const asked = asking?.();
    try {
      const answer = await ask(question, listener, patience.maxSilenceMs, signal);
      asked?.(answer.tokens, null);
      return { ok: true, answer };
    } catch (failure) {
      asked?.(UNKNOWN, signal.aborted ? "CANCELLED" : failure instanceof ModelFailure ? failure.code : "INTERNAL");
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

/** The provider reports no tokens for an answer that broke off. */
const UNKNOWN: Tokens = { input: null, output: null };

/** The delay before the next attempt; null: no further attempt. The provider's own delay applies up to `maxWaitMs`. */
function waitBefore(attempt: number, { retryAfterMs }: ModelFailure, patience: Patience): number | null {
  if (retryAfterMs === null || attempt >= patience.attempts || retryAfterMs > patience.maxWaitMs) return null;
  const backoff = Math.min(patience.firstWaitMs * 2 ** (attempt - 1), patience.maxWaitMs);
  // Random jitter, so that many agents refused at once do not retry at once.
  return Math.round(Math.max(retryAfterMs, backoff * (0.75 + Math.random() / 2)));
}
