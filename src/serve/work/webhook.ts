import { createHmac, randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import type { Log } from "../logging/log.ts";

/** Where questions, and ends of runs and fleets, are reported to. */
export interface WebhookOptions {
  /** `https:`, or `http:` on this machine. */
  readonly url: URL;
  /** Of the signature. */
  readonly key: Buffer;
}

/** What is reported: who asks, and no text that a worker wrote. */
export interface WaitingQuestion {
  readonly approval: string;
  readonly project: string;
  readonly worker: string;
  readonly run: string;
  readonly root: string;
  readonly operations: readonly string[];
  /** Without an answer for so long the question is denied. */
  readonly timeoutMs: number;
}

/** A run that the service has started, at its end. What it printed is not told. */
export interface ReportedRun {
  readonly project: string;
  readonly run: string;
  readonly worker: string;
  readonly status: string;
  readonly exitCode: number | null;
  readonly durationMs: number;
  /** What it wrote and waits for a decision; null: nothing. */
  readonly changeset: string | null;
}

/** A fleet that the service runs no more: it is done, cancelled, paused, or changes of its items wait. */
export interface ReportedFleet {
  readonly project: string;
  readonly fleet: string;
  readonly worker: string;
  readonly state: string;
  readonly items: number;
  readonly done: number;
  readonly byStatus: Readonly<Record<string, number>>;
  readonly durationMs: number;
}

export type ReportedEvent =
  | { readonly type: "question.waiting"; readonly data: WaitingQuestion }
  | { readonly type: "run.ended"; readonly data: ReportedRun }
  | { readonly type: "fleet.ended"; readonly data: ReportedFleet };

/** Events that are being reported at once; of more the newest are left out, and the log says so. */
const MAX_PENDING = 100;
/** Of them ends of runs and fleets: a question has a person who waits. */
const MAX_ENDS = 50;
const TIMEOUT_MS = 10_000;
/** Before each further attempt. */
const PAUSES_MS = [1000, 5000, 30_000];
/** As `openssl rand -hex 16` makes. */
export const MIN_KEY_CHARS = 32;

/**
 * Posts a JSON object for each question that waits and for each end, signed as Standard Webhooks says: the receiver compares `webhook-signature` with `v1,` and the
 * base64 of HMAC-SHA256 over `ID.TIMESTAMP.BODY`. An attempt that is not answered with 2xx is repeated. Redirects are not followed.
 */
export class Webhook {
  readonly #options: WebhookOptions;
  readonly #log: Log;
  readonly #over: AbortSignal;
  readonly #pausesMs: readonly number[];
  #pending = 0;
  #ends = 0;

  constructor(options: WebhookOptions, { log, over, pausesMs = PAUSES_MS }: Reporting) {
    this.#options = options;
    this.#log = log;
    this.#over = over;
    this.#pausesMs = pausesMs;
  }

  /** Never throws: a question is asked, and a run has ended, whether that could be reported or not. */
  async tell(event: ReportedEvent): Promise<void> {
    const isEnd = event.type !== "question.waiting";
    if (this.#pending >= MAX_PENDING || (isEnd && this.#ends >= MAX_ENDS)) {
      this.#log.warn(nameOf(event), "the webhook is behind: an event was not reported");
      return;
    }
    this.#pending += 1;
    this.#ends += Number(isEnd);
    try {
      await this.#deliver(event);
    } catch {
      // The service is being stopped.
    } finally {
      this.#pending -= 1;
      this.#ends -= Number(isEnd);
    }
  }

  async #deliver(event: ReportedEvent): Promise<void> {
    const id = `msg_${randomUUID()}`;
    const { type, data } = event;
    const body = JSON.stringify({ type, timestamp: new Date().toISOString(), data });
    for (const [attempt, waitMs] of [0, ...this.#pausesMs].entries()) {
      await pause(waitMs, undefined, { signal: this.#over, ref: false });
      const answer = await this.#post(id, body);
      if (answer === "taken") return;
      const isLast = attempt === this.#pausesMs.length;
      const what = isLast ? "an event was not reported" : "an event will be reported again";
      this.#log.warn({ ...nameOf(event), answer }, `the webhook did not take it: ${what}`);
    }
  }

  async #post(id: string, body: string): Promise<"taken" | number | string> {
    const timestamp = String(Math.floor(Date.now() / 1000));
    const signature = createHmac("sha256", this.#options.key).update(`${id}.${timestamp}.${body}`).digest("base64");
    const headers = {
      "content-type": "application/json",
      "webhook-id": id,
      "webhook-timestamp": timestamp,
      "webhook-signature": `v1,${signature}`,
    };
    const signal = AbortSignal.any([this.#over, AbortSignal.timeout(TIMEOUT_MS)]);
    try {
      const response = await fetch(this.#options.url, { method: "POST", headers, body, redirect: "error", signal });
      await response.body?.cancel();
      return response.ok ? "taken" : response.status;
    } catch (error) {
      this.#over.throwIfAborted();
      return (error as Error).name;
    }
  }
}

/** For the log. */
function nameOf({ type, data }: ReportedEvent): object {
  if ("approval" in data) return { event: type, question: data.approval };
  return "fleet" in data ? { event: type, fleet: data.fleet } : { event: type, run: data.run };
}

interface Reporting {
  readonly log: Log;
  /** Aborted when the service ends. */
  readonly over: AbortSignal;
  readonly pausesMs?: readonly number[];
}
