WITH owned AS MATERIALIZED (
  SELECT id FROM corral.fleets WHERE project = $1 AND name = $2 AND owner = $3 AND state = 'running' FOR SHARE),
asked AS (
  SELECT * FROM unnest($4::int[], $5::text[], $6::bigint[], $7::text[]) AS asked (position, status, ended_at, json)),
ended AS (
  UPDATE corral.items i SET state = 'done', status = a.status, code = '', duration_ms = 0, ended_at = a.ended_at
  FROM asked a CROSS JOIN owned o
  WHERE i.fleet = o.id AND i.position = a.position AND (i.state || '') = 'queued' AND i.attempt = 0
  RETURNING i.fleet, i.position, i.status),
kept AS (
  INSERT INTO corral.results (fleet, position, json)
  SELECT ended.fleet, ended.position, a.json FROM ended JOIN asked a USING (position)
  ON CONFLICT (fleet, position) DO UPDATE SET json = excluded.json),
tallied AS (
  INSERT INTO corral.tallies (fleet, status, code, failed, count)
  SELECT fleet, status, '', 0, count(*) FROM ended GROUP BY fleet, status
  ON CONFLICT (fleet, status, code) DO UPDATE SET count = corral.tallies.count + excluded.count)
SELECT position FROM ended
