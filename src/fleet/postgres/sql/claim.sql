WITH standing AS MATERIALIZED (
  SELECT state, owner, needs IS NOT NULL AS is_shared, greatest(coalesce($2::bigint, corral.now_ms()), @AT_ONCE@) AS now
  FROM corral.fleets WHERE id = $1 FOR SHARE),
waiting AS MATERIALIZED (SELECT @NEXT_AFTER_NOW@ AS next),
clock AS MATERIALIZED (
  SELECT CASE WHEN w.next - s.now > @LONGEST_DELAY_MS@ THEN w.next ELSE s.now END AS now
  FROM standing s CROSS JOIN waiting w WHERE s.state = 'running' AND s.owner = $4),
attempts AS (SELECT * FROM unnest($5::text[], $6::text[]) WITH ORDINALITY AS attempts (run, cell, n)),
before AS (
  SELECT i.position, i.attempt, i.earlier, a.run, a.cell, a.n FROM attempts a JOIN corral.items i USING (run)
  WHERE $7 AND i.fleet = $1 AND i.state = 'running' AND i.owner = $4),
free AS (SELECT run, cell, row_number() OVER (ORDER BY n) AS n FROM attempts WHERE run NOT IN (SELECT run FROM before)),
due AS (
  SELECT place, row_number() OVER (ORDER BY not_before, position) AS n FROM (
    SELECT ctid AS place, position, not_before FROM corral.items
    WHERE fleet = $1 AND state = 'queued' AND not_before <= (SELECT now FROM clock)
    ORDER BY not_before, position LIMIT $3 FOR UPDATE SKIP LOCKED) AS first),
taken AS (
  UPDATE corral.items i SET state = 'running', attempt = i.attempt + 1, run = free.run, cell = free.cell, owner = $4
  FROM due JOIN free USING (n) WHERE i.ctid = due.place
  RETURNING i.position, i.attempt, i.earlier, i.run, i.cell, free.n),
claimed AS (
  SELECT n, attempt, earlier, run, cell,
    (SELECT r.json FROM corral.requests r WHERE r.fleet = $1 AND r.position = c.position) AS json
  FROM (SELECT * FROM before UNION ALL SELECT * FROM taken) AS c)
SELECT s.state, s.owner, s.now,
  CASE WHEN w.next = (SELECT now FROM clock) THEN @NEXT_AFTER_CLOCK@ ELSE w.next END AS next,
  CASE WHEN s.is_shared THEN (
    SELECT count(*)::int FROM corral.items WHERE fleet = $1 AND @ACTIVE@ AND state IN ('away', 'delivered')
  ) ELSE 0 END AS elsewhere, c.attempt, c.earlier, c.run, c.cell, c.json
FROM standing s CROSS JOIN waiting w LEFT JOIN claimed c ON true ORDER BY c.n
