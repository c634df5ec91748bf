import { setTimeout as sleep } from "node:timers/promises";
import type { ItemRequest } from "../model/item.ts";
import type { Loaded, LoadOptions, LoadProblem } from "../model/store.ts";
import type { Database } from "./database.ts";
import { type FleetRow, rowOf } from "./fleets.ts";
import { deleteOutputs, discardLoading } from "./forget.ts";
import { outputKey, sortedOutputs } from "./outputs.ts";

const MAX_ITEMS = 10_000_000;
const MAX_KEY_BYTES = 4096;
/** A line of a manifest has at most 1 MiB, but templates may repeat its values. */
const MAX_REQUEST_BYTES = 4 * 1024 ** 2;
const BATCH_ITEMS = 500;
const BATCH_BYTES = 4 * 1024 ** 2;
/** A pause for other processes, because SQLite has no queue of waiting writers. */
const PAUSE_MS = 1;

/**
 * Reads all items of a fleet into the journal, one batch in memory at a time, in ascending order of their index. The fleet
 * may run only when all items are loaded and do not collide. If loading fails, nothing is left of the fleet.
 */
export async function loadItems<Collisions>(
  db: Database,
  name: string,
  items: AsyncIterable<ItemRequest>,
  { collisionsIn, signal }: LoadOptions<Collisions>,
): Promise<Loaded<Collisions>> {
  const fleet = rowOf(db, name);
  if (fleet.state !== "loading") throw new Error(`fleet ${name} is already loaded: it is ${fleet.state}`);
  try {
    const problem =
      (await insertAll(db, fleet, items, signal)) ?? collided(await collisionsIn(sortedOutputs(db, fleet.id)));
    if (problem !== null) {
      await discardLoading(db, name);
      return { ok: false, problem };
    }
    await deleteOutputs(db, fleet.id);
    return { ok: true, total: beginRunning(db, fleet) };
  } catch (error) {
    // The first error is reported. A fleet that could not be deleted stays `loading` and cannot run.
    await discardLoading(db, name).catch(() => {});
    throw error;
  }
}

interface Row {
  readonly request: ItemRequest;
  readonly json: string;
}

async function insertAll(
  db: Database,
  { id }: FleetRow,
  items: AsyncIterable<ItemRequest>,
  signal: AbortSignal | undefined,
): Promise<LoadProblem<never> | null> {
  let batch: Row[] = [];
  let bytes = 0;
  let total = 0;
  for await (const request of items) {
    const row = { request, json: JSON.stringify(request) };
    const problem = unfit(row) ?? (total >= MAX_ITEMS ? { code: "too_many" as const, maxItems: MAX_ITEMS } : null);
    if (problem !== null) return problem;
    batch.push(row);
    total += 1;
    bytes += row.json.length;
    if (batch.length < BATCH_ITEMS && bytes < BATCH_BYTES) continue;
    signal?.throwIfAborted();
    const duplicate = insert(db, id, batch);
    if (duplicate !== null) return duplicate;
    [batch, bytes] = [[], 0];
    await sleep(PAUSE_MS);
  }
  signal?.throwIfAborted();
  return insert(db, id, batch);
}

function unfit({ request: { key, place }, json }: Row): LoadProblem<never> | null {
  const tooLarge = (bytes: number, maxBytes: number): LoadProblem<never> | null =>
    bytes > maxBytes ? { code: "too_large", place, bytes, maxBytes } : null;
  return tooLarge(Buffer.byteLength(key), MAX_KEY_BYTES) ?? tooLarge(Buffer.byteLength(json), MAX_REQUEST_BYTES);
}

/** Null if the whole batch was inserted; otherwise the problem, and nothing was inserted. */
function insert(db: Database, fleet: number, batch: readonly Row[]): LoadProblem<never> | null {
  return db.transaction(() => {
    for (const { request, json } of batch) {
      const item = db.get<{ id: number }>(
        "INSERT INTO items (fleet, position, key) VALUES (?, ?, ?) ON CONFLICT (fleet, key) DO NOTHING RETURNING id",
        fleet,
        request.index,
        request.key,
      );
      if (item === undefined) return duplicateOf(db, fleet, request);
      db.run("INSERT INTO requests (item, json) VALUES (?, ?)", item.id, json);
      for (const path of request.allowWrite ?? [])
        db.run("INSERT INTO outputs (fleet, path, item) VALUES (?, ?, ?)", fleet, outputKey(path), item.id);
    }
    db.run("UPDATE fleets SET total = total + ? WHERE id = ?", batch.length, fleet);
    return null;
  });
}

function duplicateOf(db: Database, fleet: number, { key, place }: ItemRequest): LoadProblem<never> {
  const first = db.get<{ json: string }>(
    "SELECT json FROM requests WHERE item = (SELECT id FROM items WHERE fleet = ? AND key = ?)",
    fleet,
    key,
  );
  const earlier = JSON.parse(first?.json ?? "{}") as Partial<ItemRequest>;
  return { code: "duplicate_key", key, places: [earlier.place ?? "", place] };
}

function collided<Collisions>(collisions: Collisions | null): LoadProblem<Collisions> | null {
  return collisions === null ? null : { code: "collisions", collisions };
}

/** Makes the fleet ready to run. It is on disk with all of its items when this returns. */
function beginRunning(db: Database, { id, name, owner }: FleetRow): number {
  return db.durably(() => {
    const began = db.run(
      "UPDATE fleets SET state = 'running' WHERE id = ? AND state = 'loading' AND owner IS ?",
      id,
      owner,
    );
    if (began === 0) throw new Error(`fleet ${name} was removed while its items were loaded`);
    return rowOf(db, name).total;
  });
}
