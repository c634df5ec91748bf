import { existsSync, readFileSync, realpathSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import type { EngineFacts } from "../../port/images.ts";
import type { OciRuntime, RuncPrograms } from "../model/layout.ts";

/** What cells are made with on this machine. */
export interface Conditions {
  readonly programs: RuncPrograms;
  /** The profile that the Engine's containers have; null if it uses none. */
  readonly apparmor: string | null;
}

export type JudgedGround =
  | { readonly ok: true; readonly conditions: Conditions }
  /** `reason`: for people, what is missing. */
  | { readonly ok: false; readonly reason: string };

/** The names of runtimes in the order in which they are tried, if `CORRAL_OCI_RUNTIME` names none. */
const IN_ORDER = ["crun", "runc"] as const;

/** Which runtimes to try here: the one that is asked for, or those that there are. At least one. */
export function runtimesToTry(asked: string | undefined): readonly string[] {
  if (asked !== undefined && asked !== "") return [asked];
  return IN_ORDER.filter((name) => name === "runc" || trustedProgram(name) !== null);
}

/**
 * Whether cells can be made here without the Engine, as strong as its own. Asks this machine only.
 *
 * @param asked `runc`, which is the Engine's own, `crun`, or the path of either.
 */
export function conditionsFor(facts: EngineFacts, asked = "runc"): JudgedGround {
  const against = objection(facts);
  if (against !== null) return { ok: false, reason: against };
  const runtime = runtimeOf(asked, facts);
  if (runtime === null)
    return { ok: false, reason: `the program ${asked} was not found, or another user than root can write it` };
  if (runtime.kind === "other")
    return { ok: false, reason: `CORRAL_OCI_RUNTIME must be crun, runc or the path of one of them, not ${asked}` };
  const { kind, path } = runtime;
  const init = trustedProgram(facts.init);
  if (init === null)
    return { ok: false, reason: `the program ${facts.init} was not found, or another user than root can write it` };
  // Elsewhere it is a name of a program that has not this option.
  const env = trustedProgram("env");
  // The Engine loads this profile when it starts.
  const apparmor = facts.security.includes("apparmor") ? "docker-default" : null;
  const programs = { runtime: { kind, path }, init, ...(env !== null && basename(env) === "env" ? { env } : {}) };
  return { ok: true, conditions: { programs, apparmor } };
}

function runtimeOf(asked: string, { runc }: EngineFacts): { kind: OciRuntime["kind"] | "other"; path: string } | null {
  if (!/^(crun|runc|\/.*)$/.test(asked)) return { kind: "other", path: asked };
  const path = trustedProgram(asked === "runc" ? (runc ?? "") : asked);
  if (path === null) return null;
  return {
    kind: asked === "runc" ? "runc" : ((/^(crun|runc)/.exec(basename(path))?.[1] as OciRuntime["kind"]) ?? "other"),
    path,
  };
}

/** What an Engine's containers have and this driver cannot give must not be lost without a word. */
const FOREIGN: Readonly<Record<string, string>> = {
  selinux: "the Engine's containers have SELinux labels, which cells of runc would not have",
  userns: "the Engine's containers have users of their own (userns-remap), which cells of runc would not have",
  rootless: "the Engine is rootless",
};

function objection({ isLocal, security, runc }: EngineFacts): string | null {
  if (process.geteuid?.() !== 0) return "Corral does not run as root";
  if (!isLocal) return "the Engine is not reached over a Unix socket of this machine";
  for (const name of security) if (FOREIGN[name] !== undefined) return FOREIGN[name];
  if (runc === null) return "the Engine's default runtime is not runc";
  return missingCgroups();
}

/** Every limit of a cell is one of a control group. */
const CONTROLLERS = ["cpu", "memory", "pids"] as const;
const CGROUPS = "/sys/fs/cgroup";

/** With version 2, those that the root group has; with version 1, each is a hierarchy of its own. */
export function missingCgroups(root = CGROUPS): string | null {
  const unified = textOf(join(root, "cgroup.controllers"))?.trim().split(" ");
  const has = (name: string): boolean => unified?.includes(name) ?? existsSync(join(root, name, "cgroup.procs"));
  const missing = CONTROLLERS.filter((name) => !has(name));
  return missing.length === 0 ? null : `the kernel has no control groups for ${missing.join(", ")}`;
}

function textOf(file: string): string | null {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return null;
  }
}

/** Where an Engine finds the programs that it starts. */
const PLACES = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/libexec/docker"];

/** The program itself, behind all links. Null if there is none, or if anyone but root could replace it. */
export function trustedProgram(name: string): string | null {
  const named = name.startsWith("/") ? [name] : name === "" ? [] : PLACES.map((place) => join(place, name));
  const first = named.find((path) => existsSync(path));
  if (first === undefined) return null;
  const path = realpathSync(first);
  return statSync(path).isFile() && isOfRoot(path) ? path : null;
}

function isOfRoot(path: string): boolean {
  const { uid, mode } = statSync(path);
  if (uid !== 0 || (mode & 0o022) !== 0) return false;
  return path === "/" || isOfRoot(dirname(path));
}
