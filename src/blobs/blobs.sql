CREATE TABLE corral.blobs (
  digest text PRIMARY KEY CHECK (digest ~ '^[0-9a-f]{64}$'),
  content bytea NOT NULL CHECK (octet_length(content) <= @MAX_BYTES@),
  used_at timestamptz NOT NULL,
  CHECK (digest = encode(sha256(content), 'hex'))
);
ALTER TABLE corral.blobs ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE INDEX blobs_used_at ON corral.blobs (used_at);

CREATE FUNCTION corral.blobs_has(wanted text[]) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF cardinality(wanted) > @BATCH@ THEN RAISE EXCEPTION 'these are too many digests'; END IF;
  PERFORM corral.count_written(200 * cardinality(wanted));
  -- In one order, so that no two calls wait for each other.
  UPDATE corral.blobs b SET used_at = clock_timestamp() FROM (
    SELECT o.digest FROM corral.blobs o WHERE o.digest = ANY (wanted) AND o.used_at < clock_timestamp() - interval '1 hour'
    ORDER BY o.digest FOR UPDATE) AS old
  WHERE b.digest = old.digest;
  RETURN QUERY SELECT b.digest FROM corral.blobs b WHERE b.digest = ANY (wanted);
END $$;

CREATE FUNCTION corral.blob_put(new_digest text, new_content bytea) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  -- One that was used lately is not locked: nothing removes it for long, and another transaction may hold it.
  IF EXISTS (SELECT FROM corral.blobs b WHERE b.digest = new_digest AND b.used_at > clock_timestamp() - interval '1 hour') THEN RETURN; END IF;
  PERFORM corral.count_written(octet_length(new_content) + 200);
  INSERT INTO corral.blobs (digest, content, used_at) VALUES (new_digest, new_content, clock_timestamp())
  ON CONFLICT (digest) DO UPDATE SET used_at = excluded.used_at;
END $$;

CREATE FUNCTION corral.blob_piece(wanted text, after integer, most integer) RETURNS TABLE (bytes integer, piece bytea)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF after < 0 OR most NOT BETWEEN 0 AND @PIECE_BYTES@ THEN RAISE EXCEPTION 'this is no piece of a blob'; END IF;
  RETURN QUERY SELECT octet_length(b.content), substring(b.content FROM after + 1 FOR most)
    FROM corral.blobs b WHERE b.digest = wanted;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA corral FROM PUBLIC;
