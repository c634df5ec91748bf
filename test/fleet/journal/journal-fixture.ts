import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FleetJournal } from "../../../src/fleet/journal/journal.ts";
import type { FleetSpec, ItemRequest, ItemResult } from "../../../src/fleet/model/item.ts";
import type { FleetQueue, NewAttempt, Settlement } from "../../../src/fleet/model/queue.ts";
import type { FleetStore } from "../../../src/fleet/model/store.ts";
import { projectPaths } from "../../../src/state/state-paths.ts";

export const SPEC: FleetSpec = {
  version: 1,
  worker: "extract-text",
  policy: null,
  concurrency: 4,
  reuse: "fresh",
  timeoutMs: null,
  retries: 0,
  maxFailures: null,
  cache: true,
  source: "--over inbox/*.pdf",
};

/** The wall clock of the tests that look at it, in milliseconds since 1970. */
export const START = Date.UTC(2026, 0, 1);

/** A journal in a folder of a test's own. */
export interface JournalFixture extends Disposable {
  readonly path: string;
  /** Another one at the same database, as another process would have it. Owners called `dead…` are dead. */
  open(self?: string, now?: () => number): Promise<FleetJournal>;
}

export function journalFixture(): JournalFixture {
  const stateDir = mkdtempSync(join(tmpdir(), "corral-journal-"));
  const path = projectPaths(stateDir, "/project").fleets;
  return {
    path,
    open: (self = "me", now = Date.now) =>
      FleetJournal.open(path, { self, isDead: (owner) => owner.startsWith("dead"), now }),
    [Symbol.dispose]: () => rmSync(stateDir, { recursive: true, force: true }),
  };
}

export function itemAt(index: number): ItemRequest {
  return {
    index,
    key: `doc-${index}.pdf`,
    place: `items.jsonl:${index + 1}`,
    input: { lang: "en" },
    attachments: [{ path: `/inbox/doc-${index}.pdf`, name: "in.pdf" }],
    allowWrite: [`/text/doc-${index}`],
  };
}

export async function* items(count: number, itemOf = itemAt): AsyncGenerator<ItemRequest> {
  for (let index = 0; index < count; index += 1) yield itemOf(index);
}

export const noCollisions = { collisionsIn: async () => null };

/** A fleet of so many items, that runs; answers with its id. */
export async function loadedFleet(journal: FleetStore, count: number): Promise<string> {
  const fleet = await journal.create(SPEC);
  const loaded = await journal.load(fleet, items(count), noCollisions);
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.problem));
  return fleet;
}

/** Attempts `r1`, `r2`, … */
export function attempts(): () => NewAttempt {
  let count = 0;
  return () => {
    count += 1;
    return { run: `r${count}`, cell: null };
  };
}

export function settlementOf(
  index: number,
  more: Partial<ItemResult> = {},
  cacheKey: string | null = null,
): Settlement {
  const result: ItemResult = {
    index,
    key: `doc-${index}.pdf`,
    status: "succeeded",
    run: "r1",
    attempt: 1,
    exitCode: 0,
    output: "text",
    error: null,
    stderrLine: null,
    fields: {},
    startedAt: new Date(START).toISOString(),
    endedAt: new Date(START + 1000).toISOString(),
    durationMs: 1000,
    memoryBytesPeak: null,
    ...more,
  };
  return { result, cacheKey, streams: null };
}

/** Claims everything that is due, and settles it. */
export async function runAll(
  queue: FleetQueue,
  more: (index: number) => Partial<ItemResult> = () => ({}),
): Promise<void> {
  for (;;) {
    const { items: claimed } = await queue.claim(100, attempts());
    if (claimed.length === 0) return;
    await Promise.all(
      claimed.map(({ request: { index }, attempt }) => queue.settle(index, attempt, settlementOf(index, more(index)))),
    );
  }
}
