import type { Plan } from "../../plan/plan.ts";
import type { Driver } from "../../port/driver.ts";

/** The part of a driver that makes cells. */
export type RuncCells = Pick<Driver, "start" | "startSession" | "startServing">;

/** Why such a plan is for the Engine and not for this driver, in words for people; null if this driver enforces all of it. */
export function notForRunc({ network, hardening }: Pick<Plan, "network" | "hardening">): string | null {
  if (network === "open") return "it has the open network, which is the Engine's own";
  if (hardening.runtime !== undefined) return `it runs under ${hardening.runtime}, a runtime of the Engine's`;
  if (hardening.seccomp !== "corral") return "it has the Engine's own seccomp profile";
  return null;
}
