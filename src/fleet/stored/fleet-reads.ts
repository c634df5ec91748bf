import { createHash } from "node:crypto";
import { filledIn, textBeside } from "../../platform/text-beside.ts";
import {
  causeText,
  type EarlierAttempt,
  type FailureGroup,
  type ItemFilter,
  type ItemLog,
  type ItemRequest,
  type ItemResult,
  type ListedItem,
  type PendingItem,
  type StoredItem,
} from "../model/item.ts";
import type { FleetRecord, FleetStore, Pace, SummaryLine } from "../model/store.ts";
import {
  type FleetRow,
  itemCounts,
  MOST_COUNTED,
  outerState,
  paceFrom,
  type ResultRow,
  recordOf,
  resultFrom,
  streamsFrom,
  UNKNOWN_PACE,
} from "./rows.ts";

/** In SQL: items that are running, as everybody else says it. */
export const ACTIVE = "state IN ('running', 'away', 'delivered', 'applying')";

/** How one of the databases says what the statements of `read.sql` leave open. */
interface Dialect {
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

/** Small enough for memory with the longest results. No statement stays open between pages. */
const PAGE = 200;
const PENDING_PAGE = 500;
/** Each item may have two long streams. */
const LOG_PAGE = 50;
const MAX_GROUPS = 20;

interface ReadDatabase {
  readonly dialect: Dialect;
  /** The fleets of other projects are not seen. */
  readonly project: string;
  query<Row>(text: string, values: readonly unknown[]): Promise<Row[]>;
  /** Milliseconds since 1970; null: the database's own clock. */
  now(): number | null;
}

interface Blobs {
  readonly stdout: Uint8Array | null;
  readonly stderr: Uint8Array | null;
}

type Positioned = { readonly position: number };
type Stored<Row> = Omit<Row, "endedAt" | "state"> & { readonly endedAt: number | null; readonly state: string };

type Reads = Pick<
  FleetStore,
  | ("find" | "list" | "like" | "succeededBefore" | "writtenPaths" | "results" | "failed" | "pending" | "summary")
  | ("failureGroups" | "pace" | "item" | "items" | "keys" | "logs" | "fieldNames" | "slowest" | "lastFailures")
>;

/** What both stores read, with the same statements (`read.sql`); `Dialect` has what differs. */
export abstract class FleetReads implements Reads {
  readonly #db: ReadDatabase;

  constructor(db: ReadDatabase) {
    this.#db = db;
  }

  /** Waits for what this process writes. */
  protected abstract flushed(): Promise<void>;

  /** The fleet's row. @throws Error if the fleet does not exist */
  protected async row(fleet: string): Promise<FleetRow> {
    const [row] = await this.#read<FleetRow>("fleets", [this.#db.project, fleet], {}, "AND f.name = $2");
    if (row === undefined) throw unknown(fleet);
    return row;
  }

  /** The number of the fleet in the database. @throws Error if the fleet does not exist */
  protected async idOf(fleet: string): Promise<number> {
    const { dialect, project } = this.#db;
    const sql = `SELECT f.id FROM corral.fleets f WHERE ${dialect.of.PROJECT} = $1 AND f.name = $2`;
    const [row] = await this.#db.query<{ id: number }>(dialect.text(sql), [project, fleet]);
    if (row === undefined) throw unknown(fleet);
    return row.id;
  }

  async find(fleet: string): Promise<FleetRecord | null> {
    const [row] = await this.#read<FleetRow>("fleets", [this.#db.project, fleet], {}, "AND f.name = $2");
    return row === undefined ? null : recordOf(row);
  }

  async list(limit = 100): Promise<FleetRecord[]> {
    const rows = await this.#read<FleetRow>("fleets", [this.#db.project, limit], {}, "ORDER BY f.id DESC LIMIT $2");
    return rows.map(recordOf);
  }

