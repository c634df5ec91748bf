CREATE TABLE corral.deliveries (
  fleet bigint NOT NULL,
  position integer NOT NULL,
  attempt integer NOT NULL,
  run text NOT NULL,
  machine text NOT NULL,
  machine_name text NOT NULL,
  delivered_at bigint NOT NULL,
  json text NOT NULL,
  stdout text,
  stderr text,
  changeset text,
  more text NOT NULL,
  PRIMARY KEY (fleet, position)
);
CREATE INDEX deliveries_order ON corral.deliveries (fleet, delivered_at);

CREATE TABLE corral.paces (
  machine text NOT NULL, minute bigint NOT NULL, count integer NOT NULL,
  PRIMARY KEY (machine, minute)
);

CREATE TABLE corral.refusals (
  machine text NOT NULL, fleet bigint NOT NULL, why text NOT NULL,
  PRIMARY KEY (machine, fleet)
);

CREATE FUNCTION corral.is_member(machine_id text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN EXISTS (
    SELECT 1 FROM corral.processes WHERE id = machine_id AND is_machine AND lease_until > corral.now_ms());
END $$;

-- What counts and then takes has to see what others took before it: a transaction of another level would count as of its beginning.
CREATE FUNCTION corral.check_sees_all() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'machines use the isolation level READ COMMITTED';
  END IF;
END $$;

CREATE FUNCTION corral.machine_join(machine_name text, machine_labels text[], machine_slots integer, machine_version text, lease_ms integer)
RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  new_id text := gen_random_uuid()::text;
  now bigint := corral.now_ms();
BEGIN
  PERFORM corral.check_sees_all();
  IF length(machine_name) > 200 OR length(machine_version) > 100 OR cardinality(machine_labels) > 100
    OR machine_slots NOT BETWEEN 1 AND 10000 OR lease_ms NOT BETWEEN 1 AND 60000
    OR EXISTS (SELECT 1 FROM unnest(machine_labels) AS label WHERE label IS NULL OR length(label) > 200) THEN
    RAISE EXCEPTION 'the name, labels, slots or version of the machine are not valid';
  END IF;
  -- The row of this machine, and the rows of others that are removed.
  PERFORM corral.count_written(10000 + 4 * (length(machine_name) + length(machine_version)) + octet_length(machine_labels::text));
  -- Machines that have ended; what they ran was queued again by the owners of their fleets.
  -- What another transaction holds is left to the next one that joins: it could wait for as long as that likes.
  DELETE FROM corral.processes WHERE id IN (
    SELECT p.id FROM corral.processes p WHERE p.lease_until < now - CASE WHEN p.is_machine THEN 60000 ELSE 3600000 END
      AND NOT EXISTS (SELECT 1 FROM corral.items i WHERE i.owner = p.id AND i.state = 'away') FOR UPDATE SKIP LOCKED);
  DELETE FROM corral.refusals WHERE (machine, fleet) IN (
    SELECT s.machine, s.fleet FROM corral.refusals s
    WHERE NOT EXISTS (SELECT 1 FROM corral.processes p WHERE p.id = s.machine) FOR UPDATE SKIP LOCKED);
  DELETE FROM corral.paces WHERE (machine, minute) IN (
    SELECT c.machine, c.minute FROM corral.paces c WHERE c.minute < now / 60000 - 10 FOR UPDATE SKIP LOCKED);
  -- One machine of a role joins at a time, so that all are counted.
  INSERT INTO corral.joined (role) VALUES (session_user) ON CONFLICT (role) DO UPDATE SET role = excluded.role;
  IF (SELECT count(*) FROM corral.processes p WHERE p.is_machine AND p.role = session_user AND p.lease_until > now - 60000)
    >= (SELECT machines_per_role FROM corral.limits) THEN
    RAISE EXCEPTION 'the database user % has too many machines: see corral.limits', session_user USING ERRCODE = '53400';
  END IF;
  INSERT INTO corral.processes (id, is_machine, name, labels, slots, version, joined_at, seen_at, lease_until, role)
  VALUES (new_id, true, machine_name, machine_labels, machine_slots, machine_version, now, now, now + lease_ms, session_user);
  RETURN new_id;
END $$;

CREATE FUNCTION corral.machine_renew(machine_id text, lease_ms integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM corral.count_written(@ROW_BYTES@);
  UPDATE corral.processes SET seen_at = corral.now_ms(), lease_until = corral.now_ms() + least(lease_ms, 60000)
  WHERE id = machine_id AND is_machine AND lease_until > corral.now_ms();
  RETURN FOUND;
END $$;

CREATE FUNCTION corral.machine_leave(machine_id text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM corral.count_written(@ROW_BYTES@ * (1 + (SELECT count(*) FROM corral.items WHERE owner = machine_id AND state = 'away')));
  DELETE FROM corral.processes WHERE id = machine_id AND is_machine;
  IF NOT FOUND THEN RETURN; END IF;
  UPDATE corral.items SET state = 'queued', not_before = 1, run = NULL, cell = NULL, owner = NULL, earlier = earlier + 1
  WHERE owner = machine_id AND state = 'away';
  DELETE FROM corral.refusals WHERE machine = machine_id;
  PERFORM pg_notify('corral', '');
END $$;

CREATE FUNCTION corral.offered(machine_id text)
RETURNS TABLE (id bigint, name text, project text, spec text, agreement text, needs text[], priority integer, weight integer)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
  SELECT f.id, f.name, f.project, f.spec, f.agreement, f.needs, f.priority, f.weight
  FROM corral.processes p JOIN corral.fleets f ON f.needs <@ p.labels
  JOIN corral.processes o ON o.id = f.owner AND o.lease_until > corral.now_ms()
  WHERE p.id = machine_id AND p.is_machine AND p.lease_until > corral.now_ms()
    AND f.agreement IS NOT NULL AND f.state = 'running'
$$;

CREATE FUNCTION corral.machine_offers(machine_id text)
RETURNS TABLE (fleet text, project text, spec text, agreement text, needs text[], priority integer, weight integer, has_more boolean)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT f.name, f.project, f.spec, f.agreement, f.needs, f.priority, f.weight, EXISTS (
    SELECT 1 FROM corral.items i WHERE i.fleet = f.id AND i.state = 'queued' AND i.not_before <= corral.now_ms())
  FROM corral.offered(machine_id) f ORDER BY f.priority DESC, f.id LIMIT 1000
$$;

CREATE FUNCTION corral.machine_refuses(machine_id text, fleet_name text, new_why text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  fleet_id bigint := (SELECT id FROM corral.fleets WHERE name = fleet_name);
BEGIN
  IF fleet_id IS NULL OR NOT corral.is_member(machine_id) THEN RETURN; END IF;
  PERFORM corral.count_written(@ROW_BYTES@ + 4000);
  IF new_why IS NULL THEN
    DELETE FROM corral.refusals WHERE machine = machine_id AND fleet = fleet_id;
  ELSE
    INSERT INTO corral.refusals (machine, fleet, why)
    SELECT machine_id, f.id, left(new_why, 1000) FROM corral.offered(machine_id) f WHERE f.id = fleet_id
    ON CONFLICT (machine, fleet) DO UPDATE SET why = excluded.why;
  END IF;
END $$;

CREATE FUNCTION corral.machine_claim(machine_id text, fleet_names text[], tickets text[])
RETURNS TABLE (fleet text, attempt integer, earlier integer, run text, request text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  now bigint := corral.now_ms();
  ids bigint[];
  names text[];
  weights integer[];
  ranks integer[];
  loads integer[];
  wanted integer[];
  best integer;
  got integer;
  n integer := 0;
  most integer;
BEGIN
  PERFORM corral.check_sees_all();
  IF cardinality(tickets) > 1000 OR cardinality(fleet_names) > 1000
    OR EXISTS (SELECT 1 FROM unnest(tickets) AS ticket WHERE ticket IS NULL OR length(ticket) > 100) THEN
    RAISE EXCEPTION 'this claim is too large';
  END IF;
  PERFORM corral.count_written(@ROW_BYTES@ * (1 + cardinality(tickets)));
  -- It holds as many as it runs at once, and a few that are prepared meanwhile. Its row is locked: it may claim twice at the same time.
  SELECT p.slots + least(p.slots, 4) INTO most FROM corral.processes p WHERE p.id = machine_id FOR UPDATE;
  -- What an earlier call with the same tickets claimed counts: its answer was lost. An item of a machine has its ticket as its cell.
  RETURN QUERY SELECT f.name, i.attempt, i.earlier, i.run, r.json
    FROM corral.items i JOIN corral.fleets f ON f.id = i.fleet
    JOIN corral.requests r ON r.fleet = i.fleet AND r.position = i.position
    WHERE i.owner = machine_id AND i.state = 'away' AND i.cell = ANY (tickets) AND corral.is_member(machine_id);
  IF FOUND THEN RETURN; END IF;
  most := least(cardinality(tickets), most - (SELECT count(*)::integer FROM corral.items i WHERE i.owner = machine_id AND i.state = 'away'));
  SELECT array_agg(f.id ORDER BY f.id), array_agg(f.name ORDER BY f.id), array_agg(f.weight ORDER BY f.id),
    array_agg(f.priority ORDER BY f.id),
    array_agg((SELECT count(*)::integer FROM corral.items i
               WHERE i.fleet = f.id AND i.state IN ('running', 'away', 'delivered', 'applying') AND i.state IN ('running', 'away'))
              ORDER BY f.id)
  INTO ids, names, weights, ranks, loads
  FROM corral.offered(machine_id) f WHERE f.name = ANY (fleet_names);
  -- Shares are given out first, then each fleet's items are claimed together. A fleet that has fewer gets no more.
  WHILE n < most AND ids IS NOT NULL LOOP
    wanted := array_fill(0, ARRAY[cardinality(ids)]);
    FOR turn IN n + 1 .. most LOOP
      SELECT c.at INTO best FROM unnest(ids, weights, ranks, loads) WITH ORDINALITY AS c (id, weight, rank, load, at)
      WHERE c.id IS NOT NULL ORDER BY c.rank DESC, c.load::float8 / c.weight, c.id LIMIT 1;
      EXIT WHEN best IS NULL;
      wanted[best] := wanted[best] + 1;
      loads[best] := loads[best] + 1;
    END LOOP;
    EXIT WHEN best IS NULL;
    FOR at IN 1 .. cardinality(ids) LOOP
      CONTINUE WHEN wanted[at] = 0;
      RETURN QUERY WITH due AS (
        SELECT q.place, n + row_number() OVER (ORDER BY q.not_before, q.position) AS turn FROM (
          SELECT i.ctid AS place, i.position, i.not_before FROM corral.items i
          WHERE i.fleet = ids[at] AND i.state = 'queued' AND i.not_before <= now
          ORDER BY i.not_before, i.position LIMIT wanted[at] FOR UPDATE SKIP LOCKED) AS q),
      taken AS (
        UPDATE corral.items i SET state = 'away', attempt = i.attempt + 1, owner = machine_id, cell = tickets[due.turn], claimed_at = now,
          -- A machine does not choose the id under which its changes wait.
          run = left(replace(gen_random_uuid()::text, '-', ''), 12)
        -- By their places: by their positions, PostgreSQL would read all of a fleet of which it has no statistics yet.
        FROM due WHERE i.ctid = due.place
        RETURNING i.position, i.attempt, i.earlier, i.run, due.turn)
      SELECT names[at], t.attempt, t.earlier, t.run,
        -- Not joined: PostgreSQL could read the requests of the whole fleet, whose size it does not know.
        (SELECT r.json FROM corral.requests r WHERE r.fleet = ids[at] AND r.position = t.position)
      FROM taken t ORDER BY t.turn;
      GET DIAGNOSTICS got = ROW_COUNT;
      n := n + got;
      IF got < wanted[at] THEN ids[at] := NULL; END IF;
    END LOOP;
  END LOOP;
END $$;

CREATE FUNCTION corral.machine_deliver(
  machine_id text, fleet_name text, item integer, item_attempt integer,
  new_json text, new_stdout text, new_stderr text, new_changeset text, new_more text)
RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  fleet_id bigint := (SELECT id FROM corral.fleets WHERE name = fleet_name);
  item_run text;
BEGIN
  IF octet_length(new_json) > 1048576 OR octet_length(new_stdout) > 4194304 OR octet_length(new_stderr) > 4194304
    OR octet_length(new_more) > 65536 OR length(new_changeset) > 200 THEN
    RAISE EXCEPTION 'this delivery is too large';
  END IF;
  PERFORM corral.count_written(2 * @ROW_BYTES@ + octet_length(new_json) + coalesce(octet_length(new_stdout), 0)
    + coalesce(octet_length(new_stderr), 0) + octet_length(new_more));
  IF NOT corral.is_member(machine_id) THEN RETURN 'the lease of this machine has ended'; END IF;
  UPDATE corral.items SET state = 'delivered', owner = NULL, cell = NULL
  WHERE fleet = fleet_id AND position = item AND state = 'away' AND owner = machine_id AND attempt = item_attempt
  RETURNING run INTO item_run;
  IF NOT FOUND THEN
    -- An earlier call may have been committed although its answer was lost.
    IF EXISTS (SELECT 1 FROM corral.deliveries d WHERE d.fleet = fleet_id AND d.position = item AND d.attempt = item_attempt
               AND d.machine = machine_id) THEN RETURN 'taken'; END IF;
    RETURN corral.why_fenced(fleet_id, item, item_attempt);
  END IF;
  INSERT INTO corral.deliveries
    (fleet, position, attempt, run, machine, machine_name, delivered_at, json, stdout, stderr, changeset, more)
  SELECT fleet_id, item, item_attempt, item_run, p.id, p.name, corral.now_ms(), new_json, new_stdout, new_stderr, new_changeset, new_more
  FROM corral.processes p WHERE p.id = machine_id;
  INSERT INTO corral.paces (machine, minute, count) VALUES (machine_id, corral.now_ms() / 60000, 1)
  ON CONFLICT (machine, minute) DO UPDATE SET count = corral.paces.count + 1;
  PERFORM pg_notify('corral', fleet_name);
  RETURN 'taken';
END $$;

CREATE FUNCTION corral.why_fenced(fleet_id bigint, item integer, item_attempt integer) RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
  SELECT coalesce((
    SELECT format('attempt %s of item %s no longer counts: %s', item_attempt, item,
      CASE WHEN state = 'queued' THEN 'the item waits for a retry'
           ELSE format('attempt %s is %s', attempt, CASE WHEN state = 'done' THEN 'done' ELSE 'running' END) END)
    FROM corral.items WHERE fleet = fleet_id AND position = item), format('the fleet has no item %s', item))
$$;

CREATE FUNCTION corral.machine_give_back(machine_id text, fleet_name text, item integer, item_attempt integer, after_ms float8)
RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  fleet_id bigint := (SELECT id FROM corral.fleets WHERE name = fleet_name);
BEGIN
  IF NOT corral.is_member(machine_id) THEN RETURN 'the lease of this machine has ended'; END IF;
  PERFORM corral.count_written(@ROW_BYTES@);
  -- It did not end, so it counts for no retry.
  UPDATE corral.items SET state = 'queued', run = NULL, cell = NULL, owner = NULL, earlier = earlier + 1,
    not_before = CASE WHEN after_ms <= 0 THEN 1 ELSE corral.now_ms() + least(after_ms, 30000)::bigint END
  WHERE fleet = fleet_id AND position = item AND state = 'away' AND owner = machine_id AND attempt = item_attempt;
  IF NOT FOUND THEN RETURN corral.why_fenced(fleet_id, item, item_attempt); END IF;
  PERFORM pg_notify('corral', fleet_name);
  RETURN 'taken';
END $$;

CREATE FUNCTION corral.machine_withdrawn(machine_id text, fleet_names text[], items integer[], attempts integer[])
RETURNS TABLE (fleet text, item integer, attempt integer, why text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  of_fleets bigint[];
  positions integer[];
BEGIN
  IF cardinality(items) > 20000 THEN RAISE EXCEPTION 'too many attempts in one call (limit 20000)'; END IF;
  -- What it does not know of: the answer to its claim never came.
  SELECT array_agg(i.fleet), array_agg(i.position) INTO of_fleets, positions FROM corral.items i
  WHERE i.owner = machine_id AND i.state = 'away' AND i.claimed_at < corral.now_ms() - 60000
    AND NOT EXISTS (SELECT 1 FROM unnest(fleet_names, items, attempts) AS h (fleet, item, attempt)
      JOIN corral.fleets f ON f.name = h.fleet WHERE f.id = i.fleet AND h.item = i.position AND h.attempt = i.attempt);
  IF positions IS NOT NULL THEN
    PERFORM corral.count_written(@ROW_BYTES@ * cardinality(positions));
    UPDATE corral.items i SET state = 'queued', not_before = 1, run = NULL, cell = NULL, owner = NULL, earlier = i.earlier + 1
    FROM unnest(of_fleets, positions) AS lost (fleet, position)
    WHERE i.fleet = lost.fleet AND i.position = lost.position AND i.owner = machine_id AND i.state = 'away';
  END IF;
  RETURN QUERY
  SELECT * FROM (
    SELECT h.fleet, h.item, h.attempt, CASE
      WHEN i.state IS DISTINCT FROM 'away' OR i.owner <> machine_id OR i.attempt <> h.attempt THEN 'fenced'
      WHEN f.state = 'cancelled' THEN 'cancelled'
      WHEN f.state <> 'running' OR f.agreement IS NULL THEN 'drained' END AS why
    FROM unnest(fleet_names, items, attempts) AS h (fleet, item, attempt)
    LEFT JOIN corral.fleets f ON f.name = h.fleet
    LEFT JOIN corral.items i ON i.fleet = f.id AND i.position = h.item) AS held
  WHERE held.why IS NOT NULL ORDER BY held.fleet, held.item;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA corral FROM PUBLIC;
