import { MAX_NOTICED_MS, type Step } from "./simulated-database.ts";
import type { Ledger } from "./simulated-fleet.ts";

/** Of the database when all is quiet. */
export interface Ended {
  readonly fleets: readonly {
    readonly id: number;
    readonly name: string;
    readonly state: string;
    readonly total: number;
  }[];
  readonly items: readonly {
    readonly fleet: number;
    readonly position: number;
    readonly state: string;
    readonly status: string | null;
    readonly attempt: number;
    readonly run: string | null;
    readonly results: number;
  }[];
  readonly tallied: readonly { readonly fleet: number; readonly count: number }[];
  /** Rows that belong to items which are not done. */
  readonly left: number;
}

/** A coordinator without troubles looks for items of dead machines within this time. */
const RECLAIMED_WITHIN_MS = 4000;

interface Lease {
  readonly until: number;
  readonly labels: readonly string[];
  readonly isMachine: boolean;
  /** The process that it belongs to. */
  readonly who: string;
}

interface FleetRow {
  readonly state: string;
  readonly owner: string | null;
  readonly agreement: string | null;
  readonly needs: readonly string[] | null;
}

interface ItemRow {
  readonly fleet: number;
  readonly position: number;
  readonly state: string;
  readonly attempt: number;
  readonly owner: string | null;
}

/**
 * What the steps of a database and what happened outside of it show of broken promises, in words. `troubled`: when a coordinator of any
 * fleet was last not well before a time.
 */
export function brokenPromises(
  steps: readonly Step[],
  ledger: Ledger,
  ended: Ended,
  troubled: (before: number) => number,
): string[] {
  return [...brokenSteps(steps, troubled), ...brokenEnd(ledger, ended)];
}

function* brokenSteps(steps: readonly Step[], troubled: (before: number) => number): Generator<string> {
  const leases = new Map<string, Lease>();
  const fleets = new Map<number, FleetRow & { readonly ownedSince: number }>();
  for (const { who, at, of, row, was } of steps) {
    if (of === "lease") {
      const { id, lease_until, labels, is_machine } = row as {
        id: string;
        lease_until: number;
        labels: string[];
        is_machine: boolean;
      };
      leases.set(id, { until: lease_until, labels, isMachine: is_machine, who: leases.get(id)?.who ?? who });
      continue;
    }
    if (of === "fleet") {
      const { id, ...fleet } = row as unknown as FleetRow & { id: number };
      const known = fleets.get(id);
      fleets.set(id, { ...fleet, ownedSince: known?.owner === fleet.owner ? known.ownedSince : at });
      continue;
    }
    const [now, before] = [row as unknown as ItemRow, was as unknown as ItemRow];
    const fleet = fleets.get(now.fleet);
    const step = `${before.state} -> ${now.state}`;
    const say = (what: string): string =>
      `${at % 86_400_000} ms, ${who}: item ${now.fleet}/${now.position}, attempt ${before.attempt} -> ${now.attempt}, ${step}: ${what}`;
    const isAlive = (id: string | null): boolean => (leases.get(id ?? "")?.until ?? 0) > at;
    const isMachine = (id: string | null): boolean => leases.get(id ?? "")?.isMachine === true;
    const isOwner = fleet?.owner === who;

    if (step === "queued -> running" || step === "queued -> away") {
      if (now.attempt !== before.attempt + 1) yield say("a claim is one new attempt");
      if (fleet?.state !== "running") yield say(`it was claimed of a fleet that is ${fleet?.state}`);
      if (step === "queued -> running" && !isOwner) yield say("only the owner runs items itself");
      if (step === "queued -> running") continue;
      const lease = leases.get(now.owner ?? "");
      if (!isAlive(now.owner) || lease?.who !== who) yield say("it was claimed without a lease");
      if (fleet?.agreement == null) yield say("it was claimed of a fleet that is not offered");
      if (fleet?.needs?.some((need) => !lease?.labels.includes(need))) yield say("the machine lacks a label");
      if (!isAlive(fleet?.owner ?? null)) yield say("its coordinator has no lease");
      continue;
    }
    if (now.attempt !== before.attempt) yield say("an attempt begins with a claim alone");
    if (step === "queued -> done") {
      if (fleet?.state !== "cancelled") yield say("an item that waits ends only with its fleet");
    } else if (step === "away -> delivered") {
      if (!isAlive(before.owner)) yield say("it was delivered after the end of the lease");
      if (leases.get(before.owner ?? "")?.who !== who) yield say("another machine delivered it");
    } else if (step === "away -> queued" && isMachine(before.owner) && leases.get(before.owner ?? "")?.who === who) {
      // Given back, or left.
    } else if (step === "away -> queued") {
      if (!isOwner) yield say("only the owner of the fleet queues it again");
      if (isAlive(before.owner)) yield say("it was taken from a machine with a lease");
      const until = leases.get(before.owner ?? "")?.until ?? 0;
      // The last answer of a coordinator's troubles may be lost.
      const since = Math.max(until, fleet?.ownedSince ?? 0, troubled(at) + MAX_NOTICED_MS);
      if (at - since > RECLAIMED_WITHIN_MS) yield say(`it waited for ${at - since} ms after the end of the lease`);
    } else if (/^(running|delivered) -> (queued|applying|done)$|^applying -> done$/.test(step)) {
      if (!isOwner) yield say(`only the owner of the fleet settles, and that is ${fleet?.owner}`);
    } else if (before.state !== now.state) yield say("there is no such step");
  }
}

function* brokenEnd(ledger: Ledger, { fleets, items, tallied, left }: Ended): Generator<string> {
  for (const bug of ledger.bugs) yield `a bug: ${bug instanceof Error ? bug.stack : String(bug)}`;
  for (const { id, name, state, total } of fleets) {
    if (state !== "done" && state !== "cancelled") yield `fleet ${id} does not end: it is ${state}`;
    const own = items.filter(({ fleet }) => fleet === id);
    if (own.length !== total) yield `fleet ${id} has ${own.length} items of ${total}`;
    const tally = tallied.filter(({ fleet }) => fleet === id).reduce((sum, { count }) => sum + count, 0);
    if (tally !== own.filter((item) => item.state === "done").length) yield `fleet ${id} counts ${tally} results`;
    for (const { position, status, attempt, run, results, state: at } of own) {
      const say = (what: string): string => `item ${id}/${position} (${at}, ${status}, attempt ${attempt}): ${what}`;
      if (at !== "done") yield say("it did not end");
      if (at === "done" && results !== (status === "cancelled" ? 0 : 1)) yield say(`it has ${results} results`);
      const effects = ledger.effects.filter((effect) => effect.fleet === name && effect.index === position);
      if (effects.length !== (status === "succeeded" ? 1 : 0))
        yield say(
          `its effects were applied ${effects.length} times, of the attempts ${effects.map((one) => one.attempt)}`,
        );
      const other = effects.find((effect) => effect.run !== run || effect.attempt !== attempt);
      if (other !== undefined) yield say(`the effect is that of attempt ${other.attempt}`);
      const told = ledger.told.filter(({ fleet, result }) => fleet === name && result.index === position);
      if (told.length > 1) yield say(`it was reported ${told.length} times`);
      if (told.some(({ result }) => result.status !== status))
        yield say(`it was reported as ${told[0]?.result.status}`);
    }
  }
  if (left > 0) yield `${left} rows of attempts are left`;
}
