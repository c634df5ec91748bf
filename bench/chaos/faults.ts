import { setTimeout as sleep } from "node:timers/promises";
import type { Link } from "./links.ts";
import type { QueueServer } from "./queue-server.ts";
import type { SecondEngine } from "./second-engine.ts";

export const FAULTS = [
  "kill",
  "pause",
  "partition",
  "engine",
  "postgres",
  "coordinator",
  "coordinator-pause",
  "coordinator-partition",
] as const;
export type FaultName = (typeof FAULTS)[number];

/** What can be hit: a machine or the coordinator. */
export interface Target {
  readonly name: string;
  readonly link: Link;
  kill(signal: NodeJS.Signals): void;
  /** After `kill -9`. */
  startAgain(): void;
}

export interface FaultPlaces {
  readonly machines: readonly Target[];
  readonly coordinator: Target;
  readonly postgres: QueueServer;
  readonly engine: SecondEngine | null;
}

export interface Fault {
  readonly name: FaultName;
  readonly text: string;
  /** What no other fault may hit meanwhile. */
  readonly hits: string;
  /** Settles when it is over. */
  run(): Promise<void>;
}

const PAUSE_MS = 30_000;

/** The next fault: of one kind among `kinds`, in a place that no other fault holds; null if all are held. */
export function nextFault(
  places: FaultPlaces,
  { kinds, random, held }: { kinds: readonly FaultName[]; random: () => number; held: ReadonlySet<string> },
): Fault | null {
  const one = <T>(from: readonly T[]): T | undefined => from[Math.floor(random() * from.length)];
  const seconds = (from: number, to: number): number => Math.round(1000 * (from + random() * (to - from)));
  const { machines, coordinator, postgres, engine } = places;
  const free = (targets: readonly Target[]): Target[] => targets.filter(({ name }) => !held.has(name));
  const possible = kinds.filter((kind) => {
    if (kind === "engine") return engine !== null && !held.has("engine");
    if (kind === "postgres") return !held.has("postgres");
    return free(ofCoordinator(kind) ? [coordinator] : machines).length > 0;
  });
  const kind = one(possible);
  if (kind === undefined) return null;
  const at = (ofCoordinator(kind) ? undefined : one(free(machines))) ?? coordinator;
  const made: Record<FaultName, () => Omit<Fault, "name">> = {
    kill: () => killed(at, seconds(2, 5)),
    coordinator: () => killed(at, seconds(1, 3)),
    pause: () => paused(at),
    "coordinator-pause": () => paused(at),
    partition: () => parted(at, seconds(5, 30)),
    "coordinator-partition": () => parted(at, seconds(5, 30)),
    engine: () => {
      const signal = random() < 0.5 ? "SIGTERM" : "SIGKILL";
      const run = async (): Promise<void> => await engine?.restart(signal);
      return { text: `the second Engine ends by ${signal}, and starts again`, hits: "engine", run };
    },
    postgres: () => {
      const how = random() < 0.5 ? "fast" : "immediate";
      return { text: `PostgreSQL restarts (${how})`, hits: "postgres", run: () => postgres.restart(how) };
    },
  };
  return { name: kind, ...made[kind]() };
}

function ofCoordinator(kind: FaultName): boolean {
  return kind.startsWith("coordinator");
}

/** For longer than a lease. */
function paused(target: Target): Omit<Fault, "name"> {
  return {
    text: `SIGSTOP of ${target.name} for ${PAUSE_MS / 1000} s`,
    hits: target.name,
    async run() {
      target.kill("SIGSTOP");
      await sleep(PAUSE_MS);
      target.kill("SIGCONT");
    },
  };
}

function parted(target: Target, ms: number): Omit<Fault, "name"> {
  return {
    text: `${target.name} has no network for ${(ms / 1000).toFixed(1)} s`,
    hits: target.name,
    async run() {
      await target.link.cut();
      await sleep(ms);
      await target.link.mend();
    },
  };
}

function killed(target: Target, ms: number): Omit<Fault, "name"> {
  return {
    text: `kill -9 of ${target.name}, which starts again after ${(ms / 1000).toFixed(1)} s`,
    hits: target.name,
    async run() {
      target.kill("SIGKILL");
      await sleep(ms);
      target.startAgain();
    },
  };
}
