SELECT f.id, f.name, f.spec, f.state, f.owner, f.why, f.created_at, f.ended_at, f.total, f.needs IS NOT NULL AS is_shared,
       t.done, t.failed, t.pending, r.running, f.total - t.done - r.running AS queued
FROM corral.fleets f
CROSS JOIN LATERAL (
  SELECT coalesce(sum(count), 0)::int AS done, coalesce(sum(count * failed), 0)::int AS failed,
         coalesce(sum(count) FILTER (WHERE status = 'pending'), 0)::int AS pending
  FROM corral.tallies WHERE fleet = f.id) t
CROSS JOIN LATERAL (
  SELECT count(*)::int AS running FROM corral.items
  WHERE fleet = f.id AND @ACTIVE@) r
