WITH @OWNED@, asked AS (
  SELECT * FROM unnest($2::int[], $3::int[], $4::text[], $5::text[], $6::int[], $7::bigint[], $8::float8[], $9::text[],
    $10::text[], $11::text[], $12::bytea[], $13::bytea[], $14::text[])
  AS asked (position, attempt, status, code, failed, ended_at, duration_ms, cache_key, cause, json, stdout, stderr, machine)),
ended AS (
  UPDATE corral.items i SET state = 'done', status = a.status, code = a.code, failed = a.failed, ended_at = a.ended_at,
    duration_ms = a.duration_ms, cache_key = a.cache_key, cause = a.cause, machine = a.machine, cell = NULL, owner = NULL
  FROM asked a WHERE @IS_OWNED@ AND i.fleet = $1 AND i.position = a.position AND i.attempt = a.attempt
    AND (i.state || '') IN ('running', 'delivered', 'applying')
  RETURNING i.position, i.earlier),
begun AS (
  DELETE FROM corral.intents t USING ended WHERE t.fleet = $1 AND t.position = ended.position
  RETURNING t.position, t.is_printed, t.stdout, t.stderr),
delivered AS (DELETE FROM corral.deliveries t USING ended WHERE t.fleet = $1 AND t.position = ended.position),
kept AS (
  INSERT INTO corral.results (fleet, position, json) SELECT $1, position, json FROM asked JOIN ended USING (position)
  ON CONFLICT (fleet, position) DO UPDATE SET json = excluded.json),
printed AS (
  SELECT position, earlier, CASE WHEN b.is_printed THEN b.stdout ELSE a.stdout END AS stdout,
    CASE WHEN b.is_printed THEN b.stderr ELSE a.stderr END AS stderr
  FROM asked a JOIN ended USING (position) LEFT JOIN begun b USING (position)),
silent AS (
  DELETE FROM corral.streams t USING printed p
  WHERE t.fleet = $1 AND t.position = p.position AND p.earlier > 0 AND p.stdout IS NULL AND p.stderr IS NULL),
said AS (
  INSERT INTO corral.streams (fleet, position, stdout, stderr)
  SELECT $1, position, stdout, stderr FROM printed WHERE stdout IS NOT NULL OR stderr IS NOT NULL
  ON CONFLICT (fleet, position) DO UPDATE SET stdout = excluded.stdout, stderr = excluded.stderr),
tallied AS (
  INSERT INTO corral.tallies (fleet, status, code, failed, count)
  SELECT $1, status, code, failed, count(*) FROM asked JOIN ended USING (position) GROUP BY status, code, failed
  ON CONFLICT (fleet, status, code) DO UPDATE SET count = corral.tallies.count + excluded.count)
SELECT position FROM ended
