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
      AND (held.has_ours OR pg_notification_queue_usage() > 0.001))
