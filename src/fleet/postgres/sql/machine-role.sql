-- The rights of machines in the database of the queue, for Corral @VERSION@. Run this as the owner of Corral's tables
-- when they are there (`corral fleet ls` makes them), and again after each upgrade:
--   corral work --grants @ROLE@ | psql -v ON_ERROR_STOP=1 OWNER_ADDRESS
-- A new role has no password yet. In psql:
--   \password @ROLE@
BEGIN;
-- A machine may have made functions that this would call with your rights.
SET LOCAL search_path = pg_catalog, pg_temp;
DO $do$ BEGIN
  IF to_regclass('corral.version') IS NULL THEN
    RAISE EXCEPTION 'Corral''s tables are not there yet: run `corral fleet ls` with the address of their owner, then this again';
  END IF;
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = '@ROLE@') THEN
    -- Each machine has up to 5 connections.
    CREATE ROLE "@ROLE@" LOGIN CONNECTION LIMIT @CONNECTIONS@;
  END IF;
  IF (SELECT rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication FROM pg_catalog.pg_roles WHERE rolname = '@ROLE@')
    OR EXISTS (SELECT FROM pg_catalog.pg_roles g WHERE pg_has_role('@ROLE@', g.oid, 'MEMBER')
      AND (g.oid = (SELECT relowner FROM pg_catalog.pg_class WHERE oid = 'corral.version'::regclass)
        OR g.rolname IN ('pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files', 'pg_signal_backend',
          'pg_create_subscription', 'pg_maintain'))) THEN
    RAISE EXCEPTION 'the role % has, or can get, rights that no machine may have: those of a superuser or of the owner of Corral''s tables, CREATEROLE, CREATEDB, REPLICATION, or files and sessions of the server. Use another one for machines', '@ROLE@';
  END IF;
  IF NOT has_database_privilege('@ROLE@', current_database(), 'CONNECT') THEN
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO "@ROLE@"', current_database());
  END IF;
END $do$;
-- A coordinator ends transactions of machines that stay open: for that it is a member of their role.
DO $do$ DECLARE
  tables_owner regrole := (SELECT relowner FROM pg_catalog.pg_class WHERE oid = 'corral.version'::regclass);
BEGIN
  IF NOT pg_has_role(tables_owner, '@ROLE@', 'USAGE') THEN EXECUTE format('GRANT "@ROLE@" TO %s', tables_owner); END IF;
END $do$;
-- A role may write its own settings, so any machine that uses it may have. Those that a pooler needs stay, and those of one
-- transaction, which have no effect here: newer servers reset them with all others alone.
DO $do$ DECLARE
  machines oid := (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = '@ROLE@');
  setting record;
BEGIN
  FOR setting IN SELECT d.datname, split_part(c, '=', 1) AS name FROM pg_catalog.pg_db_role_setting s
    LEFT JOIN pg_catalog.pg_database d ON d.oid = s.setdatabase, unnest(s.setconfig) AS c
    WHERE s.setrole = machines AND c NOT IN (@POOLER_SETTINGS@) AND c NOT LIKE 'transaction\_%'
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_settings p WHERE p.name = split_part(c, '=', 1) AND p.context <> 'user') LOOP
    BEGIN
      EXECUTE format('ALTER ROLE %I %s RESET %I', '@ROLE@', 'IN DATABASE ' || quote_ident(setting.datname), setting.name);
    EXCEPTION WHEN insufficient_privilege THEN
      RAISE EXCEPTION 'the role % has set % for itself, and this user may not reset it: run this as a superuser, or with CREATEROLE', '@ROLE@', setting.name;
    END;
  END LOOP;
  IF (SELECT rolconnlimit FROM pg_catalog.pg_roles WHERE oid = machines) < 0 THEN
    RAISE WARNING 'the role % may take all connections of the server: ALTER ROLE "@ROLE@" CONNECTION LIMIT @CONNECTIONS@', '@ROLE@';
  END IF;
  IF EXISTS (SELECT FROM pg_catalog.pg_shdepend WHERE refobjid = machines AND refclassid = 'pg_catalog.pg_authid'::regclass
    AND deptype = 'o') THEN
    RAISE WARNING 'the role % owns objects in a database of this server. Machines need none: look at them, then DROP OWNED BY "@ROLE@" there, and run this again', '@ROLE@';
  END IF;
END $do$;
REVOKE ALL ON SCHEMA corral FROM "@ROLE@";
REVOKE ALL ON ALL TABLES IN SCHEMA corral FROM "@ROLE@";
REVOKE ALL ON ALL SEQUENCES IN SCHEMA corral FROM "@ROLE@";
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA corral FROM "@ROLE@";
@GRANTS@
DO $do$ DECLARE
  too_much text;
  ours oid := (SELECT relnamespace FROM pg_catalog.pg_class WHERE oid = 'corral.version'::regclass);
BEGIN
  SELECT string_agg(DISTINCT found.what, ', ') INTO too_much FROM pg_catalog.pg_roles g, LATERAL (
    SELECT format('%s on %s', r.name, c.oid::regclass) AS what FROM pg_catalog.pg_class c,
      unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) AS r (name)
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S') AND c.relnamespace = ours
      AND NOT (r.name = 'SELECT' AND c.oid = 'corral.version'::regclass)
      AND (has_table_privilege(g.oid, c.oid, r.name)
        OR (r.name IN ('SELECT', 'INSERT', 'UPDATE') AND has_any_column_privilege(g.oid, c.oid, r.name)))
    UNION ALL SELECT format('EXECUTE on %s', p.oid::regprocedure) FROM pg_catalog.pg_proc p
    WHERE p.pronamespace = ours AND has_function_privilege(g.oid, p.oid, 'EXECUTE')
      AND p.oid NOT IN (@FUNCTIONS@)
    UNION ALL SELECT 'CREATE on the schema' WHERE has_schema_privilege(g.oid, ours, 'CREATE')) AS found
  WHERE pg_has_role('@ROLE@', g.oid, 'MEMBER');
  IF too_much IS NOT NULL THEN
    RAISE EXCEPTION 'the role % has more rights than machines need, by a group, by all users, or by another user''s grant: %. Use a new role', '@ROLE@', too_much;
  END IF;
END $do$;
COMMIT;
