CREATE TABLE corral.limits (
  is_one boolean PRIMARY KEY DEFAULT true CHECK (is_one),
  machines_per_role integer NOT NULL DEFAULT 1000,
  bytes_per_hour bigint NOT NULL DEFAULT 107374182400 CHECK (bytes_per_hour BETWEEN 0 AND 1000000000000)
);
INSERT INTO corral.limits DEFAULT VALUES;

ALTER TABLE corral.processes ADD COLUMN role text NOT NULL DEFAULT '';
ALTER TABLE corral.items ADD COLUMN claimed_at bigint;

-- One row for each role that machines use: to count them, its row is locked, and no other role waits for it.
CREATE TABLE corral.joined (role text PRIMARY KEY);

-- What a role has written in this hour, also what it rolled back: of all that a transaction changes, only sequences keep that. Its value is
-- the hour, and then the bytes in 13 digits. Each role has its own from corral work --grants: one that its transaction makes would go with it.
CREATE FUNCTION corral.admit_role(new_role text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  counter text := 'written_by_' || (SELECT oid FROM pg_roles WHERE rolname = new_role);
BEGIN
  IF to_regclass('corral.' || counter) IS NULL THEN EXECUTE format('CREATE SEQUENCE corral.%I', counter); END IF;
END $$;

-- Before anything is written: what is refused or rolled back afterwards stays on the disk until it is vacuumed.
CREATE FUNCTION corral.count_written(bytes bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  hour bigint := corral.now_ms() / 3600000 * 10000000000000;
  counter regclass;
  total bigint;
BEGIN
  IF bytes IS NULL THEN RAISE EXCEPTION 'this call lacks a value'; END IF;
  -- Coordinators use the user that owns the tables.
  IF pg_has_role(session_user, current_user, 'MEMBER') THEN RETURN; END IF;
  counter := to_regclass('corral.written_by_' || (SELECT oid FROM pg_roles WHERE rolname = session_user));
  IF counter IS NULL THEN
    RAISE EXCEPTION 'what the database user % writes is not counted: run corral work --grants for it again', session_user;
  END IF;
  total := greatest(pg_sequence_last_value(counter), hour);
  IF bytes > (SELECT bytes_per_hour FROM corral.limits) - (total - hour) THEN
    RAISE EXCEPTION 'the database user % has written too much in this hour: see corral.limits', session_user USING ERRCODE = '53400';
  END IF;
  PERFORM setval(counter, total + bytes);
END $$;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA corral FROM PUBLIC;
