import { StringDecoder } from "node:string_decoder";
import type { FleetSpec } from "../../fleet/model/item.ts";
import type { FleetEvent, FleetSummary } from "../../fleet/running/events.ts";
import type { EventOf } from "../../operations/contract/table.ts";
import type { FleetStart } from "../../operations/fleet-start.ts";
import { listFleets } from "../../operations/fleets.ts";
import { RequestError } from "../../operations/request-error.ts";
import { runFleet } from "../../operations/run-fleet.ts";
import { runWorker, withArguments, workerNamed } from "../../operations/workers.ts";
import type { RunEvent } from "../../run/model/events.ts";
import type { RunResult } from "../../run/model/result.ts";
import type { Corral } from "../../run/open/corral.ts";
import type { EventLog, EventLogs, StartedFleets as FleetRecord } from "../../state/service/event-log.ts";
import { present } from "../../text/present.ts";
import { type HidePaths, hiddenIn } from "../http/answer.ts";
import { ServiceFault } from "../http/fault.ts";
import type { Log } from "../logging/log.ts";
import type { Metrics } from "../metrics/metrics.ts";
import type { Fleets, RunOrder, Runs, ServedProject } from "../model/served.ts";

/** An event of a run as clients get it: JSON, without host paths. */
type SentEvent = EventOf<"runs.events">;

/** Makes the events of one tree of runs into what is sent. It keeps the rest of a character that is split between two pieces. */
class RunEvents {
  readonly #decoders = new Map<string, StringDecoder>();

  /** Null: nothing is left of it to send. */
  sent(event: RunEvent, at = new Date().toISOString()): SentEvent | null {
    const { run, parent, worker } = event;
    const who = { at, run, parent, worker };
    switch (event.type) {
      case "requested":
        return { type: "requested", ...who, attachments: event.attachments };
      case "started": {
        const { policy, image } = event.plan;
        return { type: "started", ...who, policy, image };
      }
      case "agent_started":
        return { type: "agent_started", ...who, model: event.model, tools: event.tools, policy: event.policy };
      case "agent":
        return { type: "agent", ...who, act: event.act };
      case "output": {
        // It may print for as long as the run lives; it is in the record.
        if (event.service !== undefined) return null;
        const text = this.#decoder(`${run} ${event.stream}`).write(event.chunk);
        return text === "" ? null : { type: "output", ...who, stream: event.stream, text };
      }
      case "network_denied":
        return { type: "network_denied", ...who, denied: event.denied };
      case "network_used":
        return { type: "network_used", ...who, report: event.report };
      case "image":
        return { type: "image", ...who, progress: event.progress };
      case "measured":
        return null;
      case "trouble":
        return { type: "trouble", ...who, detail: event.detail };
      case "ended": {
        const { status, exitCode, signal, error, durationMs, changeset } = event.result;
        return { type: "ended", ...who, status, exitCode, signal, error, durationMs, changeset };
      }
    }
  }

  #decoder(of: string): StringDecoder {
    const known = this.#decoders.get(of);
    if (known !== undefined) return known;
    const decoder = new StringDecoder("utf8");
    this.#decoders.set(of, decoder);
    return decoder;
  }
}

/** Each may have a container. */
const MAX_RUNS = 64;

interface Followed {
  readonly log: EventLog;
  readonly events: RunEvents;
}

interface RunParts {
  readonly logs: EventLogs;
  readonly log: Log;
  readonly over: AbortSignal;
  readonly hide: HidePaths;
  /** `project`: its name. */
  readonly onEnded?: (result: RunResult, project: string) => void;
}

/** The runs that the service has started and that have not ended. */
export class StartedRuns implements Runs {
  readonly #logs: EventLogs;
  readonly #log: Log;
  readonly #followed = new Map<string, Followed>();
  readonly #running = new Map<string, Promise<void>>();
  readonly #over: AbortSignal;
  readonly #hide: HidePaths;
  readonly #onEnded: (result: RunResult, project: string) => void;
  #count = 0;

  constructor({ logs, log, over, hide, onEnded = () => {} }: RunParts) {
    this.#hide = hide;
    this.#onEnded = onEnded;
    this.#logs = logs;
    this.#log = log;
    this.#over = over;
  }

  /** Receives every event of every project; masked. */
  see(event: RunEvent): void {
    const followed = this.#followed.get(event.root);
    const sent = followed?.events.sent(event) ?? null;
    if (followed === undefined || sent === null) return;
    try {
      followed.log.write(this.#shown(sent), event.type === "ended" && event.run === event.root);
    } catch (error) {
      this.#log.error(
        { run: event.root, code: (error as NodeJS.ErrnoException).code },
        "an event could not be written",
      );
    }
  }

