import { randomBytes, timingSafeEqual } from "node:crypto";
import type Docker from "dockerode";
import { z } from "zod";
import { sha256 } from "../../platform/sha256.ts";
import { formatOwner, type Owner, sealOf } from "../../state/owner.ts";
import type { Plan, PlannedMount } from "../plan/plan.ts";
import { type Labelled, labelsFor, type Maker, RUN_LABEL, readLabels } from "../port/labels.ts";
import type { Pins } from "../sources/pin.ts";
import { asked } from "./answers/asked.ts";

/**
 * How a directory is passed to the daemon: as a volume that it makes with the container, bound to the pinned descriptor, so
 * that it never resolves the directory's path again (docs/facts.md, fact: pinned-by-volume).
 */
export interface PinnedVolume {
  /** Sealed, and of this volume alone: an Engine that ends may leave nothing else of it (fact: volume-without-labels). */
  readonly name: string;
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
    volumes.set(mount, { name: newName(maker), device, labels: labelsFor(maker, "volume", device, plan) });
  }
  return volumes;
}

const NAME = /^corral-([0-9a-f]{16})-([0-9a-f]{16})-([0-9a-f]{64})$/;
/** The name that the Engine gives to a volume without one. Earlier versions of Corral gave none. */
const GIVEN_NAME = /^[0-9a-f]{64}$/;

function newName({ owner, sealKey }: Maker): string {
  const [mark, once] = [ownerMark(owner), randomBytes(8).toString("hex")];
  return `corral-${mark}-${once}-${nameSeal(sealKey, mark, once)}`;
}

/** Stands for the owner in the names of its volumes. */
export function ownerMark(owner: Owner): string {
  return sha256(formatOwner(owner)).slice(0, 16);
}

function nameSeal(sealKey: Buffer, mark: string, once: string): string {
  return sealOf(sealKey, { kind: "volume", name: once, run: "", owner: mark });
}

/** The mark of the owner who gave this name to a volume; null if none of this state directory did. */
function markIn(sealKey: Buffer, name: string): string | null {
  const [, mark = "", once = "", seal = ""] = NAME.exec(name) ?? [];
  const expected = Buffer.from(nameSeal(sealKey, mark, once));
  return seal.length === expected.length && timingSafeEqual(Buffer.from(seal), expected) ? mark : null;
}

/** What the Engine reports of a volume. */
type Told = Pick<Docker.VolumeInspectInfo, "Name" | "Labels" | "Options">;

/**
 * The owner of a volume; null if Corral did not make it, or its Engine left it without labels. The seal of the labels covers the
 * directory that it shows: a volume that shows another one is not Corral's, even with the same labels.
 */
export function ownerOfVolume(sealKey: Buffer, { Name, Labels, Options }: Told): Labelled | null {
  const device = Options?.device;
  if (device === undefined || (!GIVEN_NAME.test(Name) && markIn(sealKey, Name) === null)) return null;
  return readLabels(sealKey, "volume", device, Labels);
}

/** The mark of the owner of a volume that its Engine left without labels and options; null for any other volume. */
export function markOfBareVolume(sealKey: Buffer, { Name, Labels, Options }: Told): string | null {
  const isBare = Object.keys({ ...Labels, ...Options }).length === 0;
  return isBare ? markIn(sealKey, Name) : null;
}

const Listed = z.object({ Volumes: z.array(z.looseObject({ Name: z.string() })).nullable() });

/** The volumes with labels of Corral's, and those with such names. */
export async function listVolumes(docker: Docker): Promise<Docker.VolumeInspectInfo[]> {
  const listed = async (filters: Record<string, string[]>) => {
    const { Volumes } = await asked(() => docker.listVolumes({ filters }), Listed);
    return (Volumes ?? []) as unknown[] as Docker.VolumeInspectInfo[];
  };
  const both = await Promise.all([listed({ label: [RUN_LABEL] }), listed({ name: ["corral-"] })]);
  return [...new Map(both.flat().map((volume) => [volume.Name, volume])).values()];
}
