import { StringDecoder } from "node:string_decoder";
import type { EventOf } from "../../operations/contract/table.ts";
import { runWorker, withArguments, workerNamed } from "../../operations/workers.ts";
import type { RunEvent } from "../../run/model/events.ts";
import type { RunResult } from "../../run/model/result.ts";
import type { EventLog, EventLogs } from "../../state/service/event-log.ts";
import { present } from "../../text/present.ts";
import { type HidePaths, hiddenIn } from "../http/answer.ts";
import { ServiceFault } from "../http/fault.ts";
import type { Log } from "../logging/log.ts";
import type { RunOrder, Runs } from "../model/work.ts";

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
