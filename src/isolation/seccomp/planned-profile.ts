import type { Plan } from "../plan/plan.ts";
import { servingSeccomp } from "./serving-seccomp.ts";
import { startingSeccomp } from "./starting-seccomp.ts";

/** The profile of a plan's cell, as JSON text in the Engine's format. `strictest`: the profile `corral`. */
export function plannedSeccomp(
  { hardening, serves, startsCommands }: Pick<Plan, "hardening" | "serves" | "startsCommands">,
  strictest: string,
): string {
  const watching = hardening.fileWatches ? allowing(strictest, "inotify_init1") : strictest;
  // Files in memory that can be executed.
  const profile = hardening.tmpExec ? allowing(watching, "memfd_create") : watching;
  if (serves === true) return servingSeccomp(profile);
  return startsCommands === true ? startingSeccomp(profile) : profile;
}

interface Rule {
  readonly names: readonly string[];
  readonly action: string;
}

/** The rules of a system call become one that allows it, and what is beside it in them. */
function allowing(profile: string, name: string): string {
  const parsed = JSON.parse(profile) as { readonly syscalls: readonly Rule[] };
  const own = parsed.syscalls.find(({ names }) => names.includes(name));
  if (own === undefined) throw new Error(`the seccomp profile has no rule of ${name}`);
  const others = parsed.syscalls.filter(({ names }) => !names.includes(name));
  return JSON.stringify({ ...parsed, syscalls: [...others, { names: own.names, action: "SCMP_ACT_ALLOW" }] });
}
