-- fleets
SELECT f.id, f.name, f.spec, f.state, f.owner, f.why, f.created_at, f.ended_at, f.total,
  (SELECT coalesce(sum(t.count), 0) FROM corral.tallies t WHERE t.fleet = f.id) AS done,
  (SELECT coalesce(sum(t.count * t.failed), 0) FROM corral.tallies t WHERE t.fleet = f.id) AS failed,
  (SELECT coalesce(sum(t.count), 0) FROM corral.tallies t WHERE t.fleet = f.id AND t.status = 'pending') AS pending,
  (SELECT count(*) FROM corral.items i WHERE i.fleet = f.id AND @ACTIVE@) AS running
FROM corral.fleets f WHERE @PROJECT@ = $1

-- results
SELECT @RESULT@ FROM @RESULTS@
WHERE i.fleet = $1 AND i.position > $2 AND i.status IS NOT NULL @STATUS@ ORDER BY i.position LIMIT $3

-- failed
SELECT i.position, r.json FROM corral.items i JOIN corral.requests r ON @REQUEST@
WHERE i.fleet = $1 AND i.position > $2 AND i.failed = 1 ORDER BY i.position LIMIT $3

-- pending
SELECT i.position AS "index", i.key, i.run FROM corral.items i
WHERE i.fleet = $1 AND i.status = 'pending' AND i.state = 'done' AND i.run IS NOT NULL AND i.position > $2
ORDER BY i.position LIMIT $3

-- summary
SELECT t.status, nullif(t.code, '') AS code, t.count FROM corral.tallies t WHERE t.fleet = $1
ORDER BY t.count DESC, t.status @BYTEWISE@, t.code @BYTEWISE@

-- groups
WITH groups AS (
  SELECT count(*) AS count, min(i.position) AS first FROM corral.items i @BY_FAILED@
  WHERE i.fleet = $1 AND i.failed = 1 AND i.state = 'done' GROUP BY i.status, i.code, i.cause ORDER BY count DESC, first LIMIT $2)
SELECT groups.count, i.code, @RESULT@ FROM groups, @RESULTS@
WHERE i.fleet = $1 AND i.position = groups.first ORDER BY groups.count DESC, groups.first

-- slowest
SELECT @RESULT@ FROM @RESULTS@
WHERE i.fleet = $1 AND i.position @ONE_OF@
  SELECT c.position FROM corral.items c WHERE c.fleet = $1 AND c.state = 'done' ORDER BY c.duration_ms DESC LIMIT $2
@END_OF@ ORDER BY i.duration_ms DESC

-- newest failures
SELECT @RESULT@ FROM @RESULTS@
WHERE i.fleet = $1 AND i.position @ONE_OF@
  SELECT c.position FROM corral.items c WHERE c.fleet = $1 AND c.failed = 1 ORDER BY c.ended_at DESC LIMIT $2
@END_OF@ ORDER BY i.ended_at DESC

-- paths
SELECT i.position, @WRITES@ AS writes FROM corral.items i JOIN corral.requests r ON @REQUEST@
WHERE i.fleet = $1 AND i.position > $2 AND @WRITES@ IS NOT NULL ORDER BY i.position LIMIT $3

-- earlier success
SELECT f.name AS fleet, s.json FROM corral.items i
JOIN corral.fleets f ON f.id = i.fleet JOIN corral.results s ON @RESULT_OF@
WHERE @CACHE_KEY@ = $1 AND i.status = 'succeeded' AND @PROJECT@ = $2 ORDER BY i.fleet DESC, i.position DESC LIMIT 1

-- items
SELECT i.position AS "index", i.key, i.state, i.status, nullif(i.code, '') AS code, i.attempt, i.run, i.ended_at AS "endedAt",
  i.duration_ms AS "durationMs", @MACHINE@ AS machine
FROM corral.items i @INDEX@ WHERE i.fleet = $1 AND i.position > $2 @TERMS@ ORDER BY i.position LIMIT $3

-- item
SELECT @RESULT@, i.state, r.json AS request, t.stdout, t.stderr, @MACHINE@ AS machine
FROM @RESULTS@ LEFT JOIN corral.streams t ON @STREAMS@ WHERE i.fleet = $1 AND i.@KEY@ = $2

-- attempts
SELECT a.attempt, a.json FROM corral.attempts a JOIN corral.items i ON @ATTEMPT@
WHERE i.fleet = $1 AND i.position = $2 ORDER BY a.attempt DESC

-- keys
SELECT i.key FROM corral.items i WHERE i.fleet = $1 ORDER BY i.position LIMIT $2

-- logs
SELECT @RESULT@, t.stdout, t.stderr FROM @RESULTS@ JOIN corral.streams t ON @STREAMS@
WHERE i.fleet = $1 AND i.position > $2 AND i.status IS NOT NULL @FAILED@ ORDER BY i.position LIMIT $3

-- pace
WITH front AS MATERIALIZED (
  SELECT max(i.position) AS front, @NOW@ AS now FROM corral.items i WHERE i.fleet = $1 AND @ACTIVE@)
SELECT (SELECT now FROM front) AS now, CASE WHEN i.state = 'done' THEN i.ended_at END AS at
FROM corral.items i WHERE i.fleet = $1 AND i.position < (SELECT front FROM front) ORDER BY i.position DESC LIMIT $3
