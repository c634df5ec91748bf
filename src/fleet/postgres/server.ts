import type { Duplex } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import { sha256 } from "../../platform/sha256.ts";
import { formatBytes } from "../../text/amounts.ts";
import { QueueError } from "../model/queue.ts";
import {
  type Connection,
  Holders,
  type Rows,
  SCHEMA,
  type Statement,
  type Statements,
  type StatementWait,
  schemaTexts,
  serverText,
  settingsOf,
  storable,
} from "./connection.ts";
import {
  explainedError,
  isCrowded,
  isHeldUp,
  isPassing,
  PERSISTENCE,
  type Persistence,
  Retries,
  tooOld,
} from "./lost-connection.ts";

/** Statements at the same time: one writes, others read lists. */
const MAX_CONNECTIONS = 4;
const CONNECT_MS = 10_000;
/** A statement that takes longer is ended by the server: nothing here takes so long. */
const STATEMENT_MS = 120_000;
/** Then the connection counts as lost: a network that carries nothing would be noticed after a quarter of an hour. */
const ANSWER_MS = STATEMENT_MS + 10_000;
const IDLE_MS = 30_000;
const HOLD_MS = 1000;
/** A network that carries nothing carries no goodbye either: then connections are cut. */
const CLOSE_MS = 3000;
/** Before it listens again after the connection was lost. */
const LISTEN_PAUSE_MS = 1000;
/** Any user may send notices. Above so many bytes in a second a connection hears none for a while: each process also looks every second. */
const MAX_NOTICE_BYTES = 1024 ** 2;
const NOTICE_BYTES = 32;
const FLOODED_MS = 10_000;

/** PostgreSQL before it lets a role revoke itself from those of coordinators, who could no longer end what a machine keeps open. */
const OLDEST = 15;
/** The first version that has `transaction_timeout`. */
const ENDS_TRANSACTIONS = 17;
const TRANSACTION_ENDED = "25P04";

/**
 * What each connection begins with. It counts more than what a role or a database has set: any role may write its own settings, and some
 * would end the connection before its first statement. Functions and operators that other users made are never meant, whatever schemas
 * they may write to.
 */
const SETTINGS = {
  search_path: "pg_catalog,pg_temp",
  role: "none",
  default_transaction_isolation: "read committed",
  default_transaction_read_only: "off",
  default_transaction_deferrable: "off",
  idle_session_timeout: "0",
  local_preload_libraries: "",
  tcp_user_timeout: "0",
  // A plan that was made while a table was empty is used when it is large (docs/facts.md, fact: plans-without-statistics).
  enable_seqscan: "off",
  jit: "off",
};
/**
 * What is not as Corral asks for, and what else the role has set for itself: that gets the value that PostgreSQL is built with, if it can
 * be set for this connection alone.
 */
const LOOK = `
  SELECT name FROM (VALUES ('default_transaction_isolation', 'read committed'), ('default_transaction_read_only', 'off'),
    ('default_transaction_deferrable', 'off')) AS wanted (name, value)
  WHERE current_setting(name) <> value
  UNION ALL SELECT 'role' WHERE current_user <> session_user
  UNION ALL SELECT s.name FROM pg_settings s, pg_settings path
  WHERE path.name = 'search_path' AND s.source IN ('user', 'database user') AND s.context = 'user' AND s.name <> ALL ($1)
    AND CASE WHEN path.source = 'client' THEN set_config(s.name, coalesce(s.boot_val, ''), false) IS NULL ELSE true END`;
const OWN_NAMES = new Set(["pg_catalog", "pg_catalog,pg_temp"]);

function optionsText(settings: Readonly<Record<string, string>>): string {
  return Object.entries(settings)
    .map(([name, value]) => `-c ${name}=${value.replaceAll(" ", "\\ ")}`)
    .join(" ");
}

/** A statement before that could call what another user has made. @throws QueueError if this is no connection for Corral */
async function prepare(client: pg.ClientBase, place: string): Promise<void> {
  const { rows } = await client.query<{ search_path: string }>("SHOW search_path");
  if (!OWN_NAMES.has(rows[0]?.search_path.replaceAll(" ", "") ?? ""))
    throw new QueueError(
      `PostgreSQL at ${place} ignores the search_path that Corral asks for, so functions of other users could run with this user's rights. ` +
        "A pooler may cause it: as an administrator, run `ALTER ROLE … SET search_path = pg_catalog` for the user of the queue.",
    );
  const others = await client.query<{ name: string }>(LOOK, [Object.keys(SETTINGS)]);
  if (others.rows.length === 0) return;
  throw new QueueError(
    `PostgreSQL at ${place} does not begin as Corral asks for, because of what was set for this user: ` +
      `${others.rows.map(({ name }) => name).join(", ")}. A pooler may cause it. The user itself can set that, also a hostile machine: ` +
      "`corral work --grants ROLE` prints what resets it.",
  );
}

