/**
 * A process that loads a fleet or runs one, for tests to run beside others and to kill. Its one argument is JSON, an
 * {@link Order}. Prints a line for each thing that the journal has promised it: `fleet ID`, `loaded`, `claimed INDEX RUN`,
 * `settled INDEX RUN`, `refused CODE`, `left` and at last `ended` for what it was ordered to do.
 */
import { randomBytes } from "node:crypto";
import { writeSync } from "node:fs";
import { FleetJournal } from "../../../src/fleet/journal/journal.ts";
import type { ItemRequest } from "../../../src/fleet/model/item.ts";
import type { ClaimedItem, FleetQueue } from "../../../src/fleet/model/queue.ts";
import { currentOwner, formatOwner, isDead, parseOwner } from "../../../src/state/owner.ts";
import { itemAt, items, SPEC, settlementOf } from "./journal-fixture.ts";

export interface Order {
  readonly path: string;
  /** Loads so many, and runs them; absent: takes `fleet` over. */
  readonly load?: number;
  /** Characters of the input of each item. */
  readonly inputSize?: number;
  readonly fleet?: string;
  /** How many it runs side by side. */
  readonly width: number;
  /** How many it claims at once; absent: one. */
  readonly claims?: number;
}

/** Written at once, so that no line is lost with the process that wrote it. */
function tell(...words: (string | number)[]): void {
  writeSync(1, `${words.join(" ")}\n`);
}

async function loaded(journal: FleetJournal, { load = 0, inputSize = 0 }: Order): Promise<string> {
  const fleet = await journal.create(SPEC);
  tell("fleet", fleet);
  const itemOf = (index: number): ItemRequest => ({ ...itemAt(index), input: "x".repeat(inputSize) });
  await journal.load(fleet, items(load, itemOf), {
    collisionsIn: async (sorted) => ((await drained(sorted)) === load ? null : "lost"),
  });
  tell("loaded");
  return fleet;
}

async function drained(sorted: AsyncIterable<unknown>): Promise<number> {
  let count = 0;
  for await (const _ of sorted) count += 1;
  return count;
}

async function takenOver(journal: FleetJournal, fleet: string): Promise<boolean> {
  const resumed = await journal.takeOver(fleet);
  if (!resumed.ok) {
    tell("refused", resumed.code);
    return false;
  }
  for (const item of resumed.running) {
    tell("left", item.index, item.run);
    await journal.fenced(fleet, item);
  }
  return true;
}

async function runItems(journal: FleetJournal, fleet: string, claims: number): Promise<void> {
  const queue = await journal.queue(fleet);
  for (;;) {
    const { items } = await queue.claim(claims, () => ({ run: randomBytes(6).toString("hex"), cell: null }));
    if (items.length === 0) return;
    await Promise.all(items.map((item) => runItem(queue, item)));
  }
}

async function runItem(queue: FleetQueue, { request: { index }, attempt, run }: ClaimedItem): Promise<void> {
  tell("claimed", index, run);
  const { ok } = await queue.settle(index, attempt, settlementOf(index, { run, attempt }));
  tell(ok ? "settled" : "fenced", index, run);
}

const order = JSON.parse(process.argv[2] ?? "") as Order;
const self = currentOwner();
const isGone = (text: string): boolean => {
  const owner = parseOwner(text);
  return owner !== null && isDead(owner, self);
};
await using journal = await FleetJournal.open(order.path, { self: formatOwner(self), isDead: isGone });
const fleet = order.fleet ?? (await loaded(journal, order));
if (order.fleet === undefined || (await takenOver(journal, fleet))) {
  await Promise.all(Array.from({ length: order.width }, () => runItems(journal, fleet, order.claims ?? 1)));
  tell("ended", (await journal.end(fleet)) ?? "not");
}
