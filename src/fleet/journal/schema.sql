CREATE TABLE fleets (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  spec TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('loading', 'running', 'paused', 'cancelled', 'done')),
  owner TEXT,
  total INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL,
  ended_at INTEGER,
  why TEXT
) STRICT;

CREATE TABLE items (
  id INTEGER PRIMARY KEY,
  fleet INTEGER NOT NULL,
  position INTEGER NOT NULL,
  key TEXT NOT NULL,
  state TEXT NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'done')),
  attempt INTEGER NOT NULL DEFAULT 0,
  not_before INTEGER NOT NULL DEFAULT 0,
  run TEXT,
  cell TEXT,
  owner TEXT,
  status TEXT,
  code TEXT,
  failed INTEGER NOT NULL DEFAULT 0,
  ended_at INTEGER,
  duration_ms REAL,
  cache_key TEXT
) STRICT;
CREATE UNIQUE INDEX items_position ON items (fleet, position);
CREATE UNIQUE INDEX items_key ON items (fleet, key);
CREATE INDEX items_queued ON items (fleet, not_before, position) WHERE state = 'queued';
CREATE INDEX items_running ON items (fleet, position) WHERE state = 'running';
CREATE INDEX items_status ON items (fleet, status, position) WHERE state = 'done';
CREATE INDEX items_failed ON items (fleet, ended_at) WHERE failed = 1;
CREATE INDEX items_cache ON items (substr(cache_key, 1, 16)) WHERE status = 'succeeded';

CREATE TABLE requests (item INTEGER PRIMARY KEY, json TEXT NOT NULL) STRICT;
CREATE TABLE results (item INTEGER PRIMARY KEY, json TEXT NOT NULL) STRICT;

CREATE TABLE outputs (fleet INTEGER NOT NULL, path BLOB NOT NULL, item INTEGER NOT NULL) STRICT;

CREATE TABLE tallies (
  fleet INTEGER NOT NULL,
  status TEXT NOT NULL,
  code TEXT NOT NULL,
  failed INTEGER NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (fleet, status, code)
) STRICT, WITHOUT ROWID;
