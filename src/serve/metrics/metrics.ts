import { monitorEventLoopDelay } from "node:perf_hooks";
import { Counter, Gauge, Histogram, Registry } from "prom-client";
import { TOOL_NAMES } from "../../declarations/worker/tool-names.ts";
import type { FleetEvent } from "../../fleet/running/events.ts";
import type { Measure, RunEvent } from "../../run/model/events.ts";
import type { NetworkReport } from "../../sandbox/network/judge.ts";

/** Seconds: from a warm cell of runc to a worker of hours. */
const RUN_BUCKETS = [0.01, 0.05, 0.1, 0.25, 0.5, 1, 5, 15, 60, 300, 1800, 7200];
const START_BUCKETS = [0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 15, 60];
/** Of OpenTelemetry's conventions for generative AI, as are those of tokens. */
const MODEL_BUCKETS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
const TOKEN_BUCKETS = [1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304];
/** Of OpenTelemetry's conventions for HTTP. */
const HTTP_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10];

/** All metrics of a service, and what they are called. Each label has few values: names that the project declares, and words of Corral's own. */
export type Series = ReturnType<typeof seriesIn>;

export function seriesIn(registry: Registry) {
  const registers = [registry];
  const counter = <Label extends string>(name: string, help: string, labelNames: readonly Label[]) =>
    new Counter({ name, help, labelNames, registers });
  const gauge = <Label extends string>(name: string, help: string, labelNames: readonly Label[]) =>
    new Gauge({ name, help, labelNames, registers });
  const histogram = <Label extends string>(
    name: string,
    help: string,
    buckets: number[],
    labelNames: readonly Label[],
  ) => new Histogram({ name, help, buckets, labelNames, registers });
  return {
    build: gauge("corral_build_info", "Always 1; the version of Corral.", ["version"]),
    runs: counter("corral_runs_total", "Runs that ended. An item of a fleet is a run.", [
      "project",
      "worker",
      "position",
      "status",
    ]),
    runSeconds: histogram("corral_run_duration_seconds", "How long runs took.", RUN_BUCKETS, ["project", "worker"]),
    running: gauge("corral_runs_running", "Runs that have begun and not ended.", ["project"]),
    cellSeconds: histogram(
      "corral_cell_start_duration_seconds",
      "How long verified cells took to start.",
      START_BUCKETS,
      ["driver", "kind"],
    ),
    cellFailures: counter("corral_cell_start_failures_total", "Cells that were refused or did not start.", [
      "driver",
      "kind",
    ]),
    items: counter("corral_fleet_items_total", "Items of fleets that ended.", ["project", "worker", "status"]),
    retries: counter("corral_fleet_item_retries_total", "Attempts of items that did not count.", ["project", "worker"]),
    waitingItems: gauge("corral_fleet_items_waiting", "Items of running fleets that wait.", ["project"]),
    runningItems: gauge("corral_fleet_items_running", "Items of running fleets that run.", ["project"]),
    itemsElsewhere: gauge(
      "corral_fleet_items_elsewhere",
      "Items of running fleets that other machines run, or have delivered.",
      ["project"],
    ),
    machines: gauge("corral_machines", "Machines that take part in the queue of the project.", ["project"]),
    machineSlots: gauge("corral_machine_slots", "Items that these machines can run at the same time.", ["project"]),
    fleets: gauge("corral_fleets_running", "Fleets that the service runs.", ["project"]),
    questions: gauge("corral_questions_waiting", "Questions that wait for an answer.", ["project"]),
    sessions: gauge("corral_sessions_open", "Sessions that clients have open.", ["project"]),
    tools: counter("corral_tool_calls_total", "Calls of tools.", ["project", "tool", "outcome"]),
    toolSeconds: histogram("corral_tool_call_duration_seconds", "How long calls of tools took.", RUN_BUCKETS, ["tool"]),
    modelSeconds: histogram(
      "gen_ai_client_operation_duration_seconds",
      "How long requests to models took.",
      MODEL_BUCKETS,
      ["gen_ai_operation_name", "gen_ai_request_model", "outcome"],
    ),
    tokens: histogram("gen_ai_client_token_usage", "Tokens of one request to a model.", TOKEN_BUCKETS, [
      "gen_ai_operation_name",
      "gen_ai_request_model",
      "gen_ai_token_type",
    ]),
    egress: counter("corral_egress_decisions_total", "Connections and requests of cells, by what was decided.", [
      "project",
      "decision",
      "reason",
    ]),
    egressBytes: counter("corral_egress_bytes_total", "Bytes between cells and the hosts that they may reach.", [
      "project",
      "direction",
    ]),
    refused: counter("corral_http_refused_total", "Clients of the service that were refused or closed.", ["reason"]),
    requestSeconds: histogram(
      "http_server_request_duration_seconds",
      "How long requests to the service took.",
      HTTP_BUCKETS,
      ["http_request_method", "http_route", "http_response_status_code"],
    ),
  };
}

