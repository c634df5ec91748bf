import { setTimeout as pause } from "node:timers/promises";
import { Mirrors } from "../blobs/mirror/mirrors.ts";
import type { Project } from "../declarations/project.ts";
import { capacityOf } from "../fleet/share.ts";
import { AskingCoordinator } from "../fleet/work/asking-coordinator.ts";
import { hostFleets } from "../fleet/work/host-fleet.ts";
import { joined } from "../fleet/work/joined.ts";
import type { OnWorkEvent } from "../fleet/work/work-events.ts";
import { WorkingMachine } from "../fleet/work/working-machine.ts";
import type { Corral } from "../run/open/corral.ts";
import { lockOwner } from "../state/owner.ts";
import { statePaths } from "../state/state-paths.ts";
import { packageVersion } from "./package-version.ts";
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
  /** Claims no more, gives back what waits, and ends when what runs has ended. */
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
 *
 * @throws RequestError NO_QUEUE, QueueError
 */
export async function workOn(corral: Corral, request: WorkRequest): Promise<void> {
  const { environment: run, project, stateDir } = corral;
  const { name, labels, onEvent, questions, drain, stop } = request;
  await using place = await openWorkPlace(stateDir, project.dir, request.env);
  const mirrorsDir = statePaths(stateDir).mirrors;
  const mirrors = new Mirrors({ dir: mirrorsDir, owner: lockOwner() });
  await mirrors.sweep();
  const version = packageVersion();
  const host = hostFleets({ run, version, blobs: place.blobs, mirrors, mirrorsDir, questions });
  const slots = request.slots === "auto" ? await automaticSlots(corral) : request.slots;
  const isOver = (): boolean => drain.aborted || stop.aborted;
  const over = AbortSignal.any([drain, stop]);
  const rest = async (): Promise<void> => await pause(REJOIN_MS, undefined, { signal: over }).catch(() => {});
  for (let isFirst = true; !isOver(); isFirst = false) {
    const machine = { name, labels, slots, version };
    // Later the queue may be away for any time: the configuration of this machine has proved right.
    const onTrouble = isFirst ? null : (detail: string) => onEvent({ type: "trouble", detail });
    const membership = await joined(place.work, machine, { over, pause: rest, onTrouble });
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
    await rest();
  }
}

/** As many as a fleet of fresh cells alone would run here. */
async function automaticSlots({ environment, project }: Corral): Promise<number> {
  const { defaultLimits } = await environment.policyNamed(project.policyName);
  return Math.max(1, capacityOf("fresh", defaultLimits.memoryBytes));
}
