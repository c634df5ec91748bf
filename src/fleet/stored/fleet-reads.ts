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
import { type Dialect, readStatement } from "./dialects.ts";
import { streamsFrom } from "./request-batches.ts";
import {
  type FleetRow,
  itemCounts,
  MOST_COUNTED,
  outerState,
  paceFrom,
  type ResultRow,
  recordOf,
  resultFrom,
  UNKNOWN_PACE,
} from "./rows.ts";

/** Small enough for memory with the longest results. No statement stays open between pages. */
const PAGE = 200;
const PENDING_PAGE = 500;
/** Each item may have two long streams. */
const LOG_PAGE = 50;
const MAX_GROUPS = 20;

export interface ReadDatabase {
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

/** What both stores read, with the same statements (`read.sql`); `dialects.ts` has what differs. */
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
