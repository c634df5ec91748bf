import { randomBytes } from "node:crypto";
import type { ItemRequest, ItemResult, Reviewed } from "../model/item.ts";
import { type ItemCounts, QueueError } from "../model/queue.ts";
import type { ApplyingItem, DeclaredOutput, LoadedItems, LoadOptions, LoadProblem } from "../model/store.ts";
import { ACTIVE, POSTGRES, readStatement } from "../stored/fleet-reads.ts";
import {
  type ApplyingRow,
  applyingFrom,
  collided,
  duplicateKey,
  type FleetRow,
  itemCounts,
  outputKey,
  pathOf,
  type RequestRow,
  requestBatches,
  reviewedResult,
} from "../stored/rows.ts";
import { type Scope, type Statements, tally } from "./connection.ts";

const CHUNK = 5000;
const TABLES = ["requests", "results", "streams", "attempts", "intents", "deliveries", "questions"];

/** Deletes a fleet whose loading did not finish. False if there is none. */
export async function discardLoading(scope: Scope, name: string): Promise<boolean> {
  return await forget(scope, name, "state = 'loading'");
}

/** Deletes an ended fleet with its items and results. False if there is none. */
export async function forgetEnded(scope: Scope, name: string): Promise<boolean> {
  return await forget(scope, name, "state IN ('done', 'cancelled') AND owner IS NULL AND ended_at IS NOT NULL");
}

/** If it is interrupted, the fleet has fewer items and can be deleted again. */
async function forget({ db, project }: Scope, name: string, which: string): Promise<boolean> {
  const [fleet] = await db.query<{ id: number }>(
    `SELECT id FROM corral.fleets WHERE project = $1 AND name = $2 AND ${which}`,
    [project, name],
  );
  if (fleet === undefined) return false;
  await deleteOutputs(db, fleet.id);
  await inChunks(
    async () =>
      await db.transaction(async (within) => {
        const some = await within.query<{ position: number }>(
          "SELECT position FROM corral.items WHERE fleet = $1 LIMIT $2",
          [fleet.id, CHUNK],
        );
        const positions = some.map(({ position }) => position);
        for (const table of [...TABLES, "items"])
          await within.query(`DELETE FROM corral.${table} WHERE fleet = $1 AND position = ANY ($2::int[])`, [
            fleet.id,
            positions,
          ]);
        return positions.length;
      }),
  );
  return await db.transaction(async (within) => {
    const forgotten = await within.query(`DELETE FROM corral.fleets WHERE id = $1 AND ${which} RETURNING id`, [
      fleet.id,
    ]);
    if (forgotten.length === 0) return false;
    for (const table of ["tallies", "refusals"])
      await within.query(`DELETE FROM corral.${table} WHERE fleet = $1`, [fleet.id]);
    return true;
  });
}

export async function deleteOutputs(db: Statements, fleet: number): Promise<void> {
  await inChunks(async () => {
    const gone = await db.query(
      `DELETE FROM corral.outputs WHERE ctid = ANY (ARRAY(SELECT ctid FROM corral.outputs WHERE fleet = $1 LIMIT 10000))
       RETURNING 1`,
      [fleet],
    );
    return gone.length;
  });
}

/** Repeats `change` until it changes nothing. Each chunk is its own transaction, so that none is long. */
async function inChunks(change: () => Promise<number>): Promise<void> {
  while ((await change()) > 0);
}

/**
 * The owner of the fleets that one open store of this process runs. A process that loses a fleet may take it over again, with another
 * store: its earlier run of the fleet is refused like that of any other process.
 */
export function newStoreOwner(process: string): string {
  return `${process}|store-${randomBytes(6).toString("hex")}`;
}

const FLEETS = readStatement(POSTGRES, "fleets");

export async function fleetRow({ project }: Scope, name: string, db: Statements): Promise<FleetRow | undefined> {
  return (await db.query<FleetRow>(`${FLEETS} AND f.name = $2`, [project, name]))[0];
}

/** For ids that this store returned. @throws Error if the fleet does not exist */
export async function rowOf(scope: Scope, name: string, db: Statements = scope.db): Promise<FleetRow> {
  const row = await fleetRow(scope, name, db);
  if (row === undefined) throw new Error(`there is no fleet ${name} in this project`);
  return row;
}

