import { join, normalize } from "node:path/posix";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { holds, ROOTED_BASE } from "../../sandbox/virtual-path.ts";
import { present } from "../../text/present.ts";
import { type MountRequest, planMounts, serveCommand } from "./mounts.ts";
import {
  environmentVariables,
  HOME_PATH,
  KEEP_COMMAND,
  KEEPER_IDS,
  networkEnvironment,
  type Plan,
  type PlannedLimits,
  type PlannedTmpfs,
  type PlannedUser,
  planNetwork,
  SECRETS_PATH,
  SERVER_COMMAND,
  SOCKET_PATH,
} from "./plan.ts";
import { planUser, type UserRequest } from "./user.ts";

/**
 * The few errors of an engine that are about the plan and not about the engine: a limit or a runtime that it does not have, and
 * a source that was swapped after the check and cannot be mounted. Null for any other error.
 */
export function refusalFrom(message: string, plan: Plan): Violation | null {
  if (CANNOT_ENFORCE.test(message)) return { code: "ENFORCEMENT_MISSING", missing: [message] };
  // A source that was swapped after the check shows here if it cannot be mounted, else in the verification.
  const isOwn = plan.mounts.some(({ origin, host }) => origin === "corral" && isNamed(host, message));
  if (isOwn || !CANNOT_MOUNT.test(message)) return null;
  const granted = plan.mounts.filter(({ origin }) => origin !== "corral" && origin !== "root");
  const named = granted.filter(
    ({ path, host }) => [`"${path}"`, `${path}:`].some((each) => message.includes(each)) || isNamed(host, message),
  );
  const path = (named.length > 0 ? named : granted).map((mount) => mount.path).join(", ");
  const reason = "it was removed or replaced while the cell was starting";
  return granted.length === 0 ? null : { code: "MOUNT_SOURCE_REFUSED", path, reason };
}

/** True for the path itself, and not for one that begins like it. */
function isNamed(path: string, message: string): boolean {
  return (
    [`${path}"`, `${path}\``, `${path}:`, `${path} `].some((each) => message.includes(each)) || message.endsWith(path)
  );
}

/** Errors for a runtime that the engine does not have, and for limits that are too small for it. */
const CANNOT_ENFORCE = /unknown (or invalid )?runtime|minimum memory limit|cpu[ .]cfs[ _]quota/i;

/** Errors for a mount whose source is gone, or whose mount point is missing and cannot be made. */
const CANNOT_MOUNT =
  /\b(mount|mounting|bind source|cannot stat)\b.*(does not exist|not a directory|no such file or directory|read-only file system)/is;

/** What the Engine reports of an image. `volumes` are its VOLUME declarations, which would be writable disk outside the plan. */
export interface ImageFacts {
  readonly name: string;
  readonly id: string;
  readonly env: readonly string[];
  readonly volumes: readonly string[];
}

export interface PlanRequest extends MountRequest, UserRequest {
  readonly run: Pick<Plan, "root" | "parent" | "project"> & { readonly id: string };
  readonly worker: {
    readonly name: string;
    readonly command: readonly string[];
    readonly env: Readonly<Record<string, string>>;
  };
  readonly image: ImageFacts;
}

export type Planning =
  | { readonly ok: true; readonly plan: Plan }
  | { readonly ok: false; readonly violations: readonly Violation[] };

const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/**
 * The container for one run, from its sandbox. Pure: the same request gives the same plan, byte for byte.
 *
 * What no mount or Engine setting can express is a violation, never left out.
 */
