import { createHash } from "node:crypto";
import { filledIn, textBeside } from "../../platform/text-beside.ts";

/** In SQL: items that are running, as everybody else says it. */
export const ACTIVE = "state IN ('running', 'away', 'delivered', 'applying')";

/** How one of the databases says what the statements of `read.sql` leave open. */
export interface Dialect {
  readonly of: Readonly<Record<string, string>>;
  /** The names of the fields of items, in the order in which items have them. */
  readonly fieldNames: string;
  /** The value of the column by which a key is found. */
  keyed(key: string): string | Buffer;
  /** Whether a key contains a text. */
  contains(value: string): string;
  /** As this database takes it: its names of tables and of values. */
  text(sql: string): string;
}

/** The journal has a number for each item, and what an item asked for in the JSON of its request alone. */
export const SQLITE: Dialect = {
  of: {
    REQUEST: "r.item = i.id",
    RESULT_OF: "s.item = i.id",
    STREAMS: "t.item = i.id",
    ATTEMPT: "a.item = i.id",
    FIELDS: "r.json ->> '$.fields'",
    WRITES: "json_extract(r.json, '$.allowWrite')",
    ACTIVE: "i.state = 'running'",
    MACHINE: "NULL",
    PROJECT: "''",
    BYTEWISE: "",
    NOW: "$2",
    KEY: "key",
    ONE_OF: "IN (",
    END_OF: ")",
    // The index has only the start of each key, so that it stays small.
    CACHE_KEY: "substr(i.cache_key, 1, 16) = substr($1, 1, 16) AND i.cache_key",
    // The planner would read every item that has ended, of which few have failed; and whole rows where their keys are enough.
    BY_FAILED: "INDEXED BY items_failed",
    BY_KEY: "INDEXED BY items_search",
  },
  fieldNames: `SELECT fields.key AS name FROM items i JOIN requests r ON r.item = i.id, json_each(r.json, '$.fields') AS fields
    WHERE i.fleet = $1 GROUP BY fields.key ORDER BY min(i.position), min(fields.id) LIMIT $2`,
  keyed: (key) => key,
  contains: (value) => `instr(i.key, ${value}) > 0`,
  text: (sql) => sql.replaceAll("corral.", "").replace(/\$(?=\d)/g, "?"),
};

/** Where an item runs, or ran. The coordinator's own process has a row too, but no machine's name. */
const MACHINE = `CASE i.state
  WHEN 'away' THEN (SELECT p.name FROM corral.processes p WHERE p.id = i.owner)
  WHEN 'done' THEN i.machine WHEN 'queued' THEN NULL
  ELSE (SELECT d.machine_name FROM corral.deliveries d
        WHERE d.fleet = i.fleet AND d.position = i.position AND d.attempt = i.attempt) END`;

const ofItem = (table: string): string => `${table}.fleet = i.fleet AND ${table}.position = i.position`;

/** Projects and machines share the database. A key may be longer than what an index takes. */
export const POSTGRES: Dialect = {
  of: {
    REQUEST: ofItem("r"),
    RESULT_OF: ofItem("s"),
    STREAMS: ofItem("t"),
    ATTEMPT: ofItem("a"),
    FIELDS: "r.fields",
    WRITES: "r.writes",
    ACTIVE: `i.${ACTIVE}`,
    MACHINE,
    PROJECT: "f.project",
    BYTEWISE: 'COLLATE "C"',
    KEY: "key_hash",
    NOW: "coalesce($2::bigint, corral.now_ms())",
    // As a list of values: a plan for a table that was small would read the whole fleet.
    ONE_OF: "= ANY (ARRAY(",
    END_OF: "))",
    CACHE_KEY: "i.cache_key",
    BY_FAILED: "",
    BY_KEY: "",
  },
  fieldNames: `SELECT names.name FROM corral.fleets f, json_array_elements_text(f.field_names::json) WITH ORDINALITY AS names (name, n)
    WHERE f.id = $1 ORDER BY names.n LIMIT $2`,
  keyed: (key) => createHash("sha256").update(key).digest(),
  contains: (value) => `strpos(i.key, ${value}) > 0`,
  text: (sql) => sql,
};

const STATEMENTS: ReadonlyMap<string, string> = new Map(
  textBeside(import.meta.url, "read.sql")
    .split(/^-- /m)
    .slice(1)
    .map((part) => [part.slice(0, part.indexOf("\n")), part.slice(part.indexOf("\n") + 1).trim()]),
);

/** What is kept of an item that has ended, with the reason of its fleet, and the tables that have it. */
const RESULT = "i.position, i.key, i.attempt, i.status, i.run, i.ended_at, s.json, f.why, @FIELDS@ AS fields";
const RESULTS = `corral.items i JOIN corral.fleets f ON f.id = i.fleet
  LEFT JOIN corral.requests r ON @REQUEST@ LEFT JOIN corral.results s ON @RESULT_OF@`;

/** A statement of `read.sql`, as this database takes it. `own`: what this call leaves open, beside the dialect. */
export function readStatement(dialect: Dialect, name: string, own: Readonly<Record<string, string>> = {}): string {
  const statement = STATEMENTS.get(name);
  if (statement === undefined) throw new Error(`there is no statement ${name}`);
  const whole = statement.replaceAll("@RESULT@", RESULT).replaceAll("@RESULTS@", RESULTS);
  const values = Object.entries({ ...dialect.of, ...own }).filter(([place]) => whole.includes(`@${place}@`));
  return dialect.text(filledIn(whole, Object.fromEntries(values)));
}

export const READ_STATEMENTS: readonly string[] = [...STATEMENTS.keys()];
