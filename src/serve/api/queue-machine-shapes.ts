import { z } from "zod";
import { ANY_MACHINE, type MachineNeeds } from "../../declarations/fleet-yaml.ts";
import { fleetId, projectName, time, workerName } from "./shapes.ts";

/** Which machines an order of a fleet asks for: as `machines` in corral.yaml. */
export const machinesOrder = z
  .union([
    z.boolean(),
    z
      .strictObject({
        needs: z.array(workerName.describe("A label")).max(20).optional().describe("Labels that a machine must have"),
        priority: z.int().min(-100).max(100).optional().describe("Items of fleets with a higher one are claimed first"),
        weight: z.int().min(1).max(100).optional().describe("The share beside fleets of the same priority"),
      })
      .meta({ id: "MachineNeeds" }),
  ])
  .describe("Which other machines may run items (corral work): true for all of them, or their labels");

/** Absent: as the project declares it. */
export function machinesOf(
  order: z.output<typeof machinesOrder> | undefined,
  otherwise: MachineNeeds | null,
): MachineNeeds | null {
  if (order === undefined) return otherwise;
  if (order === false) return null;
  const { needs, priority, weight } = order === true ? {} : order;
  const declared = otherwise ?? ANY_MACHINE;
  return {
    needs: needs === undefined ? declared.needs : [...new Set(needs)].toSorted(),
    priority: priority ?? declared.priority,
    weight: weight ?? declared.weight,
  };
}

const known = {
  id: z.string().describe("Differs for machines with the same name"),
  name: z.string().describe("The name that it was started with"),
  labels: z.array(z.string()),
  slots: z.int().describe("Items that it runs at the same time"),
  version: z.string(),
  seenAt: time.describe("When its lease was last renewed"),
  recentRate: z.number().nullable().describe("Items that it delivered per second in the last minute; null if none"),
};
const why = z.string().nullable().describe("Why it takes none of this fleet; null: it does, or has not checked yet");

/** A machine as a fleet has it. */
export const fleetMachine = z
  .looseObject({
    ...known,
    running: z.int().describe("Items of this fleet that it runs"),
    runningInAll: z.int().describe("Items of all fleets that it runs"),
    why,
  })
  .meta({ id: "FleetMachine" });

/** A machine in a list. */
export const listedMachine = z
  .looseObject({
    ...known,
    joinedAt: time,
    running: z.int().describe("Items that it runs, those of projects that the service does not have included"),
    fleets: z.array(
      z.looseObject({ fleet: fleetId, project: projectName, running: z.int(), why }).meta({ id: "MachineFleet" }),
    ),
  })
  .meta({ id: "QueueMachine" });
