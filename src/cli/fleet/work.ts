import { hostname } from "node:os";
import { setTimeout as pause } from "node:timers/promises";
import { packageVersion } from "../../declarations/place/package-root.ts";
import { loadProject } from "../../declarations/project.ts";
import { nameFault } from "../../declarations/terms/names.ts";
import { machineRoleScript, roleFault } from "../../fleet/postgres/migrate.ts";
import { isSuccess } from "../../fleet/report/measures/gathered.ts";
import { whenThere } from "../../fleet/work/asking-coordinator.ts";
import type { WorkEvent } from "../../fleet/work/hosted-fleets.ts";
import { isEngineAway } from "../../isolation/port/engine.ts";
import { coordinatorsOf, workOn } from "../../operations/run-fleet.ts";
import { openCorralFor } from "../../run/open/corral.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { counted, countText, durationText, rateText } from "../../text/amounts.ts";
import { printable, printableLine } from "../../text/visible.ts";
import { type ProjectOptions, UsageError } from "../terminal/arguments.ts";
import { EXIT, keepHeapSmall, printJsonLine, say, type Terminal } from "../terminal/terminal.ts";
import { ImageLines } from "../terminal/worker-text.ts";
import { RecentRate } from "./witness.ts";

export interface WorkVerbOptions extends ProjectOptions {
  readonly concurrency: string;
  readonly name?: string;
  readonly label: readonly string[];
  readonly grants?: string;
}

const MAX_SLOTS = 1000;
const MAX_LABELS = 20;
const MAX_NAME = 100;

/** `corral work`: runs items of fleets that other processes own, until the user stops it. */
export async function workVerb(options: WorkVerbOptions, terminal: Terminal): Promise<number> {
  if (options.grants !== undefined) return grantsVerb(options.grants, terminal);
  const machine = {
    name: nameOf(options.name ?? hostname()),
    labels: labelsOf(options.label),
    slots: slotsOf(options.concurrency),
  };
  const project = await loadProject(options.project, terminal.env);
  const questions = coordinatorsOf(project);
  const [drain, stop] = [new AbortController(), new AbortController()];
  using screen = new WorkScreen(terminal, options.json === true);
  const images = new ImageLines();
  let asked = 0;
  const off = terminal.onStop(() => {
    asked += 1;
    if (asked === 1) {
      drain.abort();
      screen.tell(`corral: ${screen.waitingText}`);
    } else if (asked === 2) {
      stop.abort(new Error("it was stopped"));
      screen.tell("corral: Stopping and cleaning up. Press Ctrl-C again to exit now");
    } else terminal.exit(EXIT.cancelled);
  });
  const see = (event: WorkEvent): void => {
    if (options.json) printJsonLine(terminal, workLine(event));
    screen.see(event);
  };
  const how: Parameters<typeof openCorralFor>[1] = {
    stateDir: stateDirFrom(terminal.env),
    engineEnv: terminal.env,
    approver: questions,
    emit(event) {
      for (const line of images.see(event)) screen.tell(line);
    },
  };
  const over = AbortSignal.any([drain.signal, stop.signal]);
  try {
    await using corral = await whenThere(() => openCorralFor(project, how), {
      over,
      isPassing: isEngineAway,
      onAway: (why) => see({ type: "waiting", for: "engine", why }),
      pause: (ms) => pause(ms, undefined, { signal: over }).catch(() => {}),
    });
    if (corral === null) return stop.signal.aborted ? EXIT.cancelled : 0;
    if (corral.reapTrouble !== null) say(terminal, `corral: warning: ${corral.reapTrouble}`);
    keepHeapSmall();
    await workOn(corral, {
      ...machine,
      env: terminal.env,
      onEvent: see,
      questions,
      drain: drain.signal,
      stop: stop.signal,
    });
    screen.end();
    return stop.signal.aborted ? EXIT.cancelled : 0;
  } finally {
    off();
  }
}

/** `corral work --grants ROLE`: needs neither a project nor a queue. */
function grantsVerb(role: string, terminal: Terminal): number {
  const fault = roleFault(role);
  if (fault !== null) throw new UsageError(`--grants ${role}: ${fault}`);
  terminal.stdout.write(machineRoleScript(role, packageVersion()));
  return 0;
}

function nameOf(text: string): string {
  const name = text.trim();
  if (name !== "" && name.length <= MAX_NAME && !/\p{C}/u.test(name)) return name;
  throw new UsageError(`--name takes a text of 1 to ${MAX_NAME} characters`);
}

function labelsOf(labels: readonly string[]): string[] {
  for (const label of labels) {
    const fault = nameFault(label);
    if (fault !== null) throw new UsageError(`--label ${label}: a label ${fault}`);
  }
  if (labels.length > MAX_LABELS) throw new UsageError(`a machine has at most ${MAX_LABELS} labels`);
  return [...new Set(labels)].toSorted();
}

