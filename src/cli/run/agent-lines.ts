import type { AgentEvent } from "../../agent/events.ts";
import type { Colors } from "../../operations/wording/quoted-lines.ts";
import type { RunEvent } from "../../run/model/events.ts";
import { printableLine } from "../../text/visible.ts";

/** Characters of one line of what an agent says, and of what it calls a tool with. */
const MAX_LINE = 400;
const MAX_INPUT = 160;
/** Agents whose end was not reported are forgotten. */
const MAX_AGENTS = 1000;

/**
 * What agents do, as lines for a person: what each says, line by line as it comes, and what it calls. All of it is the
 * model's, and as untrusted as what it has read.
 */
export class AgentLines {
  readonly #colors: Colors;
  /** Of each run: the beginning of a line whose end has not come. */
  readonly #begun = new Map<string, string>();

  constructor(colors: Colors) {
    this.#colors = colors;
  }

  /** The lines that an event completes. */
  see(event: RunEvent): string[] {
    if (event.type === "ended") return this.#flushed(event);
    if (event.type !== "agent") return [];
    const { act } = event;
    if (act.kind === "text") return this.#said(event, act.piece);
    const line = this.#lineOf(act);
    return [...this.#flushed(event), ...(line === null ? [] : [this.#headed(event, line)])];
  }

  #said({ run, worker }: RunEvent, piece: string): string[] {
    const lines = ((this.#begun.get(run) ?? "") + piece).split("\n");
    const rest = (lines.pop() ?? "").slice(0, MAX_LINE);
    if (this.#begun.size < MAX_AGENTS || this.#begun.has(run)) this.#begun.set(run, rest);
    return lines.map((line) => this.#headed({ worker }, printableLine(line, MAX_LINE)));
  }

  #flushed({ run, worker }: RunEvent): string[] {
    const rest = this.#begun.get(run) ?? "";
    this.#begun.delete(run);
    return rest === "" ? [] : [this.#headed({ worker }, printableLine(rest, MAX_LINE))];
  }

  #headed({ worker }: Pick<RunEvent, "worker">, line: string): string {
    return `${this.#colors.dim(`${printableLine(worker, 80)} │`)} ${line}`;
  }

  #lineOf(act: Exclude<AgentEvent, { kind: "text" }>): string | null {
    const { dim, red, cyan } = this.#colors;
    switch (act.kind) {
      case "call":
        return `${cyan("→")} ${printableLine(act.tool, 80)} ${dim(printableLine(JSON.stringify(act.input) ?? "", MAX_INPUT))}`;
      case "called":
        return act.code === null ? null : `${red("✗")} ${printableLine(act.tool, 80)} was refused: ${act.code}`;
      case "retry":
        return dim(`${printableLine(act.reason, MAX_LINE)} Asked again in ${(act.waitMs / 1000).toFixed(1)} s.`);
      default:
        return null;
    }
  }
}
