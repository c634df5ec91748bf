SELECT m.*, f.fleet, coalesce(f.running, 0) AS of_fleet, f.why FROM (
  SELECT p.id, p.name, p.labels, p.slots, p.version, p.joined_at, p.seen_at,
    (SELECT count(*)::int FROM corral.items i WHERE i.owner = p.id AND i.state = 'away') AS running,
    (SELECT coalesce(sum(count), 0) FROM corral.paces c WHERE c.machine = p.id AND c.minute >= n.now / 60000 - 1)
      / (60 + (n.now % 60000) / 1000)::float8 AS recent
  FROM corral.processes p, LATERAL (SELECT corral.now_ms() AS now) n
  WHERE p.is_machine AND p.lease_until > n.now ORDER BY p.name COLLATE "C", p.id LIMIT 10000) AS m
LEFT JOIN (
  SELECT e.machine, f.id, f.name AS fleet, e.running, s.why
  FROM (
    SELECT machine, fleet, sum(running)::int AS running FROM (
      SELECT owner AS machine, fleet, count(*) AS running FROM corral.items WHERE state = 'away' GROUP BY owner, fleet
      UNION ALL SELECT machine, fleet, 0 FROM corral.refusals) AS each
    GROUP BY machine, fleet) AS e
  JOIN corral.fleets f ON f.id = e.fleet AND f.project = $1
  LEFT JOIN corral.refusals s ON s.machine = e.machine AND s.fleet = e.fleet) AS f ON f.machine = m.id
ORDER BY m.name COLLATE "C", m.id, f.id LIMIT 100000
