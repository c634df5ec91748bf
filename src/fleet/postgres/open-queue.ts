import { createHmac } from "node:crypto";
import { currentOwner, formatOwner, isAlive, isDead, loadSealKey, parseOwner } from "../../state/owner.ts";
import { projectPaths } from "../../state/state-paths.ts";
import type { WhileAway } from "../model/queue.ts";
import { processOf } from "../stored/rows.ts";
import { SCHEMA } from "./connection.ts";
import { newStoreOwner } from "./fleets.ts";
import { PERSISTENCE } from "./lost-connection.ts";
import { PostgresStore } from "./postgres-store.ts";
import { isOpenToOthers, serverText } from "./queue-url.ts";
import { connectServer } from "./server.ts";

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
    project,
    self: newStoreOwner(formatOwner(self)),
    database: serverText(url),
    begunDir: projectPaths(stateDir, projectDir).begun,
    isDead: asked(isDead),
    isAlive: asked(isAlive),
  });
}

export interface ExaminedQueue {
  readonly detail: string;
  /** What its administrator should change, as sentences. */
  readonly warnings: readonly string[];
}

/** What a PostgreSQL server says of itself. @throws QueueError if it does not answer, refuses, or is newer */
export async function examineQueue(url: string): Promise<ExaminedQueue> {
  await using db = await connectServer(url);
  const [row] = await db.query<{
    version: string;
    tls: boolean;
    corral: boolean;
    vacuums: boolean;
    prepares: boolean;
    own: string;
  }>(
    `SELECT current_setting('server_version') AS version, to_regclass('corral.version') IS NOT NULL AS corral,
       coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false) AS tls,
       current_setting('autovacuum')::boolean AS vacuums, current_setting('max_prepared_transactions')::integer > 0 AS prepares,
       coalesce((SELECT string_agg(DISTINCT split_part(c, '=', 1), ', ') FROM pg_db_role_setting s, unnest(s.setconfig) AS c
         WHERE s.setrole = (SELECT oid FROM pg_roles WHERE rolname = session_user)
           AND split_part(c, '=', 1) NOT IN ('search_path', 'enable_seqscan', 'jit')), '') AS own`,
  );
  const { version = "", tls = false, corral = false, vacuums = true, prepares = false, own = "" } = row ?? {};
  const unlimited = corral ? await db.query<{ rolname: string }>(UNLIMITED) : [];
  const names = unlimited.map(({ rolname }) => rolname).join(", ");
  return {
    detail: `PostgreSQL ${version}, ${tls ? "over TLS" : "without TLS"}, ${corral ? "with Corral's tables" : "without Corral's tables: the first fleet makes them"}`,
    warnings: [
      ...(isOpenToOthers(url)
        ? ["no TLS: who can reach the network between can read and change all. Use sslmode=verify-full"]
        : []),
      ...(vacuums
        ? []
        : ["autovacuum is off: the disk fills with what was removed or rolled back. Set autovacuum = on"]),
      ...(prepares
        ? ["max_prepared_transactions is not 0: a machine could leave one that Corral cannot end. Set it to 0"]
        : []),
      ...(own === ""
        ? []
        : [`this user has settings of its own (${own}), of which Corral uses no others than it sets itself`]),
      ...(names === ""
        ? []
        : [`machines may take all connections: run ALTER ROLE … CONNECTION LIMIT 50 for the role ${names}`]),
    ],
  };
}

/** Roles of machines that may take all connections. Those of coordinators own the tables. */
const UNLIMITED = `
  SELECT rolname FROM pg_roles
  WHERE rolcanlogin AND NOT rolsuper AND rolconnlimit < 0
    AND has_function_privilege(oid, 'corral.machine_claim(text, text[], text[])', 'EXECUTE')
    AND NOT pg_has_role(oid, (SELECT relowner FROM pg_class WHERE oid = 'corral.version'::regclass), 'MEMBER')
  ORDER BY rolname LIMIT 10`;
