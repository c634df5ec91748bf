WITH @OWNED@,
asked AS (SELECT * FROM unnest($2::int[], $3::int[], $4::float8[], $8::int[])
  AS asked (position, attempt, wait, withdrawn)),
queued AS (UPDATE corral.items i SET state = 'queued', run = NULL, cell = NULL, owner = NULL, earlier = i.earlier + withdrawn,
  not_before = CASE WHEN wait <= 0 THEN $6 ELSE greatest(ceil(coalesce($5::bigint, corral.now_ms()) + wait), $6) END
  FROM asked WHERE @IS_OWNED@ AND i.fleet = $1 AND i.position = asked.position AND i.attempt = asked.attempt
    AND (i.state || '') IN ('running', 'delivered') RETURNING i.position),
gone AS (DELETE FROM corral.deliveries d USING queued WHERE d.fleet = $1 AND d.position = queued.position)
SELECT position FROM queued
