import type { Plan } from "../plan/plan.ts";
import { executingSeccomp, watchingSeccomp } from "./loosened-seccomp.ts";
import { servingSeccomp } from "./serving-seccomp.ts";
import { startingSeccomp } from "./starting-seccomp.ts";

/** The profile of a plan's cell, as JSON text in the Engine's format. `strictest`: the profile `corral`. */
export function plannedSeccomp(
  { hardening, serves, startsCommands }: Pick<Plan, "hardening" | "serves" | "startsCommands">,
  strictest: string,
): string {
  const watching = hardening.fileWatches ? watchingSeccomp(strictest) : strictest;
  const profile = hardening.tmpExec ? executingSeccomp(watching) : watching;
  if (serves === true) return servingSeccomp(profile);
  return startsCommands === true ? startingSeccomp(profile) : profile;
}