  /** Messages of Corral may hold paths of the host. */
  #shown(event: SentEvent): SentEvent {
    if (event.type !== "trouble" && event.type !== "ended") return event;
    return hiddenIn(event, this.#hide) as SentEvent;
  }

  async check({ project, worker, words }: Pick<RunOrder, "project" | "worker" | "words">): Promise<void> {
    this.#refuseMore();
    withArguments(workerNamed(worker, await project.load()), words);
  }

  #refuseMore(): void {
    if (this.#count >= MAX_RUNS) throw new ServiceFault(503, "TOO_MANY", `${MAX_RUNS} runs are running already`);
  }

  async start(order: RunOrder): Promise<string> {
    try {
      this.#refuseMore();
    } catch (error) {
      await order.ended();
      throw error;
    }
    const begun = Promise.withResolvers<string>();
    let id: string | null = null;
    this.#count += 1;
    const onBegun = (run: string): void => {
      id = run;
      begun.resolve(run);
    };
    const done = this.#run(order, onBegun).then(
      (result) => this.#end(result, order.project.name),
      (error: Error) => {
        begun.reject(error);
        if (id !== null) this.#fail(id, error);
      },
    );
    const over = done.finally(async () => {
      this.#count -= 1;
      await order.ended();
    });
    over.catch(() => {});
    const run = await begun.promise;
    this.#running.set(run, over);
    void over.finally(() => this.#running.delete(run)).catch(() => {});
    return run;
  }

  ending(run: string): Promise<void> | null {
    return this.#running.get(run) ?? null;
  }

  /** When all have ended. */
  async idle(): Promise<void> {
    await Promise.allSettled(this.#running.values());
  }

  async #run(order: RunOrder, begun: (run: string) => void): Promise<RunResult> {
    const { project, input, attachments, words, continues, policy } = order;
    return await project.use(async ({ environment, project: { workers } }) => {
      const worker = withArguments(workerNamed(order.worker, { workers }), words);
      // Only to learn the id: what is sent comes from `see`, without secrets.
      const emit = (event: RunEvent): void => {
        if (event.type === "requested" && event.run === event.root && !this.#followed.has(event.run)) {
          this.#followed.set(event.run, { log: this.#logs.append(event.run), events: new RunEvents() });
          begun(event.run);
        }
        environment.emit(event);
      };
      const request = { worker, words, input, attachments, cwd: project.dir, policy, signal: this.#over };
      const earlier = present({ continues });
      return await runWorker({ ...request, ...earlier }, { ...environment, emit });
    });
  }

  #end(result: RunResult, project: string): void {
    const { run, worker, status, durationMs } = result;
    this.#followed.get(run)?.log.end(JSON.stringify(result));
    this.#followed.delete(run);
    this.#log.info({ run, worker, status, durationMs: Math.round(durationMs) }, "run ended");
    this.#onEnded(result, project);
  }

  /** Only for a bug, or a host that fails. */
  #fail(run: string, error: Error): void {
    const log = this.#followed.get(run)?.log;
    const failed: SentEvent = { type: "failed", at: new Date().toISOString(), run };
    log?.write(failed, true);
    log?.end();
    this.#followed.delete(run);
    this.#log.error({ run, error: error.name }, "a run failed to run");
  }
}

/** They share the machine: more would only wait for each other. */
const MAX_FLEETS = 16;
/** The newest of a project in which those to continue are looked for. */
const MAX_LOOKED = 10_000;

interface ServiceFleetParts {
  readonly logs: EventLogs;
  readonly record: FleetRecord;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly over: AbortSignal;
  readonly hide: HidePaths;
  /** `of`: the name of its project, and its worker. */
  readonly onEnded: (summary: FleetSummary, of: { readonly project: string; readonly worker: string }) => void;
}

interface RunningFleet {
  readonly over: Promise<void>;
  /** No further item begins. */
  readonly drain: AbortController;
  /** Items that run end. */
  readonly stop: AbortController;
}

/** The fleets that the service runs. One that it does not end is continued by the next service. */
export class ServiceFleets implements Fleets {
  readonly #logs: EventLogs;
  readonly #record: FleetRecord;
  readonly #log: Log;
  readonly #metrics: Metrics;
  readonly #over: AbortSignal;
  readonly #running = new Map<string, RunningFleet>();
  readonly #hide: HidePaths;
  readonly #onEnded: ServiceFleetParts["onEnded"];
  #count = 0;

  constructor({ logs, record, log, metrics, hide, over, onEnded }: ServiceFleetParts) {
    this.#hide = hide;
    this.#onEnded = onEnded;
    this.#logs = logs;
    this.#record = record;
    this.#log = log;
    this.#metrics = metrics;
    this.#over = over;
  }

