import { CELL_USER_ID } from "../../sandbox/policy.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { holds } from "../../sandbox/virtual-path.ts";
import type { MountRequest, PlannedSource } from "./mounts.ts";
import { grantedMounts, type Plan, type PlannedMount, type PlannedUser } from "./plan.ts";

export interface UserRequest extends Pick<MountRequest, "sandbox" | "sources"> {
  /** The uid that Corral runs as. It decides whose files a cell may write. */
  readonly orchestratorUid: number;
}

/**
 * The cell's user: the one owner of the writable mounts, so that what it writes belongs to them. Without writable
 * mounts, the user of Corral if that is an ordinary one and owns some of what it reads (private files stay readable, as the validator says they
 * are), else the one unprivileged owner of what it reads, else 65532. A group 0 of the owner is replaced unless the policy allows root: members of
 * that group may write what the image's root group may.
 */
export function planUser(request: UserRequest, mounts: readonly PlannedMount[], violations: Violation[]): PlannedUser {
  const user = ownerOf(request, mounts, violations);
  refuseGreatIds(user, violations);
  return user;
}

function ownerOf(request: UserRequest, mounts: readonly PlannedMount[], violations: Violation[]): PlannedUser {
  const own = grantedMounts({ mounts });
  const writers = ownersOf(
    request,
    own.filter((mount) => mount.mode === "rw"),
  );
  if (writers.length === 0) return readerOf(request, own);
  const violation = writerViolation(request, writers);
  if (violation !== null) violations.push(violation);
  return (writers as [PlannedUser])[0];
}

/** Why no cell has a user who may write directories of these owners; null if one has, or if there are none. */
export function writerViolation(
  { sandbox: { policy }, orchestratorUid }: Pick<UserRequest, "sandbox" | "orchestratorUid">,
  owners: readonly PlannedUser[],
): Violation | null {
  const [user] = owners;
  const refused = (reason: string): Violation => ({ code: "USER_NOT_ALLOWED", reason });
  if (user === undefined) return null;
  if (owners.some(({ uid, gid }) => uid !== user.uid || gid !== user.gid))
    return refused(
      `the writable directories belong to different users (${owners.map((u) => `${u.uid}:${u.gid}`).join(", ")})`,
    );
  if (user.uid === 0 && !policy.hardening.rootUser)
    return refused(`a writable directory belongs to root, and the policy ${policy.name} does not run workers as root`);
  if (orchestratorUid !== 0 && user.uid !== orchestratorUid)
    return refused(`a writable directory belongs to user ${user.uid}, and Corral runs as user ${orchestratorUid}`);
  return null;
}

/** Engines take no greater number for a user or a group. */
const MAX_ID = 2 ** 31 - 1;

function refuseGreatIds({ uid, gid }: PlannedUser, violations: Violation[]): void {
  const named = [...(uid > MAX_ID ? [`user ${uid}`] : []), ...(gid > MAX_ID ? [`group ${gid}`] : [])];
  if (named.length === 0) return;
  const reason = `a directory belongs to ${named.join(" and ")}, and a container's user and group have numbers up to ${MAX_ID}. Give it to another user`;
  violations.push({ code: "USER_NOT_ALLOWED", reason });
}

function readerOf(request: UserRequest, mounts: readonly PlannedMount[]): PlannedUser {
  const owners = ownersOf(request, mounts).filter(({ uid }) => uid !== 0);
  // What an ordinary user's Corral shows is what that user may read, private files too.
  const [own] = request.orchestratorUid === 0 ? [] : owners.filter(({ uid }) => uid === request.orchestratorUid);
  const alone = request.orchestratorUid === 0 && owners.length === 1 ? owners[0] : undefined;
  return own ?? alone ?? { uid: CELL_USER_ID, gid: CELL_USER_ID };
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

/** `/etc/passwd` and `/etc/group` of an image, as latin1; null for one that is no plain file there: then nothing takes its place. */
export interface ImageUsers {
  readonly passwd: string | null;
  readonly group: string | null;
}

/** Where an image and a cell name users and groups. */
export const USER_PATHS = { passwd: "/etc/passwd", group: "/etc/group" } as const;

/**
 * What a cell has at {@link USER_PATHS} in place of the image's own: its rows, and one for the cell's user or group. Many programs do not work for a
 * number without a name. Absent: the image names it, or something else of the plan is there.
 */
export function namedUsers(
  image: ImageUsers,
  plan: Pick<Plan, "user" | "env" | "mounts" | "tmpfs">,
): Partial<ImageUsers> {
  const { uid, gid } = plan.user;
  const home = plan.env.HOME ?? "/";
  return {
    ...withRow(plan, image, "passwd", uid, (name) => `${name}:x:${uid}:${gid}:${name}:${home}:/bin/sh`),
    ...withRow(plan, image, "group", gid, (name) => `${name}:x:${gid}:`),
  };
}

function withRow(
  { mounts, tmpfs }: Pick<Plan, "mounts" | "tmpfs">,
  image: ImageUsers,
  file: keyof ImageUsers,
  id: number,
  rowOf: (name: string) => string,
): Partial<ImageUsers> {
  const text = image[file];
  const place = USER_PATHS[file];
  const isTaken = [...mounts, ...tmpfs].some(({ path }) => holds(path, place) || holds(place, path));
  if (text === null || isTaken) return {};
  const rows = text.split("\n").map((line) => line.split(":"));
  if (rows.some(([, , number = ""]) => /^\d+$/.test(number) && Number(number) === id)) return {};
  const isFree = (name: string): boolean => !rows.some(([taken]) => taken === name);
  const name = [id === 0 ? "root" : "worker", `worker-${id}`].find(isFree) ?? `worker--${id}`;
  return { [file]: `${text}${text === "" || text.endsWith("\n") ? "" : "\n"}${rowOf(name)}\n` };
}
