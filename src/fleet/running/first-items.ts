import { dirname } from "node:path";
import { ownerOfNewZone } from "../../declarations/place/zone-folder.ts";
import { Descriptor } from "../../files/host/descriptor.ts";
import { writerViolation } from "../../isolation/plan/user.ts";
import { hasCode } from "../../platform/errno.ts";
import type { RunEnvironment } from "../../run/model/environment.ts";
import { newRunId } from "../../run/model/job.ts";
import { permissionOf } from "../../run/model/permission.ts";
import { describeAll } from "../../run/model/result.ts";
import { deliveryOf } from "../../sandbox/expand.ts";
import { CELL_USER_ID } from "../../sandbox/policy.ts";
import { type FleetJob, itemJob, readByAll } from "../items/item-job.ts";
import type { FleetSpec, ItemRequest } from "../model/item.ts";
import { itemFit } from "../scrubbed/shape.ts";

/** So many items are looked at before any is kept. */
export const LOOKED_AT = 20;

type Permission = Pick<FleetJob, "worker" | "caller" | "sandbox">;

/**
 * Why each of the first items would be refused, for a reason that lies in the project and not in the item: then nothing is run. Null:
 * one of them would run, or each is told its own reason.
 */
export async function refusedAlike(
  first: readonly ItemRequest[],
  spec: FleetSpec,
  permission: Permission,
  env: RunEnvironment,
): Promise<string | null> {
  // What is written on another machine is a view.
  if (spec.machines != null) return null;
  let reason: string | null = null;
  for (const item of first) {
    if (item.refusal !== undefined) continue;
    const found = await reasonAgainst(item, spec, permission, env);
    if (found === null) return null;
    reason ??= found;
  }
  if (reason === null) return null;
  return `${first.length < LOOKED_AT ? "no item" : `none of the first ${LOOKED_AT} items`} would run: ${reason}`;
}

async function reasonAgainst(
  item: ItemRequest,
  { reuse }: FleetSpec,
  { worker, caller, sandbox }: Permission,
  env: RunEnvironment,
): Promise<string | null> {
  const reads = readByAll(sandbox, reuse);
  const asked = { fleet: "", run: newRunId(), signal: new AbortController().signal, turn: async () => {} };
  const { narrow } = itemJob({ worker, caller, sandbox, reads, env }, item, asked);
  const derivation = await permissionOf(worker, caller, narrow, env);
  if (!derivation.ok) return null;
  const own = process.getuid?.() ?? 0;
  // Opening the project for runs makes them; who only looks finds them missing.
  const zoneOwner = await ownerOfNewZone(env.project.dir);
  const made = new Map(env.project.newZones.map(({ host }) => [host, zoneOwner]));
  if (reuse === "fresh") {
    const written = derivation.sandbox.mounts.filter((mount) => mount.mode === "rw" && deliveryOf(mount) === "direct");
    return writerFault(
      written.map(({ host }) => host),
      sandbox,
      { own, made },
    );
  }
  const fit = itemFit(sandbox, derivation.sandbox);
  if (!fit.ok) return fit.reason;
  // All that a shared cell shows as writable is Corral's own, and as root it has the owner of the first.
  return own === 0
    ? writerFault(
        fit.shape.writes.slice(0, 1).map(({ host }) => host),
        sandbox,
        { own, made },
      )
    : closedPlace(fit.outputs.map(({ path }) => hostOf(derivation.sandbox, path)));
}

/** What an item of a shared cell wrote is moved by this process, which is not root. */
function closedPlace(hosts: readonly string[]): string | null {
  const closed = hosts.find((host) => !isOpen(host));
  return closed === undefined
    ? null
    : `${closed} cannot be written by this user, who moves there what items wrote. Give it to this user (chown), or let the items write elsewhere.`;
}

/** What is missing is made in the folder around it. */
function isOpen(host: string): boolean {
  try {
    using found = Descriptor.name(host);
    return found.isWritable();
  } catch (error) {
    return hasCode(error, "ENOENT") && dirname(host) !== host && isOpen(dirname(host));
  }
}

function hostOf({ mounts }: Permission["sandbox"], path: string): string {
  const mount = mounts.find((one) => one.path === path);
  if (mount === undefined) throw new RangeError(`${path} is no mount of its sandbox`);
  return mount.host;
}

type Owner = { readonly uid: number; readonly gid: number };

function writerFault(
  hosts: readonly string[],
  sandbox: Permission["sandbox"],
  { own, made }: { readonly own: number; readonly made: ReadonlyMap<string, Owner> },
): string | null {
  const owners = hosts.map((host) => ownerOfPlace(host, made)).filter((owner) => owner !== null);
  const violation = writerViolation({ sandbox, orchestratorUid: own }, owners);
  return violation === null
    ? null
    : describeAll([violation])
        .map(({ message }) => message)
        .join("\n");
}

/** What is missing is made with the owner of the folder around it; `made`: zones of the project, with their owners. Null: it cannot be looked at, which its run tells. */
function ownerOfPlace(host: string, made: ReadonlyMap<string, Owner>): Owner | null {
  try {
    using found = Descriptor.name(host);
    const { uid, gid } = found.stat();
    return { uid, gid: gid === 0 ? CELL_USER_ID : gid };
  } catch (error) {
    if (!hasCode(error, "ENOENT") || dirname(host) === host) return null;
    return made.get(host) ?? ownerOfPlace(dirname(host), made);
  }
}