function slotsOf(text: string): number | "auto" {
  if (text === "auto") return text;
  const slots = Number(text);
  if (/^\d+$/.test(text) && slots >= 1 && slots <= MAX_SLOTS) return slots;
  throw new UsageError(`--concurrency must be auto or a whole number from 1 to ${MAX_SLOTS}`);
}

const EVERY_MS = 10_000;
/** Troubles, and items that were given back or came late, that are reported one by one. */
const MAX_TOLD = 200;

/** What `corral work` reports to the user: lines on standard error, and every 10 seconds how far it is if something happened. */
export class WorkScreen implements Disposable {
  readonly #terminal: Terminal;
  readonly #isJson: boolean;
  readonly #timer: NodeJS.Timeout;
  readonly #rate = new RecentRate(performance.now());
  readonly #begunAt = performance.now();
  /** Attempts that have begun; an item that is refused here never does. */
  readonly #running = new Set<string>();
  #delivered = 0;
  #failed = 0;
  #told = 0;
  #toldDelivered = 0;

  /** With `isJson` only what concerns the user is printed: the rest is on standard output. */
  constructor(terminal: Terminal, isJson: boolean) {
    this.#terminal = terminal;
    this.#isJson = isJson;
    this.#timer = setInterval(() => this.#progress(), EVERY_MS);
    this.#timer.unref();
  }

  get waitingText(): string {
    const { size } = this.#running;
    if (size === 0) return "Stopping. Press Ctrl-C again to stop now";
    return `Waiting for ${counted(size, "running item")}. Press Ctrl-C again to stop now`;
  }

  see(event: WorkEvent): void {
    if (event.type === "started") this.#running.add(itemName(event));
    if (event.type === "delivered" || event.type === "late" || event.type === "given_back")
      this.#running.delete(itemName(event));
    if (event.type === "delivered") {
      this.#delivered += 1;
      if (!isSuccess(event.status)) this.#failed += 1;
      this.#rate.add(performance.now());
    }
    const line = lineOf(event);
    if (line === null || this.#isJson) return;
    if (event.type === "trouble" || event.type === "late" || event.type === "given_back") {
      this.#told += 1;
      if (this.#told > MAX_TOLD) return;
    }
    this.tell(`corral: ${line}`);
  }

  tell(line: string): void {
    say(this.#terminal, line);
  }

  end(): void {
    const { untold } = this;
    if (untold > 0) this.tell(`corral: ${countText(untold)} more lines were left out`);
    const took = durationText(Math.round(performance.now() - this.#begunAt));
    this.tell(`corral: delivered ${counted(this.#delivered, "item")} in ${took}${this.#failedText}`);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  private get untold(): number {
    return Math.max(0, this.#told - MAX_TOLD);
  }

  get #failedText(): string {
    return this.#failed === 0 ? "" : `, ${countText(this.#failed)} of them without success`;
  }

  #progress(): void {
    if (this.#isJson || (this.#delivered === this.#toldDelivered && this.#running.size === 0)) return;
    this.#toldDelivered = this.#delivered;
    const rate = rateText(this.#rate.perSecond(performance.now()));
    this.tell(
      `corral: ${countText(this.#running.size)} running, ${countText(this.#delivered)} delivered${this.#failedText}, ${rate}`,
    );
  }
}

/** For people; null: nothing to tell. */
function lineOf(event: WorkEvent): string | null {
  switch (event.type) {
    case "waiting": {
      const what = event.for === "engine" ? "container engine" : "queue";
      return `waits for the ${what}, and tries again until it is there. ${printable(event.why)}`;
    }
    case "joined": {
      const labels = event.labels.length === 0 ? "" : `, labels ${event.labels.join(", ")}`;
      return `machine ${printableLine(event.name, 100)} runs up to ${counted(event.slots, "item")} at once${labels}`;
    }
    case "taking":
      return `takes items of fleet ${printableLine(event.fleet, 40)} (${printableLine(event.worker, 80)})`;
    case "not_taking":
      return `takes no items of fleet ${printableLine(event.fleet, 40)}: ${printableLine(event.why, 1000)}`;
    case "closed":
      return `fleet ${printableLine(event.fleet, 40)} has no more items here`;
    case "late":
      return `${itemName(event)} came late and does not count: ${printableLine(event.reason, 500)}`;
    case "given_back":
      return `${itemName(event)} was given back: ${printableLine(event.why, 500)}`;
    case "trouble":
      return `error: ${printable(event.detail)}`;
    case "lost":
      return "the queue was not reached for too long: what ran here is ended, and other machines run it again";
    case "started":
    case "delivered":
    case "draining":
      return null;
  }
}

function itemName({ fleet, key, attempt }: { fleet: string; key: string; attempt: number }): string {
  return `item ${printableLine(key, 200)} of fleet ${printableLine(fleet, 40)} (attempt ${attempt})`;
}

/** An event of `--json`. */
export function workLine(event: WorkEvent): object {
  return { ...event, at: new Date().toISOString() };
}
