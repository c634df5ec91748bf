import type { Plan } from "../plan/plan.ts";
import { servingSeccomp } from "./serving-seccomp.ts";
import { startingSeccomp } from "./starting-seccomp.ts";
import { watchingSeccomp } from "./watching-seccomp.ts";

/** The profile of a plan's cell, as JSON text in the Engine's format. `strictest`: the profile `corral`. */
export function plannedSeccomp(
  { hardening, serves, startsCommands }: Pick<Plan, "hardening" | "serves" | "startsCommands">,
  strictest: string,
): string {
  const profile = hardening.fileWatches ? watchingSeccomp(strictest) : strictest;
  if (serves === true) return servingSeccomp(profile);
  return startsCommands === true ? startingSeccomp(profile) : profile;
}