export function planFor(request: PlanRequest): Planning {
  const { sandbox, image, run, worker } = request;
  const { environments = [] } = request.plumbing;
  const violations: Violation[] = [];
  const mounts = planMounts(request, violations);
  refuseVolumesBelow(mounts, image, violations);
  refuseOddVolumes(image, violations);
  const user = planUser(request, mounts, violations);
  const isSession = request.plumbing.output !== undefined;
  const startsCommands = isSession && request.plumbing.commands !== undefined;
  const serves = request.plumbing.items !== undefined;
  const network = planNetwork({ ...request, serves }, violations);
  const { secrets } = sandbox;
  if (secrets !== undefined) refuseSecrets(request, serves, violations);
  if (serves && sandbox.writableRoot) violations.push(NO_ROOT_FOR_ITEMS);
  if (violations.length > 0) return { ok: false, violations };

  const base = sandbox.rooted ? ROOTED_BASE : "";
  // A serving cell has only one place in memory, which root owns: emptying it leaves no trace of an item.
  const home = mounts.some((mount) => mount.path === "/home") ? "/home" : serves ? "/tmp" : HOME_PATH;
  const tmpfs = planTmpfs(request, home, mounts);
  if (serves && mounts.some((mount) => tmpfs.some(({ path }) => mount.path.startsWith(`${path}/`))))
    throw new Error("a cell that empties its memory after each item cannot have a mount in it");
  const limits = planLimits(sandbox);
  const served = (): string[] => serveCommand(worker.command, inMemory(tmpfs), limits.memoryBytes);
  return {
    ok: true,
    plan: {
      version: 1,
      run: run.id,
      root: run.root,
      parent: run.parent,
      worker: worker.name,
      ...present({ project: run.project }),
      policy: sandbox.policy.name,
      image: { name: image.name, id: image.id },
      ...(environments.length === 0
        ? {}
        : { environments: environments.map(({ kind, digest }) => ({ kind, digest })) }),
      command: startsCommands ? SERVER_COMMAND : isSession ? KEEP_COMMAND : serves ? served() : worker.command,
      env: planEnvironment(request, home, network),
      workingDir: planWorkingDir(base, sandbox, mounts),
      ...(serves ? { serves } : {}),
      ...(startsCommands ? { startsCommands } : {}),
      user,
      ...(isSession && !startsCommands ? { keeper: keeperBeside(user) } : {}),
      mounts,
      tmpfs,
      ...present({ secrets }),
      network,
      limits,
      hardening: sandbox.policy.hardening,
    },
  };
}

/** Every place in memory that the worker can write, including the Engine's own. */
function inMemory(tmpfs: readonly PlannedTmpfs[]): string[] {
  return [...tmpfs.map(({ path }) => path), "/dev/shm"];
}

/**
 * True if the first process of a session may start its commands, as one of the worker's own user. That needs the profile that keeps
 * them from changing its limits, the kernel itself, which lets no process look into it, and no right that makes an exception.
 */
export function canStartCommands({ policy: { hardening } }: Sandbox): boolean {
  const { seccomp, runtime, capabilities, noNewPrivileges } = hardening;
  return seccomp === "corral" && runtime === undefined && capabilities.length === 0 && noNewPrivileges;
}

function keeperBeside(user: PlannedUser): PlannedUser {
  const id = KEEPER_IDS[0] === user.uid ? KEEPER_IDS[1] : KEEPER_IDS[0];
  return { uid: id, gid: id };
}

/** The directory from which relative paths of the sandbox start, if it is in the cell, also as a parent of a mount; else `/`. */
function planWorkingDir(base: string, sandbox: Sandbox, mounts: Plan["mounts"]): string {
  const wanted = withoutSlash(join("/", base, sandbox.workingDir));
  const exists = mounts.some(({ path }) => holds(path, wanted) || holds(wanted, path));
  return exists ? wanted : "/";
}

/**
 * The whole environment: the image's variables, the cell's places, and the worker file's. None of the host's. A worker file
 * may replace what leads programs to its hosts: such a variable permits nothing.
 */
function planEnvironment(request: PlanRequest, home: string, network: Plan["network"]): Record<string, string> {
  const given = { PATH: DEFAULT_PATH, ...imageEnvironment(request.image) };
  return {
    ...given,
    ...environmentVariables(request.plumbing.environments ?? [], given.PATH),
    LANG: "C.UTF-8",
    TMPDIR: "/tmp",
    ...networkEnvironment(
      network,
      request.sandbox.commandNetwork ?? request.sandbox.network,
      request.plumbing.services ?? [],
    ),
    ...request.worker.env,
    HOME: home,
    CORRAL_RUN: request.run.id,
    ...(request.plumbing.socket === undefined ? {} : { CORRAL_SOCKET: SOCKET_PATH }),
    ...(request.sandbox.rooted ? { CORRAL_ROOT: ROOTED_BASE } : {}),
  };
}

