import type { Attributes, Context, Span } from "opentelemetry-api";
import { TOOL_NAMES } from "../../declarations/worker/tool-names.ts";
import { type Tracing, tracedFleet } from "../../platform/tracing.ts";
import type { Emit, Measure, RunEvent } from "../model/events.ts";

/** Runs at once that have spans; further ones have none. */
const MAX_OPEN = 10_000;
const TOOLS: ReadonlySet<string> = new Set(TOOL_NAMES);

/**
 * Makes spans of the events of runs, and passes the events on: a run, a call and an item have one each, and what is measured in them is
 * below. No content, no path of the host and no key of an item is in them, and no name that a worker made up.
 */
export function tracedEmit(emit: Emit, tracing: Tracing, declares: (worker: string) => boolean): Emit {
  const spans = new RunSpans(tracing, declares);
  return (event) => {
    spans.see(event);
    emit(event);
  };
}

class RunSpans {
  readonly #tracing: Tracing;
  readonly #tracer: ReturnType<Tracing["trace"]["getTracer"]>;
  readonly #declares: (worker: string) => boolean;
  readonly #open = new Map<string, Span>();

  constructor(tracing: Tracing, declares: (worker: string) => boolean) {
    this.#tracing = tracing;
    this.#tracer = tracing.trace.getTracer("corral");
    this.#declares = declares;
  }

  see(event: RunEvent): void {
    const span = this.#open.get(event.run);
    switch (event.type) {
      case "requested":
        this.#begin(event);
        break;
      case "started": {
        const { policy, image } = event.plan;
        const of = { "container.image.name": image.name, "container.image.id": image.id };
        span?.setAttributes({ ...of, "corral.driver": event.driver, "corral.policy": policy });
        break;
      }
      case "agent_started":
        span?.setAttributes({
          "gen_ai.operation.name": "invoke_agent",
          "gen_ai.agent.name": event.worker,
          "gen_ai.request.model": event.model,
          "corral.policy": event.policy,
        });
        break;
      case "network_denied":
        // Not the host: a worker may put data into the names that it asks for.
        span?.addEvent("egress denied", { "error.type": event.denied.reason });
        break;
      case "measured":
        this.#measured(event.measure, this.#within(event.run));
        break;
      case "ended": {
        const { status, exitCode, error } = event.result;
        this.#open.delete(event.run);
        span?.setAttribute("corral.run.status", status);
        if (exitCode !== null) span?.setAttribute("process.exit.code", exitCode);
        if (span !== undefined) this.#failed(span, status === "succeeded" ? null : (error?.code ?? status));
        span?.end();
        break;
      }
      default:
    }
  }

  #begin({ run, root, parent, worker }: RunEvent): void {
    if (this.#open.size >= MAX_OPEN) return;
    const within = this.#within(parent);
    const fleet = parent === null ? tracedFleet(within) : null;
    const known = this.#declares(worker);
    const kind = parent !== null ? "call" : fleet !== null ? "item" : "run";
    const attributes: Attributes = {
      "corral.run.id": run,
      "corral.run.root": root,
      ...(known ? { "corral.worker": worker } : {}),
      ...(fleet === null ? {} : { "corral.fleet.id": fleet }),
    };
    this.#open.set(run, this.#tracer.startSpan(known ? `${kind} ${worker}` : kind, { attributes }, within));
  }

  /** What is measured is over: its span began so long ago. */
  #measured(measure: Measure, within: Context): void {
    const { SpanKind } = this.#tracing;
    const [name, attributes] = spanOf(measure);
    const isOutside = measure.what === "model" || measure.what === "connection";
    const startTime = Date.now() - measure.ms;
    const kind = isOutside ? SpanKind.CLIENT : SpanKind.INTERNAL;
    const span = this.#tracer.startSpan(name, { attributes, kind, startTime }, within);
    this.#failed(span, measure.code);
    span.end(startTime + measure.ms);
  }

  #failed(span: Span, code: string | null): void {
    if (code === null) return;
    span.setAttribute("error.type", code);
    span.setStatus({ code: this.#tracing.SpanStatusCode.ERROR });
  }

  /** Below the span of a run, or else where the program is that asked for it. */
  #within(run: string | null): Context {
    const { context, trace } = this.#tracing;
    const span = run === null ? undefined : this.#open.get(run);
    return span === undefined ? context.active() : trace.setSpan(context.active(), span);
  }
}

/** Names and attributes are those of OpenTelemetry's conventions, as far as there are any. */
function spanOf(measure: Measure): readonly [string, Attributes] {
  switch (measure.what) {
    case "cell":
      return ["start cell", { "corral.driver": measure.driver, "corral.cell.kind": measure.kind }];
    case "tool": {
      const operation = { "gen_ai.operation.name": "execute_tool" };
      if (!TOOLS.has(measure.tool)) return ["execute_tool", operation];
      return [`execute_tool ${measure.tool}`, { ...operation, "gen_ai.tool.name": measure.tool }];
    }
    case "model": {
      const { model, input, output } = measure;
      return [
        `chat ${model}`,
        {
          "gen_ai.operation.name": "chat",
          "gen_ai.request.model": model,
          ...(input === null ? {} : { "gen_ai.usage.input_tokens": input }),
          ...(output === null ? {} : { "gen_ai.usage.output_tokens": output }),
        },
      ];
    }
    case "connection":
      return [
        "connect",
        {
          ...(measure.host === null ? {} : { "server.address": measure.host }),
          "server.port": measure.port,
          "network.transport": "tcp",
        },
      ];
  }
}
