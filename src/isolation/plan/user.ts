import { CELL_USER_ID } from "../../sandbox/policy.ts";
import type { Violation } from "../../sandbox/violation.ts";
import type { MountRequest, PlannedSource } from "./mounts.ts";
import { grantedMounts, type PlannedMount, type PlannedUser } from "./plan.ts";

export interface UserRequest extends Pick<MountRequest, "sandbox" | "sources"> {
  /** The uid that Corral runs as. It decides whose files a cell may write. */
  readonly orchestratorUid: number;
}

/**
 * The cell's user: the one owner of the writable mounts, so that what it writes belongs to them. Without writable
 * mounts, the one unprivileged owner of what it reads (an ordinary user's private files stay readable, as the
 * validator says they are), else 65532. A group 0 of the owner is replaced unless the policy allows root: members of
 * that group may write what the image's root group may.
 */
export function planUser(request: UserRequest, mounts: readonly PlannedMount[], violations: Violation[]): PlannedUser {
  const own = grantedMounts({ mounts });
  const writers = ownersOf(
    request,
    own.filter((mount) => mount.mode === "rw"),
  );
  if (writers.length === 0) return readerOf(request, own);
  const [user] = writers as [PlannedUser];
  const refuse = (reason: string): number => violations.push({ code: "USER_NOT_ALLOWED", reason });
  if (writers.length > 1) {
    refuse(
      `the writable directories belong to different users (${writers.map((u) => `${u.uid}:${u.gid}`).join(", ")})`,
    );
  } else if (user.uid === 0 && !request.sandbox.policy.hardening.rootUser) {
    refuse(
      `a writable directory belongs to root, and the policy ${request.sandbox.policy.name} does not run workers as root`,
    );
  } else if (request.orchestratorUid !== 0 && user.uid !== request.orchestratorUid) {
    refuse(`a writable directory belongs to user ${user.uid}, and Corral runs as user ${request.orchestratorUid}`);
  }
  return user;
}

function readerOf(request: UserRequest, mounts: readonly PlannedMount[]): PlannedUser {
  const [user, ...others] = ownersOf(request, mounts).filter(({ uid }) => uid !== 0);
  const alone = user !== undefined && others.length === 0;
  const allowed = alone && (request.orchestratorUid === 0 || user.uid === request.orchestratorUid);
  return allowed ? user : { uid: CELL_USER_ID, gid: CELL_USER_ID };
}

function ownersOf(request: UserRequest, mounts: readonly PlannedMount[]): PlannedUser[] {
  const owners = new Map<string, PlannedUser>();
  for (const mount of mounts) {
    const { uid, gid: own } = request.sources.get(mount.host) as PlannedSource;
    const gid = own === 0 && !request.sandbox.policy.hardening.rootUser ? CELL_USER_ID : own;
    owners.set(`${uid}:${gid}`, { uid, gid });
  }
  return [...owners.values()];
}
