/**
 * Ends transactions of machines that hold something of Corral's for longer than $1 milliseconds, or that are open for much longer. What an
 * honest machine does is one short statement. The limits of a session are its user's to change, so a coordinator has to look. It may end
 * sessions of roles that it is a member of: `corral work --grants` sees to that.
 */
export const END_HOLDERS = `
  SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
  WHERE a.datname = current_database() AND a.usename <> current_user
    AND pg_has_role(a.usesysid, 'USAGE') AND NOT pg_has_role(a.usesysid, current_user, 'MEMBER')
    AND has_function_privilege(a.usesysid, 'corral.machine_claim(text, text[], text[])', 'EXECUTE')
    AND (a.xact_start < clock_timestamp() - interval '150 seconds' OR EXISTS (
      SELECT FROM pg_locks l
      WHERE l.pid = a.pid AND l.granted AND l.mode <> 'AccessShareLock'
        AND a.xact_start < clock_timestamp() - $1 * interval '1 millisecond'
        AND (l.locktype = 'advisory' OR l.relation IN (
          SELECT c.oid FROM pg_class c WHERE c.relnamespace = (
            SELECT relnamespace FROM pg_class WHERE oid = 'corral.version'::regclass)))))`;