/** The number of a fleet in the database. @throws Error if it does not exist */
export async function idOf({ db, project }: Scope, name: string): Promise<number> {
  const [row] = await db.query<{ id: number }>("SELECT id FROM corral.fleets WHERE project = $1 AND name = $2", [
    project,
    name,
  ]);
  if (row === undefined) throw new Error(`there is no fleet ${name} in this project`);
  return row.id;
}

/** Of a fleet of the project by its number. */
export async function countsOf({ db, project }: Scope, id: number): Promise<ItemCounts> {
  const [row] = await db.query<FleetRow>(`${FLEETS} AND f.id = $2`, [project, id]);
  if (row === undefined) throw new QueueError("the fleet was removed from the queue");
  return itemCounts(row);
}

export async function isUnsettled(
  { project }: Scope,
  db: Statements,
  { fleet, item, run }: Reviewed,
): Promise<boolean> {
  const rows = await db.query(
    `SELECT 1 FROM corral.items i JOIN corral.fleets f ON f.id = i.fleet
     WHERE f.project = $1 AND f.name = $2 AND i.position = $3 AND i.run = $4 AND i.${ACTIVE}`,
    [project, fleet, item, run],
  );
  return rows.length > 0;
}

/** An item that is no longer pending stays as it is, so the same may be recorded twice. */
export async function recordReview(
  { project }: Scope,
  db: Statements,
  { fleet, item, run, counts }: Reviewed,
): Promise<void> {
  const [row] = await db.query<{ fleet: number; code: string; json: string }>(
    `SELECT i.fleet, i.code, r.json FROM corral.items i JOIN corral.fleets f ON f.id = i.fleet
     JOIN corral.results r ON r.fleet = i.fleet AND r.position = i.position
     WHERE f.project = $1 AND f.name = $2 AND i.position = $3 AND i.run = $4 AND i.state = 'done' AND i.status = 'pending'
     FOR UPDATE OF i`,
    [project, fleet, item, run],
  );
  if (row === undefined) return;
  const after = reviewedResult(JSON.parse(row.json) as ItemResult, counts);
  const { status, error } = after;
  const at = [row.fleet, item];
  const code = error?.code ?? "";
  await db.query("UPDATE corral.items SET status = $3, code = $4 WHERE fleet = $1 AND position = $2", [
    ...at,
    status,
    code,
  ]);
  await db.query("UPDATE corral.results SET json = $3 WHERE fleet = $1 AND position = $2", [
    ...at,
    JSON.stringify(after),
  ]);
  await tally(db, row.fleet, "pending", row.code, 0, -1);
  await db.query("DELETE FROM corral.tallies WHERE fleet = $1 AND count <= 0", [row.fleet]);
  await tally(db, row.fleet, status, code, 0, 1);
}

/** On this machine its process counts; if that is not visible, its lease. */
export async function hasOwnerEnded({ isDead, isAlive }: Scope, db: Statements, owner: string): Promise<boolean> {
  if (isDead(owner)) return true;
  if (isAlive(owner)) return false;
  const living = await db.query("SELECT 1 FROM corral.processes WHERE id = $1 AND lease_until > corral.now_ms()", [
    owner,
  ]);
  return living.length === 0;
}

/** Those whose owner died when their effect had begun. */
export async function applyingIn(db: Statements, fleet: number): Promise<ApplyingItem[]> {
  const rows = await db.query<ApplyingRow>(
    `SELECT i.position AS "index", i.key, i.attempt, i.run, t.json, t.cache_key AS "cacheKey", t.is_printed AS printed,
       t.stdout, t.stderr, r.fields
     FROM corral.items i JOIN corral.intents t USING (fleet, position) LEFT JOIN corral.requests r USING (fleet, position)
     WHERE i.fleet = $1 AND i.state = 'applying' ORDER BY i.position`,
    [fleet],
  );
  return rows.map(applyingFrom);
}

/** Names of fields that reports may ask for. */
const MAX_FIELD_NAMES = 1000;
const OUTPUTS_PAGE = 2000;
/** From so many items on, a plan for fewer would read them all, one after another. */
const MANY = 500;

/**
 * Reads all items of a fleet into the database, one batch in memory at a time, in ascending order of their index. The fleet may run
 * only when all items are loaded and do not collide. If loading fails, nothing is left of the fleet.
 */
