CREATE TABLE corral.questions (
  fleet bigint NOT NULL,
  position integer NOT NULL,
  attempt integer NOT NULL,
  number integer NOT NULL,
  machine text NOT NULL,
  machine_name text NOT NULL,
  asked_at bigint NOT NULL,
  json text NOT NULL,
  answer text,
  is_over boolean NOT NULL DEFAULT false,
  PRIMARY KEY (fleet, position, attempt, number)
);
CREATE INDEX questions_machine ON corral.questions (machine);

CREATE FUNCTION corral.machine_ask(
  machine_id text, fleet_name text, item integer, item_attempt integer, question integer, new_json text)
RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  fleet_id bigint := (SELECT id FROM corral.fleets WHERE name = fleet_name);
  member_name text;
BEGIN
  PERFORM corral.check_sees_all();
  IF octet_length(new_json) > 262144 OR question NOT BETWEEN 0 AND 499 THEN
    RAISE EXCEPTION 'this question is too large, or there are too many';
  END IF;
  PERFORM corral.count_written(octet_length(new_json) + 1000);
  -- One question of a machine after another, so that they are counted.
  SELECT p.name INTO member_name FROM corral.processes p
  WHERE p.id = machine_id AND p.is_machine AND p.lease_until > corral.now_ms() FOR UPDATE;
  IF NOT FOUND THEN RETURN 'the lease of this machine has ended'; END IF;
  IF NOT EXISTS (SELECT 1 FROM corral.items i WHERE i.fleet = fleet_id AND i.position = item AND i.state = 'away'
                 AND i.owner = machine_id AND i.attempt = item_attempt) THEN
    RETURN corral.why_fenced(fleet_id, item, item_attempt);
  END IF;
  -- An earlier call may have been committed although its answer was lost.
  IF EXISTS (SELECT 1 FROM corral.questions q WHERE q.fleet = fleet_id AND q.position = item AND q.attempt = item_attempt
             AND q.number = question) THEN RETURN 'taken'; END IF;
  DELETE FROM corral.questions q WHERE q.machine = machine_id AND NOT EXISTS (
    SELECT 1 FROM corral.items i WHERE i.fleet = q.fleet AND i.position = q.position AND i.state = 'away'
    AND i.owner = machine_id AND i.attempt = q.attempt);
  IF (SELECT count(*) FROM corral.questions q WHERE q.machine = machine_id AND NOT q.is_over) >= 1000
    OR (SELECT count(*) FROM corral.questions q WHERE q.fleet = fleet_id AND q.position = item AND q.attempt = item_attempt AND NOT q.is_over) >= 50 THEN
    RETURN 'too many questions already wait for an answer';
  END IF;
  INSERT INTO corral.questions (fleet, position, attempt, number, machine, machine_name, asked_at, json)
  VALUES (fleet_id, item, item_attempt, question, machine_id, member_name, corral.now_ms(), new_json);
  PERFORM pg_notify('corral', fleet_name);
  RETURN 'taken';
END $$;

CREATE FUNCTION corral.machine_unask(machine_id text, fleet_name text, item integer, item_attempt integer, question integer)
RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM corral.count_written(500);
  UPDATE corral.questions q SET is_over = true, json = '', answer = NULL
  FROM corral.fleets f
  WHERE f.name = fleet_name AND q.fleet = f.id AND q.position = item AND q.attempt = item_attempt AND q.number = question
    AND q.machine = machine_id AND NOT q.is_over AND corral.is_member(machine_id);
  IF FOUND THEN PERFORM pg_notify('corral', fleet_name); END IF;
END $$;

CREATE FUNCTION corral.machine_answers(machine_id text)
RETURNS TABLE (fleet text, item integer, attempt integer, question integer, answer text)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT f.name, q.position, q.attempt, q.number, q.answer
  FROM corral.questions q JOIN corral.fleets f ON f.id = q.fleet
  JOIN corral.items i ON i.fleet = q.fleet AND i.position = q.position
  WHERE q.machine = machine_id AND NOT q.is_over AND q.answer IS NOT NULL AND i.state = 'away' AND i.owner = machine_id
    AND i.attempt = q.attempt AND corral.is_member(machine_id)
  ORDER BY q.fleet, q.position, q.number LIMIT 1000
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA corral FROM PUBLIC;
