CREATE FUNCTION corral.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.floor(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000)::pg_catalog.int8
$$;

CREATE TABLE corral.processes (
  id text PRIMARY KEY,
  is_machine boolean NOT NULL,
  name text NOT NULL,
  labels text[] NOT NULL DEFAULT '{}',
  slots integer NOT NULL DEFAULT 0,
  version text NOT NULL DEFAULT '',
  joined_at bigint NOT NULL,
  seen_at bigint NOT NULL,
  lease_until bigint NOT NULL
);

CREATE TABLE corral.fleets (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL UNIQUE,
  project text NOT NULL,
  spec text NOT NULL,
  state text NOT NULL CHECK (state IN ('loading', 'running', 'paused', 'cancelled', 'done')),
  owner text,
  total integer NOT NULL DEFAULT 0,
  created_at bigint NOT NULL,
  ended_at bigint,
  why text,
  field_names text NOT NULL DEFAULT '[]',
  needs text[],
  priority integer NOT NULL DEFAULT 0,
  weight integer NOT NULL DEFAULT 1,
  agreement text
);
CREATE INDEX fleets_project ON corral.fleets (project, id);
CREATE INDEX fleets_offered ON corral.fleets (id) WHERE agreement IS NOT NULL;

CREATE TABLE corral.items (
  fleet bigint NOT NULL,
  position integer NOT NULL,
  key text NOT NULL,
  key_hash bytea NOT NULL,
  state text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'away', 'delivered', 'applying', 'done')),
  attempt integer NOT NULL DEFAULT 0,
  earlier integer NOT NULL DEFAULT 0,
  not_before bigint NOT NULL DEFAULT 0,
  run text,
  cell text,
  owner text,
  status text,
  code text,
  cause text,
  failed smallint NOT NULL DEFAULT 0,
  ended_at bigint,
  duration_ms double precision,
  cache_key text,
  PRIMARY KEY (fleet, position)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE UNIQUE INDEX items_key ON corral.items (fleet, key_hash);
CREATE INDEX items_queued ON corral.items (fleet, not_before, position) WHERE state = 'queued';
CREATE INDEX items_active ON corral.items (fleet, position) WHERE state IN ('running', 'away', 'delivered', 'applying');
CREATE INDEX items_away ON corral.items (owner) WHERE state = 'away';
CREATE INDEX items_status ON corral.items (fleet, status, position) WHERE state = 'done';
CREATE INDEX items_failed ON corral.items (fleet, ended_at) WHERE failed = 1;
CREATE INDEX items_cache ON corral.items (cache_key) WHERE status = 'succeeded' AND cache_key IS NOT NULL;

CREATE TABLE corral.requests (
  fleet bigint NOT NULL, position integer NOT NULL, json text NOT NULL, fields text, writes text,
  PRIMARY KEY (fleet, position)
);
CREATE TABLE corral.results (
  fleet bigint NOT NULL, position integer NOT NULL, json text NOT NULL,
  PRIMARY KEY (fleet, position)
);
CREATE TABLE corral.streams (
  fleet bigint NOT NULL, position integer NOT NULL, stdout bytea, stderr bytea,
  PRIMARY KEY (fleet, position)
);
CREATE TABLE corral.intents (
  fleet bigint NOT NULL, position integer NOT NULL, json text NOT NULL, cache_key text, is_printed boolean NOT NULL,
  stdout bytea, stderr bytea,
  PRIMARY KEY (fleet, position)
);
CREATE TABLE corral.attempts (
  fleet bigint NOT NULL, position integer NOT NULL, attempt integer NOT NULL, json text NOT NULL,
  PRIMARY KEY (fleet, position, attempt)
);
CREATE TABLE corral.outputs (fleet bigint NOT NULL, path bytea NOT NULL, position integer NOT NULL, rank bigint);
CREATE INDEX outputs_fleet ON corral.outputs (fleet, rank);
CREATE TABLE corral.tallies (
  fleet bigint NOT NULL, status text NOT NULL, code text NOT NULL, failed smallint NOT NULL, count integer NOT NULL,
  PRIMARY KEY (fleet, status, code)
);
