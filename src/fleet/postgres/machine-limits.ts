/**
 * What one user of the database may take of it, whatever it says: the owner of the tables changes the row of `corral.limits`. Roles are those
 * that logged in, since any number of machines may share one.
 */
export const LIMITS = `
CREATE TABLE corral.limits (
  is_one boolean PRIMARY KEY DEFAULT true CHECK (is_one),
  machines_per_role integer NOT NULL DEFAULT 1000,
  blob_bytes_per_hour bigint NOT NULL DEFAULT 107374182400
);
INSERT INTO corral.limits DEFAULT VALUES;

ALTER TABLE corral.processes ADD COLUMN role text NOT NULL DEFAULT '';
ALTER TABLE corral.items ADD COLUMN claimed_at bigint;

-- One row for each role that machines use: to count them, its row is locked, and no other role waits for it.
CREATE TABLE corral.joined (role text PRIMARY KEY);

CREATE TABLE corral.stored (
  role text NOT NULL, hour bigint NOT NULL, bytes bigint NOT NULL,
  PRIMARY KEY (role, hour)
);

CREATE FUNCTION corral.count_stored() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  this_hour bigint := corral.now_ms() / 3600000;
BEGIN
  -- Coordinators use the user that owns the tables.
  IF session_user = current_user THEN RETURN NULL; END IF;
  -- Those of other roles may be held in their transactions.
  DELETE FROM corral.stored WHERE role = session_user AND hour < this_hour;
  INSERT INTO corral.stored (role, hour, bytes) VALUES (session_user, this_hour, octet_length(NEW.content))
  ON CONFLICT (role, hour) DO UPDATE SET bytes = corral.stored.bytes + excluded.bytes;
  IF (SELECT bytes FROM corral.stored WHERE role = session_user AND hour = this_hour)
    > (SELECT blob_bytes_per_hour FROM corral.limits) THEN
    RAISE EXCEPTION 'the database user % has stored too much in this hour: see corral.limits', session_user
      USING ERRCODE = '53400';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER count_stored AFTER INSERT ON corral.blobs FOR EACH ROW EXECUTE FUNCTION corral.count_stored();
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA corral FROM PUBLIC;
`;