export async function loadItems<Collisions>(
  scope: Scope,
  name: string,
  items: AsyncIterable<ItemRequest>,
  { collisionsIn, signal }: LoadOptions<Collisions>,
): Promise<LoadedItems<Collisions>> {
  const fleet = await rowOf(scope, name);
  if (fleet.state !== "loading") throw new Error(`fleet ${name} is already loaded: it is ${fleet.state}`);
  try {
    const problem =
      (await insertAll(scope, fleet.id, items, signal)) ??
      collided(await collisionsIn(sortedOutputs(scope.db, fleet.id)));
    if (problem !== null) {
      await discardLoading(scope, name);
      return { ok: false, problem };
    }
    await deleteOutputs(scope.db, fleet.id);
    return { ok: true, total: await beginRunning(scope, fleet) };
  } catch (error) {
    // The first error is reported. A fleet that could not be deleted stays `loading` and cannot run.
    await discardLoading(scope, name).catch(() => {});
    throw error;
  }
}

async function insertAll(
  { db }: Scope,
  fleet: number,
  items: AsyncIterable<ItemRequest>,
  signal: AbortSignal | undefined,
): Promise<LoadProblem<never> | null> {
  const names = new Set<string>();
  for await (const batch of requestBatches(items, signal)) {
    if (!batch.ok) return batch.problem;
    for (const { request } of batch.rows)
      for (const name of Object.keys(request.fields ?? {})) if (names.size < MAX_FIELD_NAMES) names.add(name);
    if (batch.rows.length === 0) continue;
    const duplicate = await db.transaction((within, again) => insert(within, fleet, batch.rows, again));
    if (duplicate !== null) return duplicate;
  }
  await db.query("UPDATE corral.fleets SET field_names = $1 WHERE id = $2", [JSON.stringify([...names]), fleet]);
  return null;
}

/** Null if the whole batch is there; otherwise the problem. */
async function insert(
  db: Statements,
  fleet: number,
  batch: readonly RequestRow[],
  again: boolean,
): Promise<LoadProblem<never> | null> {
  const positions = batch.map(({ request }) => request.index);
  if (again) {
    const there = "SELECT 1 FROM corral.items WHERE fleet = $1 AND position = $2";
    if ((await db.query(there, [fleet, positions[0]])).length > 0) return null;
  }
  const hashes = batch.map(({ request }) => POSTGRES.keyed(request.key) as Buffer);
  const duplicate = await duplicateIn(db, fleet, batch, hashes);
  if (duplicate !== null) return duplicate;
  await db.query(
    `WITH loaded AS (
       INSERT INTO corral.items (fleet, position, key, key_hash)
       SELECT $1, * FROM unnest($2::int[], $3::text[], $4::bytea[])),
     asked AS (
       INSERT INTO corral.requests (fleet, position, json, fields, writes, attached)
       SELECT $1, * FROM unnest($2::int[], $5::text[], $6::text[], $7::text[], $8::text[]))
     UPDATE corral.fleets SET total = total + cardinality($2::int[]) WHERE id = $1`,
    [
      fleet,
      positions,
      batch.map(({ request }) => request.key),
      hashes,
      batch.map(({ json }) => json),
      batch.map(({ request: { fields } }) => (fields === undefined ? null : JSON.stringify(fields))),
      batch.map(({ request: { allowWrite } }) => (allowWrite === undefined ? null : JSON.stringify(allowWrite))),
      batch.map(({ request }) => attachedTo(request)),
    ],
  );
  const outputs = batch.flatMap(({ request: { index, allowWrite = [] } }) =>
    allowWrite.map((path) => ({ path: outputKey(path), index })),
  );
  if (outputs.length > 0)
    await db.query(
      "INSERT INTO corral.outputs (fleet, path, position) SELECT $1, * FROM unnest($2::bytea[], $3::int[])",
      [fleet, outputs.map(({ path }) => path), outputs.map(({ index }) => index)],
    );
  return null;
}

/** Null: machines fetch nothing for this item. */
function attachedTo({ attachments }: ItemRequest): string | null {
  const digests = attachments.flatMap(({ sent }) => (sent === undefined ? [] : [sent.digest]));
  return digests.length === 0 ? null : digests.join(" ");
}

