import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { FleetJournal } from "../../../src/fleet/journal/journal.ts";
import type { FleetSpec, ItemRequest, ItemResult } from "../../../src/fleet/model/item.ts";
import type { FleetQueue, NewAttempt, Settlement } from "../../../src/fleet/model/queue.ts";
import type { FleetStore } from "../../../src/fleet/model/store.ts";
import { projectPaths } from "../../../src/state/state-dir.ts";
import { postgresFixture } from "../postgres/postgres-fixture.ts";
import { storeKind } from "./store-kind.ts";

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

/** The store of a test's own: a journal, or whatever else this project of tests is about. */
export interface JournalFixture extends Disposable {
  /** Of the journal. */
  readonly path: string;
  /** Another one at the same database, as another process would have it. Owners called `dead…` are dead. */
  open(self?: string, now?: () => number): Promise<FleetStore>;
  /** Takes a fleet from its owner, as if `owner` had it. */
  giveTo(owner: string): Promise<void>;
  /** How many rows there are in all, of anything that belongs to fleets. */
  rows(): Promise<number>;
}

const TABLES = ["fleets", "items", "requests", "results", "outputs", "tallies", "streams", "attempts", "intents"];

export function journalFixture(): JournalFixture {
  return storeKind() === "sqlite" ? sqliteFixture() : otherFixture();
}

function sqliteFixture(): JournalFixture {
  const stateDir = mkdtempSync(join(tmpdir(), "corral-journal-"));
  const path = projectPaths(stateDir, "/project").fleets;
  return {
    path,
    open: (self = "me", now = Date.now) =>
      FleetJournal.open(path, { self, isDead: (owner) => owner.startsWith("dead"), now }),
    async giveTo(owner) {
      using db = new DatabaseSync(path);
      db.prepare("UPDATE fleets SET owner = ?").run(owner);
    },
    async rows() {
      using db = new DatabaseSync(path, { readOnly: true });
      return TABLES.reduce((sum, table) => sum + Number(db.prepare(`SELECT count(*) AS n FROM ${table}`).get()?.n), 0);
    },
    [Symbol.dispose]: () => rmSync(stateDir, { recursive: true, force: true }),
  };
}

/** Earlier tests of this worker left rows in the same tables. */
function otherFixture(): JournalFixture {
  const { project, open, query } = postgresFixture();
  const counts = TABLES.map((table) => `(SELECT count(*) FROM corral.${table})`).join(" + ");
  const all = async (): Promise<number> => (await query<{ n: number }>(`SELECT ${counts} AS n`))[0]?.n ?? 0;
  let before = 0;
  let isOpened = false;
  return {
    path: "",
    async open(self, now) {
      const store = await open(self, now);
      if (!isOpened) before = await all();
      isOpened = true;
      return store;
    },
    giveTo: async (owner) =>
      void (await query("UPDATE corral.fleets SET owner = $1 WHERE project = $2", [owner, project])),
    rows: async () => (await all()) - before,
    [Symbol.dispose]: () => {},
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
