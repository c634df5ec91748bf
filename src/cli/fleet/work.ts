import { hostname } from "node:os";
import { setTimeout as pause } from "node:timers/promises";
import { packageVersion } from "../../declarations/place/package-root.ts";
import { loadProject } from "../../declarations/project.ts";
import { nameFault } from "../../declarations/terms/names.ts";
import { machineRoleScript, roleFault } from "../../fleet/postgres/machine-role.ts";
import { whenThere } from "../../fleet/work/asking-coordinator.ts";
import type { WorkEvent } from "../../fleet/work/hosted-fleets.ts";
import { isEngineAway } from "../../isolation/port/engine.ts";
import { coordinatorsOf, workOn } from "../../operations/work.ts";
import { openCorralFor } from "../../run/open/corral.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { type ProjectOptions, UsageError } from "../terminal/arguments.ts";
import { EXIT, printJsonLine, say, type Terminal } from "../terminal/terminal.ts";
import { ImageLines } from "../terminal/worker-text.ts";
import { keepHeapSmall } from "./ran-fleet.ts";
import { WorkScreen, workLine } from "./work-screen.ts";

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
