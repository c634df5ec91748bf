import { APICallError, StreamProviderError } from "ai";
import { ModelFailure, OwnFault } from "./failure.ts";

const MAX_SHOWN_CHARACTERS = 1000;

/**
 * Translates an error of a provider: a status, an error event within an answer, a lost connection, or a response that the
 * package cannot parse. Throws errors that are bugs of Corral.
 */
export function modelFailureOf(error: unknown, redact: (text: string) => string, now: () => number): ModelFailure {
  if (error instanceof ModelFailure) return error;
  if (error instanceof OwnFault) throw error.cause;
  // The key is redacted before the text is cut, because a partial key would not be recognised.
  const shown = redact(shownError(error)).replaceAll(/\s+/g, " ").slice(0, MAX_SHOWN_CHARACTERS).toWellFormed();
  if (StreamProviderError.isInstance(error) && isRefusal(error))
    return new ModelFailure("MODEL_REFUSED", `The provider refused the request during its answer: ${shown}`);
  if (!APICallError.isInstance(error)) return unavailable(`The model's answer broke off: ${shown}`);
  const { statusCode, isRetryable, responseHeaders = {} } = error;
  if (statusCode === undefined) return unavailable(`The provider could not be reached: ${shown}`);
  // The response started successfully, so the request itself is not at fault.
  if (statusCode < 400) return unavailable(`The model's answer broke off: ${shown}`);
  const message = `The provider answered with HTTP status ${statusCode}: ${shown}`;
  return isRetryable
    ? unavailable(message, waitAsked(responseHeaders, now))
    : new ModelFailure("MODEL_REFUSED", message);
}

/** Decided by the status alone: some providers use one error type for every error during an answer. */
function isRefusal({ statusCode = 0, isRetryable }: StreamProviderError): boolean {
  return statusCode >= 400 && statusCode < 500 && !isRetryable;
}

function unavailable(message: string, retryAfterMs = 0): ModelFailure {
  return new ModelFailure("MODEL_UNAVAILABLE", message, retryAfterMs);
}

/** The delay that the provider requests, in milliseconds. */
function waitAsked(headers: Readonly<Record<string, string>>, now: () => number): number {
  const ms = Number(headers["retry-after-ms"]);
  if (headers["retry-after-ms"] !== undefined && ms >= 0) return ms;
  const after = headers["retry-after"];
  if (after === undefined) return 0;
  const seconds = Number(after);
  if (seconds >= 0) return seconds * 1000;
  const date = Date.parse(after);
  return Number.isNaN(date) ? 0 : Math.max(0, date - now());
}

/** Providers report errors during an answer in different shapes. The request is never shown. */
function shownError(error: unknown): string {
  if (!(error instanceof Error)) return JSON.stringify(error) ?? "no reason given";
  const cause = error.cause instanceof Error ? `: ${error.cause.message}` : "";
  return `${error.message}${cause}`;
}
