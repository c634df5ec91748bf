import { timingSafeEqual } from "node:crypto";
import { sha256 } from "../../platform/sha256.ts";
import { formatOwner, type Owner, parseOwner, sealOf } from "../../state/owner.ts";
import { grantedMounts, type Plan } from "../plan/plan.ts";

const PREFIX = "dev.corral.";
/** Of a container that acts on a cell's files: when its owner ends, it still gives them back. */
export const STEWARD_LABEL = `${PREFIX}steward`;
export const RUN_LABEL = `${PREFIX}run`;

/** A container or volume of the Engine, or a cell that Corral made with runc. */
export type LabelledKind = "container" | "volume" | "cell";

/** What Corral's labels say about a container, volume or cell of this state directory. */
export interface Labelled {
  readonly run: string;
  readonly root: string;
  readonly parent: string | null;
  readonly worker: string;
  readonly owner: Owner;
}

/** The owner of what is made, and the key that seals its labels. */
export interface Maker {
  readonly owner: Owner;
  readonly sealKey: Buffer;
}

/** What a container is called: the Engine takes no other characters, and both parts are bounded. */
export function containerName({ worker, run }: Pick<Plan, "worker" | "run">): string {
  return `corral-${worker.slice(0, 64).replaceAll(/[^A-Za-z0-9_.-]/g, "_")}-${run}`;
}

/**
 * All labels of a container or volume. The seal covers `name`: the container's name, or for a volume, which the Engine
 * names, the directory that it shows. Every label is always set, so that no label of an image can replace one.
 */
export function labelsFor(maker: Maker, kind: LabelledKind, name: string, plan: Plan): Record<string, string> {
  const owner = formatOwner(maker.owner);
  return {
    [RUN_LABEL]: plan.run,
    [`${PREFIX}root`]: plan.root,
    [`${PREFIX}parent`]: plan.parent ?? "",
    [`${PREFIX}worker`]: plan.worker,
    ...(kind === "container" ? shownLabels(plan) : {}),
    [`${PREFIX}owner`]: owner,
    [`${PREFIX}plan`]: planHash(plan),
    [`${PREFIX}seal`]: sealOf(maker.sealKey, { kind, name, run: plan.run, owner }),
  };
}

/**
 * For people who look with Docker's tools: Corral reads none of them. Each mount as `docker run --volume` takes it, with the host's own
 * folder in place of its view. An image may have a label of such a name with a higher number, so their count is one of them.
 */
function shownLabels(plan: Plan): Record<string, string> {
  const mounts = grantedMounts(plan).map(({ path, host, viewOf = host, mode, staged }, index) => {
    const label = `${PREFIX}mount.${index + 1}`;
    return [label, `${viewOf}:${path}:${mode}${staged && mode === "rw" ? ",staged" : ""}`] as const;
  });
  return {
    [`${PREFIX}project`]: plan.project ?? "",
    [`${PREFIX}mounts`]: String(mounts.length),
    ...Object.fromEntries(mounts),
  };
}

/** Reads what {@link labelsFor} wrote; null if this maker's key did not seal it. */
export function readLabels(
  sealKey: Buffer,
  kind: LabelledKind,
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

/** Identifies a plan: the same container has the same hash, for any run and any place in the call tree. */
export function planHash(plan: Plan): string {
  const nameless = JSON.stringify({ ...plan, root: "", parent: null }).replaceAll(plan.run, "");
  return sha256(nameless).slice(0, 16);
}
