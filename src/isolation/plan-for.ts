import { join } from "node:path/posix";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { Violation } from "../sandbox/violation.ts";
import { type PlannedSource, planMounts } from "./mounts.ts";
import { HOME_PATH, type Plan, type PlannedLimits, type PlannedTmpfs, ROOTED_BASE, SOCKET_PATH } from "./plan.ts";
import { planUser } from "./user.ts";

/** What the Engine says of an image. `volumes` are its VOLUME declarations, which would be writable disk outside the plan. */
export interface ImageFacts {
  readonly name: string;
  readonly id: string;
  readonly env: readonly string[];
  readonly volumes: readonly string[];
}

export interface PlanRequest {
  readonly run: { readonly id: string; readonly root: string; readonly parent: string | null };
  readonly worker: {
    readonly name: string;
    readonly command: readonly string[];
    readonly env: Readonly<Record<string, string>>;
  };
  readonly sandbox: Sandbox;
  readonly image: ImageFacts;
  /** Facts of every host path that will be mounted, by host path. */
  readonly sources: ReadonlyMap<string, PlannedSource>;
  readonly attachments: readonly { readonly name: string; readonly host: string }[];
  /** Corral's own two files on the host: the gate's binary and this run's socket. */
  readonly plumbing: { readonly gate: string; readonly socket: string };
  /** The uid that Corral runs as. It decides whose files a cell may write. */
  readonly orchestratorUid: number;
}

export type Planning =
  | { readonly ok: true; readonly plan: Plan }
  | { readonly ok: false; readonly violations: readonly Violation[] };

const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/**
 * The container for one run, from its sandbox. Pure: the same request gives the same plan, byte for byte.
 *
 * What no mount or Engine setting can express is a violation, never left out (design sections 4 and 6).
 */
export function planFor(request: PlanRequest): Planning {
  const { sandbox, image, run, worker } = request;
  const violations: Violation[] = [];
  const mounts = planMounts(request, violations);
  const user = planUser(request, mounts, violations);
  const network = planNetwork(sandbox, violations);
  if (violations.length > 0) return { ok: false, violations };

  const base = sandbox.rooted ? ROOTED_BASE : "";
  const home = mounts.some((mount) => mount.path === "/home") ? "/home" : HOME_PATH;
  return {
    ok: true,
    plan: {
      version: 1,
      run: run.id,
      root: run.root,
      parent: run.parent,
      worker: worker.name,
      policy: sandbox.policy.name,
      image: { name: image.name, id: image.id },
      command: worker.command,
      env: planEnvironment(request, home),
      workingDir: planWorkingDir(base, sandbox, mounts),
      user,
      mounts,
      tmpfs: planTmpfs(request, home, mounts),
      network,
      limits: planLimits(sandbox),
      hardening: sandbox.policy.hardening,
    },
  };
}

function planNetwork(sandbox: Sandbox, violations: Violation[]): "none" | "open" {
  if (sandbox.network === false) return "none";
  if (sandbox.network === true) return "open";
  if (sandbox.network.allow.length === 0) return "none";
  violations.push({ code: "NETWORK_NOT_ENFORCEABLE", asked: sandbox.network });
  return "none";
}

/** The directory that a relative path of the sandbox starts from, where the cell has it; else `/`, which nobody can write. */
function planWorkingDir(base: string, sandbox: Sandbox, mounts: Plan["mounts"]): string {
  const wanted = join("/", base, sandbox.workingDir);
  const exists = mounts.some((mount) => wanted === mount.path || `${wanted}/`.startsWith(`${mount.path}/`));
  return exists ? wanted : "/";
}

/** The whole environment: the image's search path, the cell's own places, and what the worker file says. Nothing of the host's. */
function planEnvironment(request: PlanRequest, home: string): Record<string, string> {
  const imagePath = request.image.env.find((entry) => entry.startsWith("PATH="))?.slice("PATH=".length);
  return {
    PATH: imagePath ?? DEFAULT_PATH,
    LANG: "C.UTF-8",
    TMPDIR: "/tmp",
    ...request.worker.env,
    HOME: home,
    CORRAL_RUN: request.run.id,
    CORRAL_SOCKET: SOCKET_PATH,
    ...(request.sandbox.rooted ? { CORRAL_ROOT: ROOTED_BASE } : {}),
  };
}

/** `/tmp` and home, and one over each VOLUME of the image, which the Engine would otherwise fill with disk of its own. */
function planTmpfs(request: PlanRequest, home: string, mounts: Plan["mounts"]): PlannedTmpfs[] {
  const { policy } = request.sandbox;
  const exec = policy.hardening.tmpExec;
  const planned: PlannedTmpfs[] = [{ path: "/tmp", bytes: policy.tmpBytes, exec, mode: "1777" }];
  if (home === HOME_PATH) planned.push({ path: home, bytes: policy.homeBytes, exec, mode: "0700" });
  const taken = new Set([...planned.map((tmpfs) => tmpfs.path), ...mounts.map((mount) => mount.path)]);
  for (const path of [...request.image.volumes].sort()) {
    if (!taken.has(path)) planned.push({ path, bytes: policy.tmpBytes, exec, mode: "1777" });
  }
  return planned;
}

function planLimits(sandbox: Sandbox): PlannedLimits {
  const ceiling = sandbox.policy.maxLimits;
  const limits = { ...ceiling, ...sandbox.limits };
  return {
    memoryBytes: limits.memoryBytes,
    cpus: limits.cpus,
    pids: limits.pids,
    nofile: sandbox.policy.nofile,
    fileBytes: limits.diskBytes,
    timeoutMs: limits.timeoutMs,
    outputBytes: limits.outputBytes,
  };
}