/** The Engine always gives a container its image's variables: a plan without them would not be complete. */
function imageEnvironment(image: ImageFacts): Record<string, string> {
  return Object.fromEntries(
    image.env
      .map((entry) => /^([^=]+)=(.*)$/s.exec(entry))
      .filter((match) => match !== null)
      .map(([, name, value]) => [name, value]),
  );
}

/** For the mount points below `/root`, which need no space. */
const ROOT_BYTES = 4096;

/** For the files of a worker's secrets, each at most 10,000 bytes. */
const SECRETS_BYTES = 1024 ** 2;

const NO_ROOT_FOR_ITEMS: Violation = {
  code: "ROOT_NOT_ENFORCEABLE",
  reason: "what an item leaves there, the next item of its cell would run. Use `reuse: fresh`",
};

/** The worker owns the place of its secrets: what one item leaves there, if only a mode, the next one could read. */
function refuseSecrets({ image }: PlanRequest, serves: boolean, violations: Violation[]): void {
  if (serves) {
    const reason = "a cell that serves many items holds no secret. Use `reuse: fresh`";
    violations.push({ code: "SECRETS_NOT_ENFORCEABLE", reason });
  }
  if (volumePaths(image).some((path) => path.startsWith(`${SECRETS_PATH}/`)))
    violations.push({ code: "MOUNT_RESERVED", path: SECRETS_PATH, because: "volume" });
}

/** `/tmp` and home, and one over each VOLUME of the image, for which the Engine would otherwise use disk space. */
function planTmpfs(request: PlanRequest, home: string, mounts: Plan["mounts"]): PlannedTmpfs[] {
  const { policy } = request.sandbox;
  const exec = policy.hardening.tmpExec;
  const wanted: PlannedTmpfs[] = [
    ...(request.sandbox.secrets === undefined
      ? []
      : [{ path: SECRETS_PATH, bytes: SECRETS_BYTES, exec: false, mode: "0700" }]),
    { path: "/tmp", bytes: policy.tmpBytes, exec, mode: "1777" },
    { path: home, bytes: policy.homeBytes, exec, mode: "0700" },
    ...volumePaths(request.image).map((path) => ({ path, bytes: policy.tmpBytes, exec, mode: "1777" })),
    // The image closes its own `/root` to every other user; what is mounted below must be reachable.
    ...(mounts.some(({ path }) => path.startsWith("/root/"))
      ? [{ path: "/root", bytes: ROOT_BYTES, exec: false, mode: "0755" }]
      : []),
  ];
  const taken = new Set(mounts.map((mount) => mount.path));
  return wanted.filter(({ path }) => !taken.has(path) && taken.add(path));
}

/** The Engine would create the mount point of such a volume in the granted directory, on the host and as root. */
function refuseVolumesBelow(mounts: Plan["mounts"], image: ImageFacts, violations: Violation[]): void {
  const volumes = volumePaths(image);
  for (const { path, origin } of mounts) {
    if (origin !== "root" && volumes.some((volume) => volume.startsWith(`${path}/`)))
      violations.push({ code: "MOUNT_RESERVED", path, because: "volume" });
  }
}

/** Where a cell has what is its own, and no memory takes its place. */
const NO_VOLUME = /^(|\/(proc|sys|\.corral|dev(?!\/shm$))(\/.*)?|\/etc\/(hosts|resolv\.conf|hostname))$/s;

/** An archive of an image may have any text as the place of a volume. */
function refuseOddVolumes(image: ImageFacts, violations: Violation[]): void {
  const odd = image.volumes.filter((raw) => {
    const path = raw.replace(/\/+$/, "");
    return NO_VOLUME.test(path) || !path.startsWith("/") || normalize(path) !== path;
  });
  if (odd.length === 0) return;
  const reason = `it declares a VOLUME at ${odd.map((path) => JSON.stringify(path)).join(", ")}, where a cell has none`;
  violations.push({ code: "IMAGE_REFUSED", image: image.name, reason });
}

function volumePaths(image: ImageFacts): string[] {
  return image.volumes.map((path) => withoutSlash(normalize(path))).sort();
}

function withoutSlash(path: string): string {
  return path === "/" ? path : path.replace(/\/$/, "");
}

/** What a run under this sandbox may use: its own limits, or its policy's if it has none. */
export function planLimits({ policy, limits }: Sandbox): PlannedLimits {
  return { ...policy.maxLimits, ...limits, nofile: policy.nofile };
}