  async start(project: ServedProject, startOf: (corral: Corral) => Promise<FleetStart>): Promise<string> {
    if (this.#count >= MAX_FLEETS) throw new ServiceFault(503, "TOO_MANY", `${MAX_FLEETS} fleets are running already`);
    this.#count += 1;
    const loaded = Promise.withResolvers<string>();
    const [drain, stop] = [new AbortController(), new AbortController()];
    const over = this.#run(project, startOf, { loaded: loaded.resolve, drain: drain.signal, stop: stop.signal })
      .catch((error: Error) => loaded.reject(error))
      .finally(() => {
        this.#count -= 1;
      });
    // If it ends without having loaded anything, the caller still gets an answer.
    void over.then(() => loaded.reject(new RequestError("FLEET_REFUSED", "", "the fleet ended before it had begun")));
    const id = await loaded.promise;
    this.#running.set(id, { over, drain, stop });
    void over.finally(() => this.#running.delete(id));
    return id;
  }

  pause(id: string, now: boolean): boolean {
    const running = this.#running.get(id);
    running?.drain.abort();
    if (now) running?.stop.abort(new Error("it was stopped"));
    return running !== undefined;
  }

  /** What an earlier service has started in this project and not ended. */
  async unended(project: ServedProject): Promise<string[]> {
    const states = new Map((await listFleets(project.place, MAX_LOOKED)).map(({ id, state }) => [id, state]));
    const unended: string[] = [];
    for (const id of await this.#record.list(project.dir)) {
      const state = states.get(id);
      if (state === "interrupted" || state === "paused") unended.push(id);
      else await this.#record.remove(project.dir, id);
    }
    return unended;
  }

  /** Continues these fleets of a project, whose logs are open. */
  async resume(project: ServedProject, unended: readonly string[]): Promise<void> {
    for (const id of unended) {
      try {
        await this.start(project, async () => ({ kind: "resume", fleet: id }));
        this.#log.info({ project: project.name, fleet: id }, "fleet continued");
      } catch (error) {
        this.#logs.append(id).end();
        this.#log.warn(
          { project: project.name, fleet: id, error: (error as Error).name },
          "a fleet could not be continued",
        );
      }
    }
  }

  #shown(event: FleetEvent): FleetEvent {
    return event.type === "trouble" ? { ...event, detail: this.#hide(event.detail) } : event;
  }

  async idle(): Promise<void> {
    await Promise.allSettled([...this.#running.values()].map(({ over }) => over));
  }

  async #run(
    project: ServedProject,
    startOf: (corral: Corral) => Promise<FleetStart>,
    {
      loaded,
      drain,
      stop,
    }: { readonly loaded: (fleet: string) => void; readonly drain: AbortSignal; readonly stop: AbortSignal },
  ): Promise<void> {
    let events: EventLog | null = null;
    let id = "";
    let worker = "";
    const measured = this.#metrics.fleet(project.name);
    const recorded: Promise<void>[] = [];
    const onOpened = (spec: FleetSpec): void => {
      worker = spec.worker;
    };
    const onEvent = (event: FleetEvent): void => {
      measured.see(event, worker);
      if (event.type === "loaded") {
        id = event.fleet;
        events = this.#logs.append(id);
        recorded.push(this.#record.add(project.dir, id));
      }
      events?.write(sentFleetEvent(this.#shown(event)), event.type === "ended");
      if (event.type === "loaded") loaded(id);
    };
    try {
      const summary = await project.use(async (corral): Promise<FleetSummary> => {
        const results = runFleet(corral, await startOf(corral), {
          onEvent,
          onOpened,
          drain,
          stop: AbortSignal.any([this.#over, stop]),
        });
        // The results are in the journal: here they are only taken.
        for (;;) {
          const next = await results.next();
          if (next.done) return next.value;
        }
      });
      this.#log.info({ project: project.name, fleet: id, state: summary.state }, "fleet ended");
      if (!this.#over.aborted) this.#onEnded(summary, { project: project.name, worker });
    } finally {
      await Promise.allSettled(recorded);
      (events as EventLog | null)?.end();
      measured.end();
      // One that the end of the service stopped is continued by the next.
      if (id !== "" && !this.#over.aborted) await this.#record.remove(project.dir, id);
    }
  }
}

/** An event of a fleet as clients get it: what an item printed is in the item itself. */
function sentFleetEvent(event: FleetEvent, at = new Date().toISOString()): EventOf<"fleets.events"> {
  switch (event.type) {
    case "started": {
      const { index, key, attempt, machine } = event;
      return { type: "started", at, index, key, attempt, ...present({ machine }) };
    }
    case "settled": {
      const { index, key, status, run, attempt, exitCode, error, durationMs, changeset = null, machine } = event.result;
      const { retryInMs } = event;
      return {
        type: "settled",
        at,
        index,
        key,
        status,
        run,
        attempt,
        exitCode,
        error,
        durationMs,
        changeset,
        ...present({ machine }),
        retryInMs,
      };
    }
    default:
      return { ...event, at };
  }
}
