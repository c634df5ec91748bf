import type Docker from "dockerode";
import type { Plan, PlannedMount } from "../plan/plan.ts";
import { type Labelled, labelsFor, type Maker, RUN_LABEL, readLabels } from "../port/labels.ts";
import type { Pins } from "../sources/pin.ts";

/**
 * How the daemon is told of a directory: as a volume that it makes and removes together with the container, bound to the
 * pinned descriptor, so that it never resolves the directory's path again (docs/architecture.md,
 * fact: pinned-by-volume).
 */
export interface PinnedVolume {
  /** `/proc/PID/fd/N` of this process. */
  readonly device: string;
  readonly labels: Readonly<Record<string, string>>;
}

/** One for each directory of the plan. */
export function pinnedVolumes(plan: Plan, pins: Pins, maker: Maker): ReadonlyMap<PlannedMount, PinnedVolume> {
  const volumes = new Map<PlannedMount, PinnedVolume>();
  for (const mount of plan.mounts) {
    if (mount.kind !== "directory") continue;
    const device = pins.sources.get(mount.host)?.descriptorPath;
    if (device === undefined) throw new Error(`the source of ${mount.path} was not pinned`);
    volumes.set(mount, { device, labels: labelsFor(maker, "volume", device, plan) });
  }
  return volumes;
}

/** What the Engine tells of a volume. */
type Told = Pick<Docker.VolumeInspectInfo, "Name" | "Labels" | "Options">;

/** The Engine gives such names to volumes that nobody named; a volume that somebody named is never Corral's. */
const GIVEN_NAME = /^[0-9a-f]{64}$/;

/**
 * Whose a volume is; null for one that is none of ours. The Engine names it, so what its seal is of besides its owner is
 * what it shows: a volume that shows anything else can carry the labels, and is somebody else's all the same.
 */
export function ownerOfVolume(sealKey: Buffer, { Name, Labels, Options }: Told): Labelled | null {
  const device = Options?.device;
  if (device === undefined || !GIVEN_NAME.test(Name)) return null;
  return readLabels(sealKey, "volume", device, Labels);
}

/** The volumes of all runs, or of one. */
export async function listVolumes(docker: Docker, run?: string): Promise<Docker.VolumeInspectInfo[]> {
  const label = run === undefined ? RUN_LABEL : `${RUN_LABEL}=${run}`;
  return (await docker.listVolumes({ filters: { label: [label] } })).Volumes ?? [];
}
