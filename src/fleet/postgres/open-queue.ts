import { createHmac } from "node:crypto";
import { currentOwner, formatOwner, isAlive, isDead, loadSealKey, parseOwner } from "../../state/owner.ts";
import { projectPaths } from "../../state/state-paths.ts";
import type { WhileAway } from "../model/while-away.ts";
import { SCHEMA } from "./connection.ts";
import { PERSISTENCE } from "./lost-connection.ts";
import { PostgresStore } from "./postgres-store.ts";
import { placeOf } from "./queue-url.ts";
import { connectServer } from "./server.ts";
import { newStoreOwner, processOf } from "./store-owner.ts";

/**
 * Opens the fleets of a project in a PostgreSQL database. They belong to a state directory, known by its key: what their items
 * changed waits there, and another one would take it for decided. @throws QueueError if it does not answer, refuses, or is newer
 */
export async function openQueue(
  url: string,
  stateDir: string,
  projectDir: string,
  away: WhileAway | null = null,
): Promise<PostgresStore> {
  const self = currentOwner();
  const machine = self.machine.replace(/(?<=.)@.*/, "");
  const key = await loadSealKey(stateDir);
  const project = createHmac("sha256", key).update(["queue", machine, projectDir].join("\0")).digest("hex");
  const asked = (whether: typeof isDead) => (name: string) => {
    const owner = parseOwner(processOf(name));
    return owner !== null && whether(owner, self);
  };
  return await PostgresStore.open(await connectServer(url, SCHEMA, { ...PERSISTENCE, away }), {
    ...{ project, self: newStoreOwner(formatOwner(self)), database: placeOf(url) },
    begunDir: projectPaths(stateDir, projectDir).begun,
    isDead: asked(isDead),
    isAlive: asked(isAlive),
  });
}

/** What a PostgreSQL server says of itself. @throws QueueError if it does not answer, refuses, or is newer */
export async function examineQueue(url: string): Promise<string> {
  await using db = await connectServer(url);
  const [row] = await db.query<{ version: string; tls: boolean; corral: boolean }>(
    `SELECT current_setting('server_version') AS version, to_regclass('corral.version') IS NOT NULL AS corral,
       coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false) AS tls`,
  );
  const { version = "", tls = false, corral = false } = row ?? {};
  return `PostgreSQL ${version}, ${tls ? "over TLS" : "without TLS"}, ${corral ? "with Corral's tables" : "without Corral's tables: the first fleet makes them"}`;
}