/** Replaces the requests of failed items of a fleet that this process owns. */
export async function replaceFailed(
  { db, project, self }: Scope,
  name: string,
  requests: AsyncIterable<ItemRequest>,
): Promise<void> {
  for await (const batch of requestBatches(requests, undefined)) {
    if (!batch.ok) throw new Error(`an item of fleet ${name} became too large`);
    await db.query(
      `UPDATE corral.requests r SET json = a.json, attached = a.attached
       FROM unnest($4::int[], $5::text[], $6::text[]) AS a (position, json, attached), corral.items i, corral.fleets f
       WHERE f.project = $1 AND f.name = $2 AND f.owner = $3 AND i.fleet = f.id AND i.position = a.position
         AND i.failed = 1 AND i.state = 'done' AND r.fleet = f.id AND r.position = a.position`,
      [
        project,
        name,
        self,
        batch.rows.map(({ request: { index } }) => index),
        batch.rows.map(({ json }) => json),
        batch.rows.map(({ request }) => attachedTo(request)),
      ],
    );
  }
}

async function duplicateIn(
  db: Statements,
  fleet: number,
  batch: readonly RequestRow[],
  hashes: readonly Buffer[],
): Promise<LoadProblem<never> | null> {
  const earlier = await db.query<{ key: string; json: string }>(
    `SELECT i.key_hash AS key, r.json FROM corral.items i JOIN corral.requests r USING (fleet, position)
     WHERE i.fleet = $1 AND i.key_hash = ANY ($2::bytea[])`,
    [fleet, hashes],
  );
  const places = new Map(earlier.map(({ key, json }) => [Buffer.from(key).toString("hex"), json]));
  for (const [at, { request, json }] of batch.entries()) {
    const key = hashes[at]?.toString("hex") ?? "";
    const first = places.get(key);
    if (first !== undefined) return duplicateKey(first, request);
    places.set(key, json);
  }
  return null;
}

/** All paths that a fleet's items may write, sorted by components. PostgreSQL sorts large sets on disk. */
async function* sortedOutputs(db: Statements, fleet: number): AsyncGenerator<DeclaredOutput, void, undefined> {
  await db.query(
    `WITH sorted AS (
       SELECT ctid, row_number() OVER (ORDER BY path, position) AS rank FROM corral.outputs WHERE fleet = $1)
     UPDATE corral.outputs o SET rank = sorted.rank FROM sorted WHERE o.ctid = sorted.ctid`,
    [fleet],
  );
  for (let after = 0; ; after += OUTPUTS_PAGE) {
    const page = await db.query<{ path: Uint8Array; key: string }>(
      `SELECT o.path, i.key FROM corral.outputs o JOIN corral.items i USING (fleet, position)
       WHERE o.fleet = $1 AND o.rank > $2 AND o.rank <= $3 ORDER BY o.rank`,
      [fleet, after, after + OUTPUTS_PAGE],
    );
    for (const { path, key } of page) yield { path: pathOf(path), key };
    if (page.length < OUTPUTS_PAGE) return;
  }
}

/** Makes the fleet ready to run. */
async function beginRunning(scope: Scope, { id, name }: FleetRow): Promise<number> {
  const { db, self } = scope;
  const began = await db.transaction(async (within, again) => {
    const loaded = again ? "('loading', 'running')" : "('loading')";
    return await within.query(
      `UPDATE corral.fleets SET state = 'running' WHERE id = $1 AND state IN ${loaded} AND owner = $2 RETURNING id`,
      [id, self],
    );
  });
  if (began.length === 0) throw new Error(`fleet ${name} was removed while its items were loaded`);
  const { total } = await rowOf(scope, name);
  if (total >= MANY) await forgetSmallPlans(db, total).catch(() => {});
  return total;
}

/**
 * Processes keep plans, and new ones are made when the table is analyzed. That takes long for a large table, whose plans are good
 * already: so only if it was small. Positions belong to it: a plan that does not know how few items have one reads the whole fleet.
 */
async function forgetSmallPlans(db: Statements, loaded: number): Promise<void> {
  const [known] = await db.query<{ items: number }>(
    "SELECT reltuples::float8 AS items FROM pg_catalog.pg_class WHERE oid = 'corral.items'::regclass",
  );
  if ((known?.items ?? 0) < loaded)
    await db.query("ANALYZE corral.items (fleet, position, state, not_before), corral.requests (fleet, position)");
}
