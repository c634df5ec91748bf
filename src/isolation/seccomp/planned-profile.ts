import type { Plan } from "../plan/plan.ts";
import { servingSeccomp } from "./serving-seccomp.ts";
import { watchingSeccomp } from "./watching-seccomp.ts";

/** The profile of a plan's cell, as JSON text in the Engine's format. `strictest`: the profile `corral`. */
export function plannedSeccomp({ hardening, serves }: Pick<Plan, "hardening" | "serves">, strictest: string): string {
  const profile = hardening.fileWatches ? watchingSeccomp(strictest) : strictest;
  return serves === true ? servingSeccomp(profile) : profile;
}
