import { Counter, Gauge, Histogram, type Registry } from "prom-client";

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