/** Connects to a PostgreSQL server. @throws QueueError if it does not answer, or refuses */
export async function connectServer(
  url: string,
  schema = SCHEMA,
  persistence: Persistence = PERSISTENCE,
): Promise<Connection> {
  const texts = schemaTexts(schema);
  const settings = settingsOf(url);
  const place = serverText(url);
  const { default: driver } = await import("pg");
  const types = new driver.TypeOverrides();
  types.setTypeParser(driver.types.builtins.INT8, Number);
  const options: pg.ClientConfig = {
    ...settings,
    types,
    application_name: "corral",
    keepAlive: true,
    connectionTimeoutMillis: CONNECT_MS,
    statement_timeout: STATEMENT_MS,
    query_timeout: ANSWER_MS,
    lock_timeout: persistence.lockMs,
    // Several statements are in one round trip, if the caller does not wait between them.
    pipeline: true,
  };
  const optionsFor = (version: number): pg.ClientConfig => ({
    ...options,
    options: optionsText(version < ENDS_TRANSACTIONS ? SETTINGS : { ...SETTINGS, transaction_timeout: "0" }),
  });
  const clients = openClients(driver, optionsFor, persistence.maxAnswerBytes);
  const onConnect = async (client: pg.ClientBase): Promise<void> => {
    if (clients.version < OLDEST) throw new QueueError(tooOld(place));
    await prepare(client, place);
  };
  const bounds = { max: MAX_CONNECTIONS, idleTimeoutMillis: IDLE_MS, allowExitOnIdle: true };
  const pool = new driver.Pool({ ...options, ...bounds, Client: clients.Client, onConnect });
  // An idle connection that is lost is replaced when one is needed.
  pool.on("error", () => {});
  const server = new Server(pool, clients, texts, { place, persistence, onConnect });
  try {
    // The first connection may be one that its role's own `transaction_timeout` ends: until then the version is not known.
    await pool.query("SELECT").catch(async (error: { code?: string }) => {
      if (error.code !== TRANSACTION_ENDED) throw error;
      await pool.query("SELECT");
    });
    return server;
  } catch (error) {
    await server[Symbol.asyncDispose]();
    throw server.explained(error);
  }
}

/** The plan is on another connection, or another client has made it on this one. */
function hasLostPlan(error: unknown): boolean {
  return ["26000", "42P05"].includes((error as { code?: string }).code ?? "");
}

/** What a client is prepared with before it is used. */
type OnConnect = (client: pg.ClientBase) => Promise<void>;

class Server implements Connection {
  readonly #pool: pg.Pool;
  readonly #clients: OpenClients;
  readonly #texts: (text: string) => string;
  readonly #place: string;
  readonly #retries: Retries;
  readonly #lockMs: number;
  readonly #onConnect: OnConnect;
  readonly #holders = new Holders();
  /** By the text of the statement: its name on the server and its text there. */
  readonly #plans = new Map<string, { readonly name: string; readonly text: string }>();
  /** False behind a pooler that gives each transaction another connection, and does not know of plans. */
  #keepsPlans = true;
  #listener: pg.Client | null = null;
  #isClosed = false;

  constructor(
    pool: pg.Pool,
    clients: OpenClients,
    texts: (text: string) => string,
    {
      place,
      persistence,
      onConnect,
    }: { readonly place: string; readonly persistence: Persistence; readonly onConnect: OnConnect },
  ) {
    this.#pool = pool;
    this.#clients = clients;
    this.#texts = texts;
    this.#place = place;
    this.#lockMs = persistence.lockMs;
    this.#onConnect = onConnect;
    this.#retries = new Retries(persistence, (error) => (this.explained(error) as Error).message);
  }

