import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Mirrors } from "../blobs/mirrors.ts";
import { CELL_USER, isLending } from "../changes/view/lending.ts";
import { packageVersion } from "../declarations/place/package-root.ts";
import type { Project } from "../declarations/project.ts";
import { QueueError } from "../fleet/model/queue.ts";
import { capacityOf } from "../fleet/running/fleet-parts.ts";
import { AskingCoordinator, whenThere } from "../fleet/work/asking-coordinator.ts";
import { hostFleets } from "../fleet/work/host-fleet.ts";
import type { OnWorkEvent } from "../fleet/work/hosted-fleets.ts";
import { WorkingMachine } from "../fleet/work/working-machine.ts";
import type { Corral } from "../run/open/corral.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { lockOwner } from "../state/owner.ts";
import { statePaths } from "../state/state-paths.ts";
import { openWorkPlace } from "./work-place.ts";

export interface WorkRequest {
  /** For people. */
  readonly name: string;
  readonly labels: readonly string[];
  readonly slots: number | "auto";
  /** Environment variables, for the queue and the blobs. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly onEvent: OnWorkEvent;
  /** The approver of this machine's runs, see {@link coordinatorsOf}. */
  readonly questions: AskingCoordinator;
  /** Claims no more, gives back waiting items, and ends when the running ones have ended. */
  readonly drain: AbortSignal;
  /** Ends everything at once. */
  readonly stop: AbortSignal;
}

/** Asks the coordinators what items need approval for and no rule of the project decides. */
export function coordinatorsOf({ approval }: Pick<Project, "approval">): AskingCoordinator {
  return new AskingCoordinator({ timeoutMs: approval.timeoutMs, pause });
}

/** Between two attempts to join after the lease was lost. */
const REJOIN_MS = 1000;

/**
 * Makes this process a machine that runs items of other processes' fleets, as far as they agree with this project, until it is drained or
 * stopped. If its lease ends, because it stood still or did not reach the queue, everything that it ran is ended, and it joins again.
 * It waits as long as the queue does not answer.
 *
 * @throws RequestError NO_QUEUE, QueueError for a queue that refuses
 */
export async function workOn(corral: Corral, request: WorkRequest): Promise<void> {
  const { environment: run, project, stateDir } = corral;
  const { name, labels, onEvent, questions, drain, stop } = request;
  const isOver = (): boolean => drain.aborted || stop.aborted;
  const over = AbortSignal.any([drain, stop]);
  const patience = {
    over,
    isPassing: (error: unknown) => error instanceof QueueError && error.isPassing,
    onAway: (why: string) => onEvent({ type: "waiting", for: "queue", why }),
    pause: (ms: number) => pause(ms, undefined, { signal: over }).catch(() => {}),
  };
  await using place = await whenThere(() => openWorkPlace(stateDir, project.dir, request.env), patience);
  if (place === null) return;
  const mirrorsDir = statePaths(stateDir).mirrors;
  const own = new Mirrors({ dir: join(mirrorsDir, "own"), owner: lockOwner() });
  const lent = new Mirrors({ dir: join(mirrorsDir, "lent"), owner: lockOwner(), user: CELL_USER });
  for (const mirrors of [own, lent]) await mirrors.sweep();
  const version = packageVersion();
  // Cells get what belongs to root as a copy for each item: of a directory with thousands of outputs, that takes seconds.
  const mirrorsFor = (sandbox: Sandbox): Mirrors => (isLending(sandbox) ? lent : own);
  const slots = request.slots === "auto" ? await automaticSlots(corral) : request.slots;
  const host = hostFleets({ run, version, blobs: place.blobs, mirrorsFor, mirrorsDir, slots, questions });
  for (let isFirst = true; !isOver(); isFirst = false) {
    const machine = { name, labels, slots, version };
    // Later the queue may be away for any reason and any time: the configuration of this machine has proved right.
    const joining = isFirst ? patience : { ...patience, isPassing: () => true };
    const membership = await whenThere(() => place.work.join(machine), joining);
    if (membership === null) return;
    using _ = questions.through({ membership, store: place.work });
    onEvent({ type: "joined", name, slots, labels });
    const parts = {
      membership,
      store: place.work,
      slots,
      host,
      onEvent,
      now: run.now,
      pause: (ms: number) => pause(ms),
    };
    const end = await new WorkingMachine({ ...parts, drain, stop }).run();
    await membership[Symbol.asyncDispose]();
    if (end !== "lost") return;
    await patience.pause(REJOIN_MS);
  }
}

/** As many as a fleet of fresh cells alone would run here. */
async function automaticSlots({ environment, project }: Corral): Promise<number> {
  const { defaultLimits } = await environment.policyNamed(project.policyName);
  return Math.max(1, capacityOf("fresh", defaultLimits.memoryBytes));
}
