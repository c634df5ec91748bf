import { type Approval, ASK } from "./approval.ts";
import { isHostExecutedRoot } from "./host-executed.ts";
import type { Mount } from "./mount.ts";

/** What happens to a mount's writes: kept apart until a changeset is applied, or kept apart and dropped. */
export interface Staging {
  readonly stage?: true | undefined;
  readonly discard?: true | undefined;
}

/** What any of them declares, because staging is never removed. Spread the result over a mount. */
export function stagingOf(...said: readonly (Staging | undefined)[]): Pick<Mount, keyof Staging> {
  return {
    ...(said.some((each) => each?.stage) ? { stage: true as const } : {}),
    ...(said.some((each) => each?.discard) ? { discard: true as const } : {}),
  };
}

/**
 * How a mount reaches a cell, so that validator and kernel agree: `direct` if a bind mount allows exactly what the
 * validator does; `read-only` if nothing may be changed; `view` if a bind mount cannot express it: changes that need
 * consent, suffixes, sizes, `stage` or `discard`, and a directory that the host executes as a whole.
 */
export type Delivery = "direct" | "read-only" | "view";

export function deliveryOf(mount: Mount): Delivery {
  if (mount.suffixes !== undefined || mount.maxFileBytes !== undefined) return "view";
  if (mount.mode === "ro") return "direct";
  const { write, delete: remove } = mount.approval ?? ASK;
  if (write === "blocked" && remove === "blocked") return "read-only";
  if (mount.stage || mount.discard) return "view";
  if (mount.view === undefined && isHostExecutedRoot(mount)) return "view";
  return write === "pre_approved" && remove === "pre_approved" ? "direct" : "view";
}

/** True if changes in the mount's view are meant to be applied. */
export function comesBack(mount: Mount): boolean {
  return mount.mode === "rw" && !mount.discard;
}

/** The mount with its view in place of the directory. Tools and cells act on it, and children are derived from it. */
export function throughView(mount: Mount, host: string): Mount {
  const { stage: _stage, discard, view, approval = ASK, ...rest } = mount;
  const origin = view?.origin ?? mount.host;
  // Discarded changes are never applied, so a called worker needs no consent for them either.
  const asked = discard ? ASK : askedOnTheWay(approval, view?.asked);
  return { ...rest, host, approval: discard ? unasked(approval) : approval, view: { origin, asked } };
}

/** A sandbox as its calls would be derived from it, for `explain` and `check`, which run nothing. */
export function asIfStaged<Shown extends { readonly mounts: readonly Mount[] }>(sandbox: Shown): Shown {
  const mounts = sandbox.mounts.map((mount) => (deliveryOf(mount) === "view" ? throughView(mount, mount.host) : mount));
  return { ...sandbox, mounts };
}

/** The consent that is needed when changes leave this mount's view, without what is asked further out anyway. */
export function askedOnApplying({ approval = ASK, view }: Mount): Approval {
  return {
    write: approval.write === "ask" && view?.asked.write === "ask" ? "pre_approved" : approval.write,
    delete: approval.delete === "ask" && view?.asked.delete === "ask" ? "pre_approved" : approval.delete,
  };
}

function askedOnTheWay(own: Approval, further: Approval | undefined): Approval {
  return {
    write: own.write === "ask" || further?.write === "ask" ? "ask" : own.write,
    delete: own.delete === "ask" || further?.delete === "ask" ? "ask" : own.delete,
  };
}

function unasked({ write, delete: remove, ...rest }: Approval): Approval {
  return {
    ...rest,
    write: write === "ask" ? "pre_approved" : write,
    delete: remove === "ask" ? "pre_approved" : remove,
  };
}
