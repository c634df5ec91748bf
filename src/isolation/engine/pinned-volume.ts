import type Docker from "dockerode";
import { z } from "zod";
import type { Plan, PlannedMount } from "../plan/plan.ts";
import { type Labelled, labelsFor, type Maker, RUN_LABEL, readLabels } from "../port/labels.ts";
import type { Pins } from "../sources/pin.ts";
import { asked } from "./answers/asked.ts";

/**
 * How a directory is passed to the daemon: as a volume that it makes and removes together with the container, bound to the
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

/** What the Engine reports of a volume. */
type Told = Pick<Docker.VolumeInspectInfo, "Name" | "Labels" | "Options">;

/** The name that the Engine gives to a volume without one. A volume with another name is never Corral's. */
const GIVEN_NAME = /^[0-9a-f]{64}$/;

/**
 * The owner of a volume; null if Corral did not make it. The Engine chooses its name, so the seal covers the directory
 * that it shows: a volume that shows another one is not Corral's, even with the same labels.
 */
export function ownerOfVolume(sealKey: Buffer, { Name, Labels, Options }: Told): Labelled | null {
  const device = Options?.device;
  if (device === undefined || !GIVEN_NAME.test(Name)) return null;
  return readLabels(sealKey, "volume", device, Labels);
}

const Listed = z.object({ Volumes: z.array(z.looseObject({ Name: z.string() })).nullable() });

/** The volumes of all runs, or of one. */
export async function listVolumes(docker: Docker, run?: string): Promise<Docker.VolumeInspectInfo[]> {
  const label = run === undefined ? RUN_LABEL : `${RUN_LABEL}=${run}`;
  const listed = await asked(() => docker.listVolumes({ filters: { label: [label] } }), Listed);
  return (listed.Volumes ?? []) as unknown[] as Docker.VolumeInspectInfo[];
}