  async query<Row>(text: string, values: readonly unknown[] = [], patience: StatementWait = {}): Promise<Row[]> {
    return await this.#persistently(
      async () =>
        await this.#withClient(async (client) => {
          patience.onSent?.();
          return await this.#ask<Row>(client, text, values, patience.withinMs);
        }),
    );
  }

  async transaction<T>(work: (within: Statements, again: boolean) => Promise<T>): Promise<T> {
    return await this.#persistently(
      async (again) =>
        await this.#withClient(async (client) => {
          await client.query("BEGIN");
          const value = await work({ query: (text, values = []) => this.#ask(client, text, values) }, again);
          await client.query("COMMIT");
          return value;
        }),
    );
  }

  /** A connection outside of a transaction; if `work` fails, its transaction is rolled back. */
  async #withClient<T>(work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    const client = await this.#pool.connect();
    // Otherwise a connection that is lost between two statements would end the process.
    const onError = (): void => {};
    client.on("error", onError);
    let broken: Error | undefined;
    try {
      return await work(client);
    } catch (error) {
      // Without room for locks there is none for a new connection either.
      if (isPassing(error) && !isCrowded(error)) broken = error as Error;
      else await client.query("ROLLBACK").catch((failure: Error) => (broken = failure));
      throw error;
    } finally {
      client.off("error", onError);
      client.release(broken);
    }
  }

  async together(statements: (again: boolean) => readonly Statement[]): Promise<readonly Rows[]> {
    return await this.#persistently(async (again) => {
      const all = statements(again);
      try {
        return await this.#withClient((client) => this.#sendTogether(client, all));
      } catch (error) {
        if (!this.#keepsPlans || !hasLostPlan(error)) throw error;
        // Nothing was committed.
        this.#keepsPlans = false;
        return await this.#withClient((client) => this.#sendTogether(client, all));
      }
    });
  }

  async #sendTogether(client: pg.PoolClient, statements: readonly Statement[]): Promise<readonly Rows[]> {
    const ask = ({ text, values }: Statement) => client.query({ ...this.#planned(text), values: values.map(storable) });
    const [first, ...others] = statements;
    if (first === undefined) return [];
    // One alone is a transaction already.
    if (others.length === 0) return [(await ask(first)).rows];
    const sent = [client.query("BEGIN"), ...statements.map(ask), client.query("COMMIT")];
    // If one fails, the server refuses those after it, and its COMMIT changes nothing.
    const answers = await Promise.allSettled(sent);
    const failed = answers.find(({ status }) => status === "rejected");
    if (failed?.status === "rejected") throw failed.reason;
    return answers.slice(1, -1).map((answer) => (answer.status === "fulfilled" ? answer.value.rows : []));
  }

  async listen(heard: () => void): Promise<void> {
    if (this.#isClosed) return;
    const client = this.#clients.make();
    this.#listener = client;
    let isOver = false;
    const again = (pauseMs = LISTEN_PAUSE_MS): void => {
      if (isOver) return;
      isOver = true;
      void client.end().catch(() => {});
      heard();
      void sleep(pauseMs, undefined, { ref: false }).then(() => this.listen(heard));
    };
    let [since, bytes] = [performance.now(), 0];
    client.on("notification", ({ payload = "" }) => {
      if (isOver) return;
      if (performance.now() - since > 1000) [since, bytes] = [performance.now(), 0];
      bytes += NOTICE_BYTES + payload.length;
      if (bytes <= MAX_NOTICE_BYTES) return heard();
      again(FLOODED_MS);
      streamOf(client).destroy();
    });
    client.on("error", () => again()).on("end", () => again());
    try {
      await client.connect();
      await this.#onConnect(client);
      await client.query(`LISTEN ${SCHEMA}`);
      streamOf(client).unref?.();
    } catch {
      again();
    }
  }

  explained(error: unknown): unknown {
    return explainedError(error, this.#place);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    // Connections without work do not keep the process alive, and it must not end while they are being closed.
    const hold = setInterval(() => {}, HOLD_MS);
    const cutting = setTimeout(() => this.#clients.destroy(), CLOSE_MS);
    try {
      this.#listener?.removeAllListeners("end");
      await this.#listener?.end().catch(() => {});
      await this.#pool.end();
    } finally {
      clearInterval(hold);
      // What keeps the process alive longer is cut then.
      cutting.unref();
    }
  }

  async #ask<Row>(
    to: Pick<pg.ClientBase, "query">,
    text: string,
    values: readonly unknown[],
    withinMs = ANSWER_MS,
  ): Promise<Row[]> {
    // The driver's types do not know that a single statement may have a time of its own.
    const limit: object = { query_timeout: withinMs };
    const { rows } = await to.query({ text: this.#texts(text), values: values.map(storable), ...limit });
    return rows as Row[];
  }

  /** What waited for a lock may have waited for a machine that holds it on purpose, or all of them. */
  async #freed(error: unknown): Promise<never> {
    if (isHeldUp(error) || isCrowded(error)) await this.#endHolders(this.#lockMs, isCrowded(error)).catch(() => {});
    throw error;
  }

  async endHolders(heldMs: number): Promise<number> {
    return await this.#persistently(() => this.#endHolders(heldMs, false));
  }

  async #endHolders(heldMs: number, isCrowded: boolean): Promise<number> {
    return await this.#withClient(async (client) => {
      const db: Statements = { query: (text, values = []) => this.#ask(client, text, values) };
      return await this.#holders.end(db, heldMs, isCrowded);
    });
  }

  #planned(text: string): { readonly text: string; readonly name?: string } {
    let planned = this.#plans.get(text);
    if (planned === undefined) {
      const shown = this.#texts(text);
      planned = { text: shown, name: `corral_${sha256(shown).slice(0, 16)}` };
      this.#plans.set(text, planned);
    }
    return this.#keepsPlans ? planned : { text: planned.text };
  }

  async #persistently<T>(attempt: (again: boolean) => Promise<T>): Promise<T> {
    if (this.#isClosed) throw new QueueError("the store of fleets is closed");
    try {
      return await this.#retries.run(
        async (again) => await attempt(again).catch((error: unknown) => this.#freed(error)),
        () => this.#isClosed,
      );
    } catch (error) {
      throw this.explained(error);
    }
  }
}

