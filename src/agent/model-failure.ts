import { APICallError, StreamProviderError } from "ai";
import { ModelFailure, OwnFault } from "./failure.ts";

const MAX_SHOWN_CHARACTERS = 1000;

/**
 * What an error of a provider says, in Corral's words. Providers fail in many ways: with a status, with an event in the
 * middle of an answer, with a connection that ends, with something that is no answer at all, over which the package
 * stumbles in its own ways. Throws what is no error of theirs, but a bug of Corral's.
 */
export function modelFailureOf(error: unknown, redact: (text: string) => string, now: () => number): ModelFailure {
  if (error instanceof ModelFailure) return error;
  if (error instanceof OwnFault) throw error.cause;
  // A key is taken out before anything is cut: the half of one would not be known for what it is.
  const shown = redact(shownError(error)).replaceAll(/\s+/g, " ").slice(0, MAX_SHOWN_CHARACTERS).toWellFormed();
  if (StreamProviderError.isInstance(error) && isRefusal(error))
    return new ModelFailure("MODEL_REFUSED", `The provider refused in the middle of its answer: ${shown}`);
  if (!APICallError.isInstance(error)) return unavailable(`The model's answer broke off: ${shown}`);
  const { statusCode, isRetryable, responseHeaders = {} } = error;
  if (statusCode === undefined) return unavailable(`The provider could not be reached: ${shown}`);
  // What began well and went wrong in its middle says nothing against the request.
  if (statusCode < 400) return unavailable(`The model's answer broke off: ${shown}`);
  const told = `The provider answered ${statusCode}: ${shown}`;
  return isRetryable ? unavailable(told, waitAsked(responseHeaders, now)) : new ModelFailure("MODEL_REFUSED", told);
}

/** Told by a status alone: some providers have one word for every error that comes in the middle of an answer. */
function isRefusal({ statusCode = 0, isRetryable }: StreamProviderError): boolean {
  return statusCode >= 400 && statusCode < 500 && !isRetryable;
}

function unavailable(message: string, retryAfterMs = 0): ModelFailure {
  return new ModelFailure("MODEL_UNAVAILABLE", message, retryAfterMs);
}

/** How long the provider asks to be left alone, in milliseconds. */
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

/** Servers say in the middle of an answer what is wrong, each in a shape of its own. The request is never shown. */
function shownError(error: unknown): string {
  if (!(error instanceof Error)) return JSON.stringify(error) ?? "no reason was given";
  const cause = error.cause instanceof Error ? `: ${error.cause.message}` : "";
  return `${error.message}${cause}`;
}
