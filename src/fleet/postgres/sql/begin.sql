WITH @OWNED@, asked AS (SELECT * FROM unnest($2::int[], $3::int[], $4::text[], $5::text[], $6::bool[], $7::bytea[], $8::bytea[])
  AS asked (position, attempt, json, cache_key, is_printed, stdout, stderr)),
begun AS (UPDATE corral.items i SET state = 'applying' FROM asked
  WHERE @IS_OWNED@ AND i.fleet = $1 AND i.position = asked.position AND i.attempt = asked.attempt
    AND (i.state || '') IN ('running', 'delivered', 'applying') RETURNING i.position),
kept AS (INSERT INTO corral.intents (fleet, position, json, cache_key, is_printed, stdout, stderr)
  SELECT $1, position, json, cache_key, is_printed, stdout, stderr FROM asked JOIN begun USING (position)
  ON CONFLICT (fleet, position) DO UPDATE SET json = excluded.json, cache_key = excluded.cache_key,
    is_printed = excluded.is_printed, stdout = excluded.stdout, stderr = excluded.stderr)
SELECT position FROM begun