const LAG_RESOLUTION_MS = 50;

/**
 * Metrics of the process, by the names that clients of Prometheus give them. Each is measured when it is read, except the lag, which is
 * observed until this is disposed: the default metrics of the package have observers that nothing ends.
 */
export function observeProcess(registry: Registry): Disposable {
  const registers = [registry];
  const gauge = (name: string, help: string, look: () => number): void => {
    new Gauge({
      name,
      help,
      registers,
      collect() {
        this.set(look());
      },
    });
  };
  const started = Date.now() / 1000 - process.uptime();
  const lag = monitorEventLoopDelay({ resolution: LAG_RESOLUTION_MS });
  lag.enable();
  new Counter({
    name: "process_cpu_seconds_total",
    help: "Processor time of the service, of user and system, in seconds.",
    registers,
    collect() {
      const { user, system } = process.cpuUsage();
      this.reset();
      this.inc((user + system) / 1e6);
    },
  });
  gauge("process_start_time_seconds", "When the service started, in seconds since 1970.", () => started);
  gauge("process_resident_memory_bytes", "Memory of the service.", () => process.memoryUsage.rss());
  gauge("nodejs_heap_size_used_bytes", "Memory of the service's objects.", () => process.memoryUsage().heapUsed);
  gauge("nodejs_eventloop_lag_p99_seconds", "How late 99% of timers are at most, since it was last read.", () => {
    const late = lag.count === 0 ? 0 : lag.percentile(99) / 1e9;
    lag.reset();
    return late;
  });
  return { [Symbol.dispose]: () => void lag.disable() };
}

/** How many items of one running fleet wait, how many run, and how many of them on other machines. */
class FleetTally {
  readonly project: string;
  readonly #running = new Set<number>();
  #left = 0;
  #elsewhere = 0;

  constructor(project: string) {
    this.project = project;
  }

  see(event: FleetEvent): void {
    if (event.type === "loaded") this.#left = event.items - event.done;
    // What a machine has delivered is counted there until it is settled.
    else if (event.type === "started" && event.machine === undefined) this.#running.add(event.index);
    else if (event.type === "elsewhere") this.#elsewhere = event.running;
    else if (event.type === "settled") {
      this.#running.delete(event.result.index);
      if (event.result.machine !== undefined) this.#elsewhere = Math.max(0, this.#elsewhere - 1);
      if (event.retryInMs === null) this.#left -= 1;
    }
  }

  /** Those elsewhere included. */
  get running(): number {
    return this.#running.size + this.#elsewhere;
  }

  get elsewhere(): number {
    return this.#elsewhere;
  }

  get waiting(): number {
    return Math.max(0, this.#left - this.running);
  }
}

/** A name that the project of an event does not declare, and any name beyond so many, is counted under this one. */
const OTHER = "other";
const MAX_NAMES = 1000;
const TOOLS: ReadonlySet<string> = new Set(TOOL_NAMES);
const METHODS: ReadonlySet<string> = new Set(["GET", "HEAD", "POST", "DELETE"]);

/** The project of an event, and the names that it declares now. */
export interface MeasuredProject {
  readonly project: string;
  readonly declares: (worker: string) => boolean;
}

/** What is counted when the metrics are read. Each yields the projects of what there is, once for each. */
export interface MetricSources {
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
  async text({ questions, sessions, machines }: MetricSources): Promise<string> {
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
  see(event: RunEvent, { project, declares }: MeasuredProject): void {
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