  async like(prefix: string, limit: number): Promise<FleetRecord[]> {
    const which = "AND substr(f.name, 1, length(CAST($2 AS text))) = $2 ORDER BY f.id DESC LIMIT $3";
    return (await this.#read<FleetRow>("fleets", [this.#db.project, prefix, limit], {}, which)).map(recordOf);
  }

  async succeededBefore(cacheKey: string): ReturnType<FleetStore["succeededBefore"]> {
    const [row] = await this.#read<{ fleet: string; json: string }>("earlier success", [cacheKey, this.#db.project]);
    return row === undefined ? null : { fleet: row.fleet, result: JSON.parse(row.json) as ItemResult };
  }

  async *writtenPaths(fleet: string): AsyncGenerator<string, void, undefined> {
    for await (const { writes } of this.#pages<Positioned & { writes: string }>("paths", fleet, PAGE))
      yield* JSON.parse(writes) as string[];
  }

  async *results(
    fleet: string,
    { status = null }: { status?: string | null } = {},
  ): AsyncGenerator<ItemResult, void, undefined> {
    const only = status === null ? (["", []] as const) : (["AND i.status = $4", [status]] as const);
    for await (const row of this.#pages<ResultRow>("results", fleet, PAGE, { STATUS: only[0] }, only[1]))
      yield resultFrom(row);
  }

  async *failed(fleet: string): AsyncGenerator<ItemRequest, void, undefined> {
    for await (const { json } of this.#pages<Positioned & { json: string }>("failed", fleet, PAGE))
      yield JSON.parse(json) as ItemRequest;
  }

  async *pending(fleet: string): AsyncGenerator<PendingItem, void, undefined> {
    const id = await this.idOf(fleet);
    for (let after = -1; ; ) {
      const page = await this.#read<PendingItem>("pending", [id, after, PENDING_PAGE]);
      yield* page;
      const last = page.at(-1);
      if (last === undefined) return;
      after = last.index;
    }
  }

  async summary(fleet: string): Promise<SummaryLine[]> {
    return await this.#read<SummaryLine>("summary", [await this.idOf(fleet)]);
  }

  async failureGroups(fleet: string): Promise<FailureGroup[]> {
    const groups = await this.#read<{ count: number; code: string } & ResultRow>("groups", [
      await this.idOf(fleet),
      MAX_GROUPS,
    ]);
    return groups.map(({ count, code, ...row }) => {
      const example = resultFrom(row);
      return { count, status: row.status, code, text: causeText(example), example: example.key };
    });
  }

  /**
   * Counted are the items before those that run, since new items are taken in order. While only retries run, these are few and old, and the
   * pace is unknown.
   */
  async pace(fleet: string): Promise<Pace> {
    await this.flushed();
    const row = await this.row(fleet);
    const ended = await this.#read<{ now: number; at: number | null }>("pace", [row.id, this.#db.now(), MOST_COUNTED]);
    const [first] = ended;
    if (first === undefined) return UNKNOWN_PACE;
    const { queued, running } = itemCounts(row);
    return paceFrom(
      ended.map(({ at }) => at),
      queued + running,
      first.now,
    );
  }

  async item(fleet: string, key: string): Promise<StoredItem | null> {
    const id = await this.idOf(fleet);
    const [row] = await this.#read<
      ResultRow & Blobs & Pick<StoredItem, "machine"> & { state: string; request: string }
    >("item", [id, this.#db.dialect.keyed(key)]);
    if (row === undefined) return null;
    const result = row.status === null ? null : resultFrom(row);
    const attempts = await this.#read<{ attempt: number; json: string }>("attempts", [id, row.position]);
    // Of an item that waits or runs again, the result is still that of before.
    const shown = row.state === "done" ? row.attempt : attempts[0]?.attempt;
    return {
      state: outerState(row.state),
      request: JSON.parse(row.request) as ItemRequest,
      result,
      streams: streamsFrom(row, result?.output),
      machine: row.machine,
      attempts: attempts.flatMap(({ attempt, json }) =>
        attempt === shown ? [] : [JSON.parse(json) as EarlierAttempt],
      ),
    };
  }

  async items(
    fleet: string,
    { state, status, search, failed = false, alike }: ItemFilter,
    { after, limit }: { readonly after: number; readonly limit: number },
  ): Promise<ListedItem[]> {
    await this.flushed();
    const { dialect } = this.#db;
    const values: unknown[] = [await this.idOf(fleet), after, limit];
    const given = (value: unknown): string => `$${values.push(value)}`;
    const terms: string[] = [];
    if (state === "running") terms.push(dialect.of.ACTIVE ?? "");
    else if (state !== undefined) terms.push(`i.state = ${given(state)}`);
    if (status !== undefined) terms.push(`i.status = ${given(status)}`);
    if (search !== undefined) terms.push(dialect.contains(given(search)));
    // In words that the planner knows ahead, for the index of failed items.
    if (failed || alike !== undefined) terms.push("i.failed = 1");
    if (alike !== undefined)
      terms.push(
        `(i.status, i.code, i.cause) = (SELECT a.status, a.code, a.cause FROM corral.items a
         WHERE a.fleet = $1 AND a.${dialect.of.KEY} = ${given(dialect.keyed(alike))})`,
      );
    const index = search !== undefined ? dialect.of.BY_KEY : alike !== undefined ? dialect.of.BY_FAILED : "";
    const own = { INDEX: index ?? "", TERMS: terms.map((term) => `AND ${term}`).join(" ") };
    const rows = await this.#read<Stored<ListedItem>>("items", values, own);
    return rows.map((row) => ({
      ...row,
      state: outerState(row.state),
      endedAt: row.endedAt === null ? null : new Date(row.endedAt).toISOString(),
    }));
  }

  async keys(fleet: string, limit: number): Promise<string[]> {
    return (await this.#read<{ key: string }>("keys", [await this.idOf(fleet), limit])).map(({ key }) => key);
  }

  async *logs(fleet: string, { failed }: { readonly failed: boolean }): AsyncGenerator<ItemLog, void, undefined> {
    const own = { FAILED: failed ? "AND i.failed = 1" : "" };
    for await (const row of this.#pages<ResultRow & Blobs>("logs", fleet, LOG_PAGE, own)) {
      const { key, status, exitCode, output } = resultFrom(row);
      yield { key, status, exitCode, ...streamsFrom(row, output) };
    }
  }

  async fieldNames(fleet: string, limit: number): Promise<string[]> {
    const { dialect } = this.#db;
    const sql = dialect.text(dialect.fieldNames);
    return (await this.#db.query<{ name: string }>(sql, [await this.idOf(fleet), limit])).map(({ name }) => name);
  }

  /** They are chosen before their results are read: sorting whole rows takes three times as long. */
  async slowest(fleet: string, limit: number): Promise<ItemResult[]> {
    return (await this.#read<ResultRow>("slowest", [await this.idOf(fleet), limit])).map(resultFrom);
  }

  async lastFailures(fleet: string, limit: number): Promise<ItemResult[]> {
    return (await this.#read<ResultRow>("newest failures", [await this.idOf(fleet), limit])).map(resultFrom);
  }

  async #read<Row>(
    name: string,
    values: readonly unknown[],
    own: Readonly<Record<string, string>> = {},
    more = "",
  ): Promise<Row[]> {
    const { dialect } = this.#db;
    return await this.#db.query<Row>(`${readStatement(dialect, name, own)} ${dialect.text(more)}`, values);
  }

  /** Rows by position, in pages. Of a running fleet, each page shows the state when it is read. */
  async *#pages<Row extends Positioned>(
    name: string,
    fleet: string,
    page: number,
    own: Readonly<Record<string, string>> = {},
    further: readonly unknown[] = [],
  ): AsyncGenerator<Row, void, undefined> {
    const id = await this.idOf(fleet);
    for (let after = -1; ; ) {
      const rows = await this.#read<Row>(name, [id, after, page, ...further], own);
      yield* rows;
      const last = rows.at(-1);
      if (last === undefined) return;
      after = last.position;
    }
  }
}

function unknown(fleet: string): Error {
  return new Error(`there is no fleet ${fleet} in this project`);
}
