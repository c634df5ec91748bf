import { Registry } from "prom-client";
import { TOOL_NAMES } from "../../declarations/worker/tool-names.ts";
import type { FleetEvent } from "../../fleet/events.ts";
import type { Measure, RunEvent } from "../../run/model/events.ts";
import type { NetworkReport } from "../../sandbox/network/report.ts";
import { FleetTally } from "./fleet-tally.ts";
import { observeProcess } from "./process-series.ts";
import { type Series, seriesIn } from "./series.ts";

/** A name that the project of an event does not declare, and any name beyond so many, is counted under this one. */
const OTHER = "other";
const MAX_NAMES = 1000;
const TOOLS: ReadonlySet<string> = new Set(TOOL_NAMES);
const METHODS: ReadonlySet<string> = new Set(["GET", "HEAD", "POST", "DELETE"]);

/** The project of an event, and the names that it declares now. */
export interface Measured {
  readonly project: string;
  readonly declares: (worker: string) => boolean;
}

/** What is counted when the metrics are read. Each yields the projects of what there is, once for each. */
export interface Looked {
  readonly questions: () => readonly string[];
  readonly sessions: () => readonly string[];
  /** Of the projects whose queue answers. */
  readonly machines: readonly QueueSize[];
}

/** What takes part in the queue of a project. */
export interface QueueSize {
  readonly project: string;
  readonly machines: number;
  readonly slots: number;
}

/** Counts what happens in one service. Nothing of an item, a path, a host or a content becomes a label. */
export class Metrics implements Disposable {
  readonly #registry = new Registry();
  readonly #series: Series = seriesIn(this.#registry);
  readonly #process = observeProcess(this.#registry);
  readonly #names = new Set<string>();
  readonly #fleets = new Set<FleetTally>();

  constructor(version: string) {
    this.#series.build.set({ version }, 1);
  }

  readonly contentType = this.#registry.contentType;

  [Symbol.dispose](): void {
    this.#process[Symbol.dispose]();
  }

  /** All metrics as text. */
  async text({ questions, sessions, machines }: Looked): Promise<string> {
    const { waitingItems, runningItems, itemsElsewhere, fleets, machines: count, machineSlots } = this.#series;
    for (const gauge of [waitingItems, runningItems, itemsElsewhere, fleets, count, machineSlots]) gauge.reset();
    for (const { project, machines: joined, slots } of machines) {
      count.set({ project }, joined);
      machineSlots.set({ project }, slots);
    }
    for (const { project, waiting, running, elsewhere } of this.#fleets) {
      waitingItems.inc({ project }, waiting);
      runningItems.inc({ project }, running);
      itemsElsewhere.inc({ project }, elsewhere);
      fleets.inc({ project });
    }
    countEach(this.#series.questions, questions());
    countEach(this.#series.sessions, sessions());
    return await this.#registry.metrics();
  }

  /** Receives every event of every run. */
  see(event: RunEvent, { project, declares }: Measured): void {
    const series = this.#series;
    switch (event.type) {
      case "requested":
        series.running.inc({ project });
        break;
      case "ended": {
        const worker = this.#bounded(event.worker, declares);
        const { status, durationMs } = event.result;
        series.running.dec({ project });
        series.runs.inc({ project, worker, position: event.parent === null ? "root" : "called", status });
        series.runSeconds.observe({ project, worker }, durationMs / 1000);
        break;
      }
      case "measured":
        this.#measured(event.measure, project);
        break;
      case "network_used":
        this.#used(event.report, project);
        break;
      default:
    }
  }

  /** Receives every event of one fleet. `worker` is known before an item ends. */
  fleet(project: string): { see(event: FleetEvent, worker: string): void; end(): void } {
    const tally = new FleetTally(project);
    this.#fleets.add(tally);
    return {
      see: (event, worker) => {
        tally.see(event);
        if (event.type !== "settled") return;
        const { items, retries } = this.#series;
        if (event.retryInMs === null) items.inc({ project, worker, status: event.result.status });
        else retries.inc({ project, worker });
      },
      end: () => void this.#fleets.delete(tally),
    };
  }

  /** An answered request. `route`: the pattern, empty if there is none. */
  request({ method, route, status, ms }: { method: string; route: string; status: number; ms: number }): void {
    const labels = {
      http_request_method: METHODS.has(method) ? method : "_OTHER",
      http_route: route,
      http_response_status_code: status,
    };
    this.#series.requestSeconds.observe(labels, ms / 1000);
  }

  /** A client that was refused, or whose connection was closed. */
  refused(reason: string): void {
    this.#series.refused.inc({ reason });
  }

  #measured(measure: Measure, project: string): void {
    const series = this.#series;
    const seconds = measure.ms / 1000;
    const outcome = measure.code === null ? "ok" : "failed";
    switch (measure.what) {
      case "cell": {
        const { driver, kind } = measure;
        if (measure.code === null) series.cellSeconds.observe({ driver, kind }, seconds);
        else series.cellFailures.inc({ driver, kind });
        break;
      }
      case "tool": {
        const tool = TOOLS.has(measure.tool) ? measure.tool : OTHER;
        series.tools.inc({ project, tool, outcome });
        series.toolSeconds.observe({ tool }, seconds);
        break;
      }
      case "model": {
        const model = { gen_ai_operation_name: "chat", gen_ai_request_model: this.#bounded(measure.model, always) };
        series.modelSeconds.observe({ ...model, outcome }, seconds);
        if (measure.input !== null) series.tokens.observe({ ...model, gen_ai_token_type: "input" }, measure.input);
        if (measure.output !== null) series.tokens.observe({ ...model, gen_ai_token_type: "output" }, measure.output);
        break;
      }
      // The network of a run reports all its connections at its end.
      case "connection":
        break;
    }
  }

  #used({ allowed, denied, unlisted }: NetworkReport, project: string): void {
    const { egress, egressBytes } = this.#series;
    for (const { connections, up, down } of allowed) {
      egress.inc({ project, decision: "allowed", reason: "" }, connections);
      egressBytes.inc({ project, direction: "out" }, up);
      egressBytes.inc({ project, direction: "in" }, down);
    }
    for (const { reason, count } of denied) egress.inc({ project, decision: "denied", reason }, count);
    if (unlisted > 0) egress.inc({ project, decision: "unlisted", reason: "" }, unlisted);
  }

  /** Files of a project may change while it is served, and a call may name a worker that does not exist. */
  #bounded(name: string, declares: (name: string) => boolean): string {
    if (!declares(name)) return OTHER;
    if (this.#names.size >= MAX_NAMES && !this.#names.has(name)) return OTHER;
    this.#names.add(name);
    return name;
  }
}

const always = (): boolean => true;

function countEach(gauge: Series["questions"], projects: readonly string[]): void {
  gauge.reset();
  for (const project of projects) gauge.inc({ project });
}
