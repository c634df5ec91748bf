import type { Statements } from "./connection.ts";

/** The roles of machines whose sessions this user may end: it is a member of them (`corral work --grants`). */
const ROLES = `
  SELECT coalesce(array_agg(r.oid::bigint), '{}') AS roles, (SELECT oid::bigint FROM pg_database WHERE datname = current_database()) AS here
  FROM pg_roles r
  WHERE pg_has_role(r.oid, 'USAGE') AND NOT pg_has_role(r.oid, current_user, 'MEMBER')
    AND has_function_privilege(r.oid, 'corral.machine_claim(text, text[], text[])', 'EXECUTE')`;

/** It reads no table that all databases share: to lock one takes room where there may be none. */
const END = `
  SELECT pg_terminate_backend(a.pid) FROM pg_stat_get_activity(NULL) a JOIN (
    SELECT l.pid, count(*) AS locks, bool_or(l.locktype = 'advisory') AS has_advisory,
      bool_or(l.mode <> 'AccessShareLock' AND l.database = $4::bigint::oid AND l.relation IN (
        SELECT c.oid FROM pg_class c WHERE c.relnamespace = (
          SELECT relnamespace FROM pg_class WHERE oid = 'corral.version'::regclass))) AS has_ours
    FROM pg_lock_status() l WHERE l.granted GROUP BY l.pid) AS held USING (pid)
  WHERE a.usesysid::bigint = ANY ($3)
    AND (held.has_advisory OR held.locks > $2
      OR a.xact_start < clock_timestamp() - interval '150 seconds'
      OR a.xact_start < clock_timestamp() - $1 * interval '1 millisecond'
        -- A session that listens and ends no transaction keeps the queue of notices, which all databases of the server share.
        AND (held.has_ours OR pg_notification_queue_usage() > 0.001))`;

/** Of one session. An honest one has some tens for a moment. */
const MOST_LOCKS = 1000;
/** When the server has no room for more locks: then fifty connections of a machine have no more than half of what it has by default. */
const FEWEST_LOCKS = 50;

/**
 * Ends sessions of machines that hold something of Corral's in a transaction for too long, that keep a transaction open for much longer, or
 * that hold an advisory lock or very many locks: all sessions of a server share one table of them. What an honest machine does is one
 * short statement. The limits of a session are its user's to change, so a coordinator has to look, also at what a machine does in another
 * database of the server.
 */
export class Holders {
  /** What was last known: while the server has no room for locks, it cannot be asked. */
  #known: { readonly roles: readonly number[]; readonly here: number } = { roles: [], here: 0 };

  /** Returns how many it ended. `heldMs`: for how long they may hold something of Corral's. */
  async end(db: Statements, heldMs: number, isCrowded = false): Promise<number> {
    const asked = db.query<{ roles: number[]; here: number }>(ROLES);
    const [row] = await (isCrowded ? asked.catch(() => []) : asked);
    this.#known = row ?? this.#known;
    const { roles, here } = this.#known;
    const most = isCrowded ? FEWEST_LOCKS : MOST_LOCKS;
    return (await db.query(END, [heldMs, most, roles, here])).length;
  }
}
