import type { Context } from "opentelemetry-api";

/** The API of OpenTelemetry. It has no SDK: what the process registers receives the spans, for the command line by NODE_OPTIONS. */
export type Tracing = typeof import("opentelemetry-api");

/** Where every copy of the API, of major version 1, keeps what was registered. */
const REGISTERED = Symbol.for("opentelemetry.js.api.1");

/**
 * Null if the process registered nothing that takes spans: then nothing is loaded and nothing is measured. Corral brings its own copy of the
 * API, an old one: a copy uses what was registered by one of the same age or newer.
 */
export async function openTracing(): Promise<Tracing | null> {
  const registered = (globalThis as { readonly [REGISTERED]?: { readonly trace?: unknown } })[REGISTERED];
  return registered?.trace === undefined ? null : await import("opentelemetry-api");
}

/** Acts as a part of the trace that a request names in `traceparent`, unless it is in one already. */
export function inTraceOf<T>(
  tracing: Tracing | null,
  headers: Readonly<Record<string, unknown>>,
  act: () => Promise<T>,
): Promise<T> {
  if (tracing === null) return act();
  const { context, propagation, trace } = tracing;
  const active = context.active();
  if (trace.getSpan(active) !== undefined) return act();
  return context.with(propagation.extract(active, headers), act);
}

/** Of Corral's fleet, in a context. */
const FLEET = Symbol.for("corral.fleet");

/** The fleet in which something happens; null: in none. */
export function tracedFleet(active: Context): string | null {
  return (active.getValue(FLEET) as string | undefined) ?? null;
}

/** Acts within a span of a fleet: its items are parts of that. `ending` says how it ended. */
export async function inFleetSpan<T extends { readonly state: string }>(
  tracing: Tracing | null,
  { fleet, worker }: { readonly fleet: string; readonly worker: string },
  act: () => Promise<T>,
): Promise<T> {
  if (tracing === null) return await act();
  const { context, trace, SpanStatusCode } = tracing;
  const attributes = { "corral.fleet.id": fleet, "corral.worker": worker };
  const span = trace.getTracer("corral").startSpan(`fleet ${worker}`, { attributes });
  try {
    const within = trace.setSpan(context.active(), span).setValue(FLEET, fleet);
    const ended = await context.with(within, act);
    span.setAttribute("corral.fleet.state", ended.state);
    return ended;
  } catch (error) {
    span.setStatus({ code: SpanStatusCode.ERROR });
    throw error;
  } finally {
    span.end();
  }
}
