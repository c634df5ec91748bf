import { StringDecoder } from "node:string_decoder";
import type { RunEvent } from "../../run/model/events.ts";

/** An event of a run as clients get it: JSON, without host paths. `at`: ISO 8601. */
export interface SentEvent {
  readonly type: string;
  readonly at: string;
  readonly [name: string]: unknown;
}

/** Makes the events of one tree of runs into what is sent. It keeps the rest of a character that is split between two pieces. */
export class RunEvents {
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
