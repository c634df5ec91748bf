import type { FleetRecord } from "../model/fleet-record.ts";
import type { TakenOver } from "../model/store.ts";

type Refused = Extract<TakenOver, { ok: false }>;

interface OwnedFleet extends Pick<FleetRecord, "owner"> {
  readonly name: string;
  readonly state: string;
  readonly ended_at: number | null;
}

/** Why a fleet cannot be taken over; null: it can. `retries`: a fleet that is done can be, and one that is cancelled cannot. */
export function whyNotTaken(
  { name, state, owner, ended_at }: OwnedFleet,
  isDead: (owner: string) => boolean,
  retries: boolean,
): Refused | null {
  if (retries && state === "cancelled")
    return refused("cancelled", `fleet ${name} was cancelled: its failed items can be retried as a new fleet`);
  if (ended_at !== null && !retries) return refused("over", `fleet ${name} is ${state}: no item is left to run`);
  if (owner !== null && !isDead(owner))
    return refused("owned", `another process ${state === "loading" ? "loads" : "runs"} fleet ${name}`, owner);
  if (state === "loading")
    return refused(
      "never_loaded",
      `the process that loaded the items of fleet ${name} ended before it had all of them. No item ran: start a new fleet`,
    );
  return null;
}

export function unknownFleet(name: string): Refused {
  return refused("unknown", `there is no fleet ${name} in this project`);
}

function refused(code: Refused["code"], reason: string, owner: string | null = null): Refused {
  return { ok: false, code, reason, owner };
}
