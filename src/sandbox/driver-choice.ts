/**
 * What chooses a driver. `auto`: the Engine for runs, and runc for fresh items of fleets if it can make cells here. `prefer-runc`: runc for both if it
 * can. One of the drivers alone is never replaced. `bwrap` is never chosen unless it is asked for: its cells have less. `seatbelt` makes no cells at all:
 * a command is a process of the user's own, on macOS, and a policy has to allow that.
 */
export const DRIVER_CHOICES = ["auto", "engine", "runc", "prefer-runc", "bwrap", "seatbelt"] as const;
export type DriverChoice = (typeof DRIVER_CHOICES)[number];

/** The choice that is both; null if there is none. */
export function driverOfBoth(one: DriverChoice, other: DriverChoice): DriverChoice | null {
  if (one === other || other === "auto") return one;
  if (one === "auto") return other;
  return [one, other].every((choice) => choice === "runc" || choice === "prefer-runc") ? "runc" : null;
}
