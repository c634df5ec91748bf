import type { Statements } from "./connection.ts";
import type { Scope } from "./scope.ts";

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
