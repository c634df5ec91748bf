import { timingSafeEqual } from "node:crypto";
import { sha256 } from "../../platform/sha256.ts";
import { formatOwner, type Owner, parseOwner, sealOf } from "../../state/owner.ts";
import type { Plan } from "../plan/plan.ts";

const PREFIX = "dev.corral.";
export const RUN_LABEL = `${PREFIX}run`;

/** What Corral's labels say of a container or volume that this state directory made. */
export interface Labelled {
  readonly run: string;
  readonly root: string;
  readonly parent: string | null;
  readonly worker: string;
  readonly owner: Owner;
}

/** Who makes things, and with what it seals their labels. */
export interface Maker {
  readonly owner: Owner;
  readonly sealKey: Buffer;
}

/**
 * All labels of a thing. `name` is what the seal is of: its own, or of a volume, which the Engine names, what it shows.
 * Always all of them, so that no label of an image stands in for one of ours.
 */
export function labelsFor(
  maker: Maker,
  kind: "container" | "volume",
  name: string,
  plan: Plan,
): Record<string, string> {
  const owner = formatOwner(maker.owner);
  return {
    [RUN_LABEL]: plan.run,
    [`${PREFIX}root`]: plan.root,
    [`${PREFIX}parent`]: plan.parent ?? "",
    [`${PREFIX}worker`]: plan.worker,
    [`${PREFIX}owner`]: owner,
    [`${PREFIX}plan`]: planHash(plan),
    [`${PREFIX}seal`]: sealOf(maker.sealKey, { kind, name, run: plan.run, owner }),
  };
}

/** Reads back what {@link labelsFor} wrote; null for anything that this maker's key did not seal. */
export function readLabels(
  sealKey: Buffer,
  kind: "container" | "volume",
  name: string,
  labels: Readonly<Record<string, string>> | null,
): Labelled | null {
  const read = (label: string): string => labels?.[PREFIX + label] ?? "";
  const expected = Buffer.from(sealOf(sealKey, { kind, name, run: read("run"), owner: read("owner") }));
  const seal = Buffer.from(read("seal"));
  if (seal.length !== expected.length || !timingSafeEqual(seal, expected)) return null;
  const owner = parseOwner(read("owner"));
  if (owner === null) return null;
  return { run: read("run"), root: read("root"), parent: read("parent") || null, worker: read("worker"), owner };
}

/** Identifies a plan: the same container has the same hash, whatever its run and its place in the tree are called. */
export function planHash(plan: Plan): string {
  const nameless = JSON.stringify({ ...plan, root: "", parent: null }).replaceAll(plan.run, "");
  return sha256(nameless).slice(0, 16);
}