/** Makes clients, and can end the connections of all that have not ended. */
export interface OpenClients {
  /** For a pool. */
  readonly Client: new (
    config?: pg.ClientConfig,
  ) => pg.Client;
  make(): pg.Client;
  /** The first part of the server's version; 0: no connection has been made yet. */
  readonly version: number;
  /** At once, without a word to the server: what they were asked fails. */
  destroy(): void;
}

/** A row counts for more than its bytes: it is an object. */
const ROW_BYTES = 150;

export function openClients(
  driver: Pick<typeof pg, "Client">,
  optionsFor: (version: number) => pg.ClientConfig,
  maxAnswerBytes: number,
): OpenClients {
  const open = new Set<pg.Client>();
  let version = 0;
  class Client extends driver.Client {
    constructor(config?: pg.ClientConfig) {
      super({ ...config, ...optionsFor(version) });
      const connection = connectionOf(this);
      connection.on("parameterStatus", ({ parameterName, parameterValue }) => {
        if (parameterName === "server_version") version = Number.parseInt(parameterValue, 10);
      });
      boundAnswers(connection, maxAnswerBytes);
      open.add(this);
      this.once("end", () => open.delete(this));
    }
  }
  return {
    Client,
    make: () => new Client(),
    get version() {
      return version;
    },
    destroy() {
      for (const client of open) streamOf(client).destroy();
    },
  };
}

export function streamOf(client: pg.Client): ClientConnection["stream"] {
  return connectionOf(client).stream;
}

/** The connection is cut when an answer is too long: what was asked fails, and is not asked again. */
function boundAnswers(connection: ClientConnection, maxBytes: number): void {
  let bytes = 0;
  const begin = (): void => {
    bytes = 0;
  };
  const add = (more: number): void => {
    const isWithin = bytes <= maxBytes;
    bytes += more;
    if (!isWithin || bytes <= maxBytes) return;
    const error = new Error(`the server sends an answer of more than ${formatBytes(maxBytes)}`);
    // First, since the rest of the piece that was read may have the end of the answer.
    connection.emit("error", error);
    connection.stream.destroy(error);
  };
  connection.on("readyForQuery", begin);
  // It is no part of an answer, and a listener hears nothing else.
  connection.on("notification", begin);
  connection.on("dataRow", () => add(ROW_BYTES));
  const attach = connection.attachListeners.bind(connection);
  // Called with the stream that is read from in the end: the one of TLS is made later.
  connection.attachListeners = (stream) => {
    stream.on("data", (piece: Uint8Array) => add(piece.length));
    attach(stream);
  };
}

interface ClientConnection {
  readonly stream: { destroy(error?: Error): void; unref?(): void };
  emit(name: "error", error: Error): void;
  attachListeners(stream: Duplex): void;
  on(name: "parameterStatus", heard: (said: { parameterName: string; parameterValue: string }) => void): void;
  on(name: "readyForQuery" | "notification" | "dataRow", heard: () => void): void;
}

/** The driver's types do not know it. */
function connectionOf(client: pg.Client): ClientConnection {
  return (client as unknown as { connection: ClientConnection }).connection;
}
